/**
 * Blocks become nodes, and nodes that are live are changed in place: an open code block gets only its new letters, an
 * open table its new rows. Everything goes through text nodes.
 *
 * @typedef {import("./blocks.js").Block} Block
 * @typedef {import("./inline.js").Span} Span
 * @typedef {{list: HTMLElement, indent: number, content: number, isOrdered: boolean}} Level
 * @typedef {{block: Block, node: HTMLElement, before: readonly Level[], after: readonly Level[],
 *   outline: readonly number[]}} Shown the lists that were open before and after it, and the headings above it
 */
import { h } from "../dom.js";
import { labelled } from "../i18n.js";
import { BlockReader, MATH, blocks } from "./blocks.js";
import { colour, formula } from "./extras.js";
import { inline } from "./inline.js";

// Up to here every change is drawn; longer open paragraphs wait until they have grown by a part, so that the whole costs
// no more than a fixed multiple of its length.
const SHORT = 2000;
const GROWTH = 1 / 32;
const DEEPEST_QUOTE = 4;
// The last blocks change, and the view follows their end; those above are not drawn while they are out of sight.
const NEAR_END = 3;
// The end of an answer has enough to draw.
const SETTLED_MS = 500;

/** @type {WeakMap<Element, Span[]>} what an element shows */
const drawn = new WeakMap();

/** The Markdown of one answer in one element. */
export class MarkdownView {
  #reader = new BlockReader();
  /** @type {Shown[]} */
  #live = [];
  /** @type {readonly Level[]} the lists that are open, outermost first */
  #levels = [];
  /** @type {readonly number[]} the levels of the headings above the next block, as written */
  #outline = [];
  #drawn = 0;
  #waiting = "";

  /**
   * @param {HTMLElement} root
   * @param {(code: () => string) => HTMLElement} [tools] the controls above a code block, such as a button that copies it
   * @param {number} [depth] the number of quotations around it
   */
  constructor(root, tools, depth = 0) {
    this.root = root;
    this.tools = tools;
    this.depth = depth;
  }

  /**
   * The next piece of text. It may be drawn with a later one.
   *
   * @param {string} text
   */
  write(text) {
    this.#waiting += text;
    if (!text.includes("\n") && !isWorthDrawing(this.#drawn, this.#waiting.length)) return;
    this.draw();
  }

  /** Draw the text that waits. */
  draw() {
    const { settled, live } = this.#reader.feed(this.#waiting);
    this.#waiting = "";
    this.#show(settled, live);
    const open = live.at(-1);
    // Code of any length grows in place, so only text that is parsed again each time counts.
    this.#drawn = open && "text" in open && open.kind !== "code" ? open.text.length : 0;
  }

  /** No more text comes. */
  end() {
    this.draw();
    this.#show(this.#reader.finish(), []);
    setTimeout(() => this.#settle(0), SETTLED_MS);
  }

  /**
   * @param {Block[]} settled
   * @param {Block[]} live
   */
  #show(settled, live) {
    const before = this.#live;
    this.#live = [];
    const wanted = [...settled, ...live];
    for (const [place, block] of wanted.entries()) {
      const shown = this.#replace(before, place, block);
      if (place >= settled.length) this.#live.push(shown);
      else this.#finish(shown);
    }
    this.#remove(before.splice(wanted.length));
    this.#settle(NEAR_END);
  }

  /**
   * Mark all blocks but the last ones: its own mark changes the style of one element, a selector that counts from
   * the end that of all.
   *
   * @param {number} kept the number of blocks that are not marked
   */
  #settle(kept) {
    const { children } = this.root;
    for (let place = children.length - kept - 1; place >= 0; place--) {
      const block = /** @type {Element} */ (children[place]);
      if (block.classList.contains("settled")) break;
      block.classList.add("settled");
    }
  }

  /**
   * Give a complete block its colours, its signs and its copy button.
   *
   * @param {Shown} shown
   */
  #finish({ block, node }) {
    if (block.kind === "code" && block.language === MATH) node.replaceWith(h("p", {}, formula(block.text, true)));
    else if (block.kind === "code") colour(/** @type {HTMLElement} */ (node.querySelector("code")), block.language);
    else if (block.kind === "table" && this.tools) node.append(this.tools(() => cellsOf(node)));
  }

  /**
   * @param {Shown[]} before the live blocks; those that do not fit any more are removed
   * @param {number} place
   * @param {Block} block
   * @returns {Shown}
   */
  #replace(before, place, block) {
    const old = before[place];
    if (old && this.#update(old, block)) {
      this.#levels = old.after;
      return { ...old, block };
    }
    this.#remove(before.splice(place));
    const levels = this.#levels;
    const outline = this.#outline;
    const node = this.#add(block);
    return { block, node, before: levels, after: this.#levels, outline };
  }

