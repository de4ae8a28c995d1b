/**
 * Markdown that is still being written becomes blocks: those that are settled, once, and those that the next letters may
 * still change. Reading is line by line and never goes back, so the cost of a long answer is that of its lines. What is not
 * known as markup is a paragraph; HTML is text like any other.
 *
 * @typedef {{kind: "heading", level: number, text: string}} Heading
 * @typedef {{kind: "paragraph", text: string, indent: number}} Paragraph
 * @typedef {{kind: "item", isOrdered: boolean, number: number, indent: number, content: number, text: string,
 *   isDone: boolean | null}} Item `content` is the column where its text begins
 * @typedef {{kind: "code", language: string, text: string, indent: number, fence: string}} Code
 * @typedef {{kind: "table", header: string[], align: string[], rows: string[][]}} Table
 * @typedef {{kind: "quote", text: string}} Quote
 * @typedef {{kind: "rule"}} Rule
 * @typedef {Heading | Paragraph | Item | Code | Table | Quote | Rule} Block
 */

/** The language of a block that is a formula; no fence can name it. */
export const MATH = "$";
// The time of each of these grows with the length of the line only, for any content.
const FENCE = /^( *)(`{3,}|~{3,})(.*)$/;
// A formula that goes on in the next line.
const FORMULA = /^( *)(\$\$|\\\[)(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s|$)/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)(?:\[([ xX])\] +)?(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DELIMITER = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;
// What may still become a fence or an item: shown too early it would flicker.
const BEGINNING = /^ *(?:[`~]{1,2}|[-*+]|\d{1,9}[.)]?|#{1,6})$/;

/** One answer's Markdown. */
export class BlockReader {
  /** @type {Block | null} */
  #open = null;
  #tail = "";

  /**
   * @param {string} text the next piece
   * @returns {{settled: Block[], live: Block[]}} blocks that will not change any more, in order, and after them those
   *   that may; live ones take the place of the live ones of the time before
   */
  feed(text) {
    const lines = (this.#tail + text).split("\n");
    this.#tail = lines.pop() ?? "";
    /** @type {Block[]} */
    const settled = [];
    for (const line of lines) this.#open = step(this.#open, tidy(line), settled);
    return { settled, live: this.#preview() };
  }

  /** @returns {Block[]} the live blocks, now settled */
  finish() {
    /** @type {Block[]} */
    const settled = [];
    if (this.#tail) this.#open = step(this.#open, tidy(this.#tail), settled);
    if (this.#open) settled.push(this.#open);
    this.#open = null;
    this.#tail = "";
    return settled;
  }

  /** The open block as it would be if the line under way were complete; it is not stored. */
  #preview() {
    /** @type {Block[]} */
    const live = [];
    const isUndecided = this.#tail === "" || BEGINNING.test(this.#tail);
    const open = isUndecided ? this.#open : step(this.#open, tidy(this.#tail), live);
    if (open) live.push(open);
    return live;
  }
}

/**
 * All blocks of a text that is complete.
 *
 * @param {string} text
 * @returns {Block[]}
 */
export function blocks(text) {
  const reader = new BlockReader();
  return [...reader.feed(text).settled, ...reader.finish()];
}

/**
 * One line further.
 *
 * @param {Block | null} open never changed: a line that continues it makes a new one
 * @param {string} line
 * @param {Block[]} settled takes what this line closes
 * @returns {Block | null} the block that is open now
 */
function step(open, line, settled) {
  if (open?.kind === "code") return inCode(open, line, settled);
  const table = open?.kind === "paragraph" ? tableFrom(open, line, settled) : null;
  if (table) return table;
  const continued = continuation(open, line);
  if (continued) return continued;
  if (open) settled.push(open);
  return line.trim() === "" ? null : beginning(line, settled);
}

/**
 * @param {Code} open
 * @param {string} line
 * @param {Block[]} settled
 */
function inCode(open, line, settled) {
  const mark = line.trim();
  if (open.language === MATH) {
    if (!mark.endsWith(open.fence)) return { ...open, text: `${open.text}${line}\n` };
    settled.push({ ...open, text: `${open.text}${mark.slice(0, -open.fence.length)}` });
    return null;
  }
  const isEnd = mark.length >= open.fence.length && mark === (open.fence[0] ?? "").repeat(mark.length);
  if (isEnd) {
    settled.push(open);
    return null;
  }
  return { ...open, text: `${open.text}${line.slice(Math.min(indentOf(line), open.indent))}\n` };
}

/**
 * The open block with the line in it; null when the line does not belong to it.
 *
 * @param {Block | null} open
 * @param {string} line
 * @returns {Block | null}
 */
function continuation(open, line) {
  if (open?.kind === "quote") {
    const quoted = QUOTE.exec(line);
    return quoted ? { ...open, text: `${open.text}\n${quoted[1]}` } : null;
  }
  if (open?.kind === "table") return line.includes("|") ? { ...open, rows: [...open.rows, cells(line)] } : null;
  if (open?.kind !== "paragraph" && open?.kind !== "item") return null;
  return line.trim() === "" || beginsSomething(line) ? null : { ...open, text: `${open.text}\n${line.trim()}` };
}

/**
 * The table whose first line the paragraph ends with, when this line is the border below it.
 *
 * @param {Paragraph} open
 * @param {string} line
 * @param {Block[]} settled takes what stood above the table
 * @returns {Table | null}
 */
function tableFrom(open, line, settled) {
  if (!DELIMITER.test(line)) return null;
  const above = open.text.lastIndexOf("\n");
  const header = open.text.slice(above + 1);
  const marks = cells(line);
  if (!header.includes("|") || cells(header).length !== marks.length) return null;
  if (above >= 0) settled.push({ ...open, text: open.text.slice(0, above) });
  const align = marks.map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "end") : "start"));
  return { kind: "table", header: cells(header), align, rows: [] };
}

