/**
 * Colours for code and signs for formulas, made in a worker: the page takes keys and draws meanwhile. The libraries are
 * loaded when they are first needed. What comes back are trees of which the page makes nodes, never markup.
 *
 * @typedef {string | Made} Tree
 * @typedef {{kind: "code" | "math", text: string, language?: string, isDisplay?: boolean}} Wanted
 */

/** @type {Record<string, string>} the colour of a kind of token */
const COLOURS = {
  keyword: "keyword", literal: "keyword", built_in: "keyword", type: "keyword", section: "keyword", deletion: "keyword",
  string: "string", regexp: "string", char: "string", addition: "string", number: "number", symbol: "number",
  title: "name", attr: "name", name: "name", attribute: "name", property: "name", "selector-tag": "name",
  "selector-class": "name", variable: "name", comment: "comment", quote: "comment", meta: "comment",
};

/** The part of an element that a library needs. */
export class Made {
  /** @type {Record<string, string>} */
  attributes = {};
  /** @type {Record<string, string>} */
  style = {};
  /** @type {Tree[]} */
  children = [];

  /**
   * @param {string} tag
   * @param {string} [space] of names; empty for HTML
   */
  constructor(tag, space = "") {
    this.tag = tag;
    this.space = space;
  }

  /** @param {string} names */
  set className(names) {
    this.attributes["class"] = names;
  }

  get tagName() {
    return this.tag;
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  /** @param {Tree} child */
  appendChild(child) {
    this.children.push(child);
  }
}

// Temml makes its nodes with these.
globalThis.document = /** @type {any} */ ({
  compatMode: "CSS1Compat",
  createElement: (/** @type {string} */ tag) => new Made(tag),
  createElementNS: (/** @type {string} */ space, /** @type {string} */ tag) => new Made(tag, space),
  createDocumentFragment: () => new Made(""),
  createTextNode: String,
});

/**
 * @param {Wanted} wanted
 * @returns {Promise<Tree[]>}
 */
async function coloured({ text, language = "" }) {
  const { default: highlight } = await import("../vendor/highlight/core.min.js");
  if (!highlight.getLanguage(language)) {
    const grammar = await import(`../vendor/highlight/languages/${language}.min.js`);
    highlight.registerLanguage(language, grammar.default);
  }
  // The tree of tokens is not documented; a test holds the version that is vendored to it.
  return highlight.highlight(text, { language, ignoreIllegals: true })._emitter.root.children.map(tokenTree);
}

/**
 * @param {string | {scope?: string, children: any[]}} token
 * @returns {Tree}
 */
function tokenTree(token) {
  if (typeof token === "string") return token;
  const made = new Made("span");
  const kind = COLOURS[(token.scope ?? "").split(".")[0] ?? ""];
  if (kind) made.className = `code-${kind}`;
  made.children = token.children.map(tokenTree);
  return made;
}

/**
 * @param {Wanted} wanted
 * @returns {Promise<Tree[]>}
 */
async function set({ text, isDisplay }) {
  const { default: temml } = await import("../vendor/temml/temml.js");
  const inside = new Made("span");
  temml.render(text, inside, { displayMode: isDisplay, throwOnError: true });
  return inside.children;
}

addEventListener("message", async ({ data }) => {
  const make = data.wanted.kind === "math" ? set : coloured;
  // Without the library the text stays unchanged, and so does text that is not a formula.
  postMessage({ id: data.id, trees: await make(data.wanted).catch(() => null) });
});