  /** @param {Shown[]} gone the last ones of those that are shown */
  #remove(gone) {
    for (const { block, node } of gone) {
      const list = node.parentElement;
      node.remove();
      if (block.kind === "item" && list?.childElementCount === 0) list.remove();
    }
    this.#levels = gone[0]?.before ?? this.#levels;
    this.#outline = gone[0]?.outline ?? this.#outline;
  }

  /**
   * Whether the node could be brought up to date.
   *
   * @param {Shown} old
   * @param {Block} block
   */
  #update(old, block) {
    if (old.block === block) return true;
    if (old.block.kind === "item" && block.kind === "item") return updateItem(old, block);
    if (old.block.kind === "code" && block.kind === "code") return updateCode(old, block);
    if (old.block.kind === "table" && block.kind === "table") return updateTable(old, block);
    if (old.block.kind !== "paragraph" || block.kind !== "paragraph" || old.block.indent !== block.indent) return false;
    drawSpans(old.node, block.text);
    return true;
  }

  /** @param {Block} block */
  #add(block) {
    if (block.kind === "item") return this.#addItem(block);
    const indent = "indent" in block ? block.indent : 0;
    this.#levels = this.#levels.filter((level) => isInside(indent, level));
    const node = this.#node(block);
    this.#place().append(node);
    return node;
  }

  /** @param {import("./blocks.js").Item} item */
  #addItem(item) {
    this.#levels = this.#levels.filter((level, depth) => depth === 0 || item.indent >= level.indent);
    const level = this.#levels.at(-1);
    if (!level || isInside(item.indent, level) || level.isOrdered !== item.isOrdered) {
      if (level && !isInside(item.indent, level)) this.#levels = this.#levels.slice(0, -1);
      const list = h(item.isOrdered ? "ol" : "ul", {
        dir: "auto",
        start: item.isOrdered && item.number !== 1 && item.number,
      });
      this.#place().append(list);
      this.#levels = [...this.#levels, { list, indent: item.indent, content: item.content, isOrdered: item.isOrdered }];
    }
    const node = h("li", { class: item.isDone !== null && "task" }, sign(item));
    drawSpans(node, item.text);
    this.#levels.at(-1)?.list.append(node);
    return node;
  }

  /** Where the next block goes: the last item of the innermost list that is open. */
  #place() {
    return this.#levels.at(-1)?.list.lastElementChild ?? this.root;
  }

  /**
   * @param {Exclude<Block, {kind: "item"}>} block
   * @returns {HTMLElement}
   */
  #node(block) {
    switch (block.kind) {
      case "heading":
        return this.#heading(block.level, spanNodes(inline(block.text)));
      case "paragraph":
        return drawSpans(h("p", { dir: "auto" }), block.text);
      case "rule":
        return h("hr");
      case "quote":
        return this.#quote(block.text);
      case "code":
        return this.#code(block);
      case "table":
        return tableNode(block);
    }
  }

  /**
   * A heading is one level below the one that it belongs to; the page has its own first and second. Models begin with
   * the third and leave levels out: a reader who goes from heading to heading would look for the ones between.
   *
   * @param {number} level as it was written
   * @param {Node[]} content
   */
  #heading(level, content) {
    this.#outline = [...this.#outline.filter((above) => above < level), level];
    return h(/** @type {"h3"} */ (`h${Math.min(6, this.#outline.length + 2)}`), { dir: "auto" }, content);
  }

  /** @param {string} text */
  #quote(text) {
    const node = h("blockquote");
    if (this.depth >= DEEPEST_QUOTE) {
      node.append(text);
    } else {
      const inner = new MarkdownView(node, this.tools, this.depth + 1);
      inner.#show(blocks(text), []);
    }
    return node;
  }

  /** @param {import("./blocks.js").Code} block */
  #code(block) {
    const code = h("code", {}, block.text);
    const language = block.language === MATH ? "TeX" : block.language;
    const head = h("div", { class: "code-head" }, h("span", { class: "code-language" }, language));
    if (this.tools) head.append(this.tools(() => code.textContent ?? ""));
    // A block that is wider than the screen is scrolled, by keys as well.
    return h("div", { class: "code" }, head, h("pre", { tabindex: 0 }, code));
  }
}

/**
 * @param {number} drawn how long the open paragraph was when it was drawn last, characters
 * @param {number} added how much has come since
 */
export function isWorthDrawing(drawn, added) {
  return drawn < SHORT || added >= drawn * GROWTH;
}

/**
 * Whether a line that is indented so far belongs to the last item of a list. Models indent by two below "1." as well.
 *
 * @param {number} indent
 * @param {Level} level
 */