/** @param {string} line */
function beginsSomething(line) {
  if (RULE.test(line) || QUOTE.test(line) || HEADING.test(line) || codeFrom(line)) return true;
  const item = ITEM.exec(line);
  // A sentence that happens to break before "1945." begins no list.
  return Boolean(item?.[5]) && !/\d{3}/.test(item?.[2] ?? "");
}

/**
 * The block that a line begins.
 *
 * @param {string} line
 * @param {Block[]} settled takes blocks that are one line long
 * @returns {Block | null}
 */
function beginning(line, settled) {
  const heading = HEADING.exec(line);
  if (heading) {
    settled.push({
      kind: "heading",
      level: (heading[1] ?? "#").length,
      text: headingText(line.slice(heading[0].length)),
    });
    return null;
  }
  if (RULE.test(line)) {
    settled.push({ kind: "rule" });
    return null;
  }
  const code = codeFrom(line);
  if (code) return code;
  const quoted = QUOTE.exec(line);
  if (quoted) return { kind: "quote", text: quoted[1] ?? "" };
  const item = ITEM.exec(line);
  return item ? itemFrom(item) : { kind: "paragraph", text: line.trim(), indent: indentOf(line) };
}

/**
 * What a heading says, without the signs that may close it.
 *
 * @param {string} rest
 */
function headingText(rest) {
  const text = rest.trim();
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return end === 0 || text[end - 1] === " " ? text.slice(0, end).trim() : text;
}

/**
 * The code block that a line opens.
 *
 * @param {string} line
 * @returns {Code | null}
 */
function codeFrom(line) {
  const [, space = "", sign = "", first = ""] = FORMULA.exec(line) ?? [];
  const end = sign === "$$" ? sign : "\\]";
  if (sign && !first.includes(end))
    return { kind: "code", language: MATH, text: first && `${first}\n`, indent: space.length, fence: end };
  const [, indent = "", fence = "", rest = ""] = FENCE.exec(line) ?? [];
  if (!fence || rest.includes("`")) return null;
  return { kind: "code", language: rest.trim().split(/\s/)[0] ?? "", text: "", indent: indent.length, fence };
}

/**
 * @param {RegExpExecArray} found
 * @returns {Item}
 */
function itemFrom(found) {
  const [, indent = "", mark = "", gap = " ", box, text = ""] = found;
  const number = Number.parseInt(mark, 10);
  return {
    kind: "item",
    isOrdered: !Number.isNaN(number),
    number: Number.isNaN(number) ? 1 : number,
    indent: indent.length,
    content: indent.length + mark.length + Math.min(gap.length, 4),
    text: text.trim(),
    isDone: box === undefined ? null : box !== " ",
  };
}

/**
 * The cells of a table's line; `\|` and a bar in code are no border.
 *
 * @param {string} line
 * @returns {string[]}
 */
function cells(line) {
  const inside = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(^|[^\\])\|$/, "$1");
  /** @type {string[]} */
  const found = [];
  let cell = "";
  let isCode = false;
  for (let at = 0; at < inside.length; at += 1) {
    const sign = inside[at] ?? "";
    if (sign === "\\" && inside[at + 1] === "|") at += 1;
    else if (sign === "`") isCode = !isCode;
    if (sign === "|" && !isCode) {
      found.push(cell.trim());
      cell = "";
    } else {
      cell += sign === "\\" && inside[at] === "|" ? "|" : sign;
    }
  }
  return [...found, cell.trim()];
}

/** @param {string} line */
function indentOf(line) {
  return line.length - line.trimStart().length;
}

/** @param {string} line */
function tidy(line) {
  return (line.endsWith("\r") ? line.slice(0, -1) : line).replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
}
