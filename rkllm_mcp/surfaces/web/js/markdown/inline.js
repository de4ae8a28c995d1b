/**
 * One line or paragraph of Markdown becomes spans. Every piece of the text comes out exactly once, unchanged if it is not
 * markup. Addresses become links only with a scheme that opens a page or a letter. Pictures become links: the page fetches
 * nothing from elsewhere. Takes time in proportion to the text: an ending that is missing is looked for once.
 *
 * @typedef {{kind: "text", text: string}} TextSpan
 * @typedef {{kind: "code", text: string}} CodeSpan
 * @typedef {{kind: "break"}} BreakSpan
 * @typedef {{kind: "strong" | "em" | "del", spans: Span[]}} MarkedSpan
 * @typedef {{kind: "link", href: string, spans: Span[]}} LinkSpan
 * @typedef {{kind: "math", text: string, isDisplay: boolean}} MathSpan
 * @typedef {MathSpan | TextSpan | CodeSpan | BreakSpan | MarkedSpan | LinkSpan} Span
 */

const SPECIAL = /[\\`*_~[!\nh$&<]/g;
// Japanese text is before and behind an address without a space, and any text in quotation marks.
const ADDRESS = /https?:\/\/[^\s<>"'`\u2018-\u201f\u2026\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]{1,2000}/y;
const BEFORE_ADDRESS = /[\w/]/;
const LINE_BREAK = /<br\s{0,4}\/?>/iy;
const ENTITY = /&(?:([a-z]{2,6})|#(\d{1,7})|#x([\da-f]{1,6}));/iy;
/** The entities that models write in texts; any other stays as it is. */
const ENTITIES = new Map(
  Object.entries({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", times: "×", deg: "°" }),
);
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;
// Deeper nesting than a person writes; below it markup stays text.
const DEEPEST = 8;
/** @type {[string, string, boolean][]} */
const FORMULAS = [
  ["$$", "$$", true],
  ["\\[", "\\]", true],
  ["\\(", "\\)", false],
  ["$", "$", false],
];
/** @type {[string, MarkedSpan["kind"]][]} */
const MARKS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];

/**
 * @param {string} text
 * @returns {Span[]}
 */
export function inline(text) {
  return new Reader(text, 0).spans();
}

/**
 * @param {string} address
 * @returns {boolean} whether it may become a link
 */
export function isSafeAddress(address) {
  return /^(https?:\/\/[^\s]|mailto:[^\s])/i.test(address);
}

class Reader {
  /** @type {Span[]} */
  #spans = [];
  #plain = "";
  #at = 0;
  /** @type {Set<string>} markers whose ending was looked for and is not there */
  #missing = new Set();
  /** the next place where the name of a link ends, and the last one after which no address was */
  #close = -1;
  #barren = -1;

  /**
   * @param {string} text
   * @param {number} depth
   */
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
  }

  spans() {
    while (this.#at < this.text.length) {
      SPECIAL.lastIndex = this.#at;
      const next = SPECIAL.exec(this.text);
      const stop = next ? next.index : this.text.length;
      this.#plain += this.text.slice(this.#at, stop);
      this.#at = stop;
      if (next) this.#special(next[0]);
    }
    this.#flush();
    return this.#spans;
  }

  /** @param {string} sign */
  #special(sign) {
    const taken =
      ((sign === "\\" || sign === "$") && this.#math()) ||
      (sign === "\\" && this.#escape()) ||
      (sign === "\n" && this.#break()) ||
      (sign === "`" && this.#code()) ||
      (sign === "h" && this.#address()) ||
      (sign === "<" && this.#tag()) ||
      (sign === "&" && this.#entity()) ||
      ((sign === "[" || sign === "!") && this.#link()) ||
      ("*_~".includes(sign) && this.#marked());
    if (taken) return;
    // A run of the same sign is one: its second half begins nothing that the whole did not.
    let end = this.#at + 1;
    if ("*_~`".includes(sign)) while (this.text[end] === sign) end += 1;
    this.#plain += this.text.slice(this.#at, end);
    this.#at = end;
  }

  /** A formula. A single $ is mostly money: it closes on its line, without spaces inside its ends or a digit after it. */
  #math() {
    for (const [open, close, isDisplay] of FORMULAS) {
      if (!this.text.startsWith(open, this.#at)) continue;
      const start = this.#at + open.length;
      const isSingle = open === "$";
      if (isSingle && /[\s$]/.test(this.text[start] ?? " ")) return false;
      const end = isSingle ? this.text.indexOf(close, start) : this.#ending(close, start, () => true);
      const text = this.text.slice(start, end);
      if (end < 0 || !text.trim()) return false;
      if (isSingle && (/\s$|\n/.test(text) || /\d/.test(this.text[end + 1] ?? ""))) return false;
      this.#push({ kind: "math", text, isDisplay }, end + close.length);
      return true;
    }
    return false;
  }

  #escape() {
    const next = this.text[this.#at + 1] ?? "";
    if (!ESCAPABLE.test(next)) return false;
    this.#plain += next;
    this.#at += 2;
    return true;
  }

  #break() {
    this.#plain = this.#plain.trimEnd();
    this.#push({ kind: "break" }, this.#at + 1);
    return true;
  }

  /** The one tag that is obeyed: nothing else breaks a line in the cell of a table. */
  #tag() {
    const match = sticky(LINE_BREAK, this.text, this.#at);
    if (!match) return false;
    this.#push({ kind: "break" }, this.#at + match[0].length);
    return true;
  }

  #entity() {
    const match = sticky(ENTITY, this.text, this.#at);
    const text = match && (match[1] ? ENTITIES.get(match[1]) : character(match[2], match[3]));
    if (!match || !text) return false;
    this.#plain += text;
    this.#at += match[0].length;
    return true;
  }

  #code() {
    const ticks = /** @type {RegExpExecArray} */ (sticky(/`+/y, this.text, this.#at))[0];
    const start = this.#at + ticks.length;
    const end = this.#ending(ticks, start, (at) => this.text[at - 1] !== "`" && this.text[at + ticks.length] !== "`");
    if (end < 0) return false;
    const inside = this.text.slice(start, end).replaceAll("\n", " ");
    const isPadded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
    this.#push({ kind: "code", text: isPadded ? inside.slice(1, -1) : inside }, end + ticks.length);
    return true;
  }

  #address() {
    const match = BEFORE_ADDRESS.test(this.text[this.#at - 1] ?? "") ? null : sticky(ADDRESS, this.text, this.#at);
    if (!match) return false;
    const address = trimmed(match[0]);
    this.#push({ kind: "link", href: address, spans: [{ kind: "text", text: address }] }, this.#at + address.length);
    return true;
  }

  #link() {
    const open = this.text[this.#at] === "!" ? this.#at + 1 : this.#at;
    if (this.text[open] !== "[" || this.depth >= DEEPEST) return false;
    if (this.#close <= open) this.#close = this.#ending("](", open + 1, () => true);
    const close = this.#close;
    if (close < 0 || close === this.#barren) return false;
    const end = closingBracket(this.text, close + 2);
    const href =
      end < 0
        ? ""
        : (
            this.text
              .slice(close + 2, end)
              .trim()
              .split(/\s+["'(]/)[0] ?? ""
          ).replace(/^<|>$/g, "");
    if (!isSafeAddress(href)) {
      this.#barren = close;
      return false;
    }
    const label = this.text.slice(open + 1, close);
    this.#push({ kind: "link", href, spans: label ? this.#inner(label) : [{ kind: "text", text: href }] }, end + 1);
    return true;
  }

  #marked() {
    if (this.depth >= DEEPEST) return false;
    for (const [mark, kind] of MARKS) {
      if (!this.text.startsWith(mark, this.#at)) continue;
      const start = this.#at + mark.length;
      const end = this.#opens(mark, start) ? this.#ending(mark, start, (at) => this.#closes(mark, start, at)) : -1;
      if (end < 0) continue;
      this.#push({ kind, spans: this.#inner(this.text.slice(start, end)) }, end + mark.length);
      return true;
    }
    return false;
  }

  /**
   * @param {string} mark
   * @param {number} start where the marked text would begin
   */
  #opens(mark, start) {
    const before = this.text[this.#at - 1] ?? "";
    // 2*3*4 is a product.
    const isProduct = mark === "*" && /\d/.test(before) && /\d/.test(this.text[start] ?? "");
    const isInWord = (mark[0] === "_" && WORD.test(before)) || isProduct;
    return !isInWord && /\S/.test(this.text[start] ?? "");
  }

  /**
   * @param {string} mark
   * @param {number} start
   * @param {number} at where the ending would be
   */
  #closes(mark, start, at) {
    if (at === start || /\s/.test(this.text[at - 1] ?? "") || this.text[at - 1] === "\\") return false;
    const next = this.text[at + mark.length] ?? "";
    if (next === mark[0] || (mark[0] === "_" && WORD.test(next))) return false;
    return mark.length > 1 || this.text[at - 1] !== mark;
  }

  /**
   * @param {string} mark
   * @param {number} from
   * @param {(at: number) => boolean} fits
   * @returns {number} index of the ending; -1 without one
   */
  #ending(mark, from, fits) {
    if (this.#missing.has(mark)) return -1;
    for (let at = this.text.indexOf(mark, from); at >= 0; at = this.text.indexOf(mark, at + 1)) {
      if (fits(at)) return at;
    }
    this.#missing.add(mark);
    return -1;
  }

  /** @param {string} text */
  #inner(text) {
    return new Reader(text, this.depth + 1).spans();
  }

  /**
   * @param {Span} span
   * @param {number} next where reading goes on
   */
  #push(span, next) {
    this.#flush();
    this.#spans.push(span);
    this.#at = next;
  }

  #flush() {
    if (this.#plain) this.#spans.push({ kind: "text", text: this.#plain });
    this.#plain = "";
  }
}

/**
 * @param {RegExp} pattern
 * @param {string} text
 * @param {number} at
 */
function sticky(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

/**
 * Where the round bracket that was opened before `from` closes; -1 when it does not on this line.
 *
 * @param {string} text
 * @param {number} from
 */
function closingBracket(text, from) {
  let depth = 1;
  // No address is longer; without a limit, many brackets that never close would each read to the end.
  const limit = Math.min(text.length, from + 4000);
  for (let at = from; at < limit && text[at] !== "\n"; at += 1) {
    if (text[at] === "(") depth += 1;
    if (text[at] === ")") depth -= 1;
    if (depth === 0) return at;
  }
  return -1;
}

/**
 * The character of a numeric entity; empty for one that cannot be shown.
 *
 * @param {string | undefined} decimal
 * @param {string | undefined} hexadecimal
 */
function character(decimal, hexadecimal) {
  const code = decimal ? Number.parseInt(decimal, 10) : Number.parseInt(hexadecimal ?? "", 16);
  const isShown = code >= 32 && code <= 0x10ffff && !(code >= 0x7f && code < 0xa0) && !(code >= 0xd800 && code < 0xe000);
  return isShown ? String.fromCodePoint(code) : "";
}

/**
 * An address without the punctuation of the sentence that it ends; a bracket belongs to it if it was opened in it.
 *
 * @param {string} address
 */
function trimmed(address) {
  let end = address.length;
  let surplus = address.split(")").length - address.split("(").length;
  for (; end > 0; end -= 1) {
    const last = address[end - 1] ?? "";
    if (last === ")" && surplus > 0) surplus -= 1;
    else if (!".,:;!?*_~]".includes(last)) break;
  }
  return address.slice(0, end);
}