function isInside(indent, level) {
  return indent >= Math.min(level.content, level.indent + 2);
}

/**
 * @param {Shown} old
 * @param {import("./blocks.js").Item} item
 */
function updateItem(old, item) {
  const before = /** @type {import("./blocks.js").Item} */ (old.block);
  if (before.isOrdered !== item.isOrdered || before.indent !== item.indent || before.isDone !== item.isDone)
    return false;
  old.node.querySelector("input")?.setAttribute("aria-label", item.text);
  drawSpans(old.node, item.text);
  return true;
}

/**
 * The checkbox before an item of a list of tasks.
 *
 * @param {import("./blocks.js").Item} item
 */
function sign(item) {
  const { isDone, text } = item;
  return isDone !== null && [h("input", { type: "checkbox", disabled: true, checked: isDone, "aria-label": text }), " "];
}

/**
 * @param {Shown} old
 * @param {import("./blocks.js").Code} block
 */
function updateCode(old, block) {
  const before = /** @type {import("./blocks.js").Code} */ (old.block);
  if (before.language !== block.language) return false;
  const code = /** @type {HTMLElement} */ (old.node.querySelector("code"));
  const text = code.firstChild instanceof Text ? code.firstChild : code.appendChild(new Text());
  // All but the end of the line under way is the same: an open block only grows.
  const kept = Math.max(0, before.text.length - 1);
  text.replaceData(kept, text.length - kept, block.text.slice(kept));
  return true;
}

/** @param {import("./blocks.js").Table} block */
function tableNode(block) {
  const head = h("thead", {}, rowNode(block.header, block.align, "th"));
  const body = h(
    "tbody",
    {},
    block.rows.map((row) => rowNode(row, block.align, "td")),
  );
  const pane = h(
    "div",
    { class: "table", tabindex: 0, role: "group", ...labelled("markdown.table") },
    h("table", {}, head, body),
  );
  return h("div", {}, pane);
}

/**
 * A table as lines of cells with tabs between, which sheets take apart.
 *
 * @param {HTMLElement} node
 */
function cellsOf(node) {
  const rows = [...node.querySelectorAll("tr")];
  return rows.map((row) => [...row.cells].map((cell) => (cell.textContent ?? "").replaceAll(/\s+/g, " ")).join("\t")).join("\n");
}

/**
 * @param {Shown} old
 * @param {import("./blocks.js").Table} block
 */
function updateTable(old, block) {
  const before = /** @type {import("./blocks.js").Table} */ (old.block);
  const body = old.node.querySelector("tbody");
  if (!body || before.header.length !== block.header.length) return false;
  const kept = Math.max(0, Math.min(before.rows.length, block.rows.length) - 1);
  while (body.rows.length > kept) body.deleteRow(-1);
  body.append(...block.rows.slice(kept).map((row) => rowNode(row, block.align, "td")));
  return true;
}

/**
 * @param {string[]} row
 * @param {string[]} align
 * @param {"th" | "td"} tag
 */
function rowNode(row, align, tag) {
  const scope = tag === "th" && "col";
  return h(
    "tr",
    {},
    align.map((side, place) =>
      h(tag, { scope, dir: "auto", class: `align-${side}` }, spanNodes(inline(row[place] ?? ""))),
    ),
  );
}

/**
 * Show a text at the end of an element, which shows nothing there or what the text began with: what stays the same keeps
 * its nodes.
 *
 * @template {HTMLElement} T
 * @param {T} node
 * @param {string} text
 */
function drawSpans(node, text) {
  const before = drawn.get(node) ?? [];
  const spans = inline(text);
  let same = 0;
  while (same < before.length && JSON.stringify(before[same]) === JSON.stringify(spans[same])) same++;
  const [last, longer] = [before[same], spans[same]];
  if (same === before.length - 1 && last?.kind === "text" && longer?.kind === "text") {
    /** @type {Text} */ (node.lastChild).data = longer.text;
    same++;
  }
  for (let gone = before.length; gone > same; gone--) node.lastChild?.remove();
  node.append(...spanNodes(spans.slice(same)));
  drawn.set(node, spans);
  return node;
}

/**
 * @param {Span[]} spans
 * @returns {Node[]}
 */
function spanNodes(spans) {
  return spans.map((span) => {
    switch (span.kind) {
      case "text":
        return new Text(span.text);
      case "code":
        return h("code", {}, span.text);
      case "break":
        return h("br");
      case "math":
        return formula(span.text, span.isDisplay);
      case "link":
        return h(
          "a",
          { href: span.href, target: "_blank", rel: "noopener noreferrer nofollow" },
          spanNodes(span.spans),
        );
      default:
        return h(span.kind, {}, spanNodes(span.spans));
    }
  });
}
