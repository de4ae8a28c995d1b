/**
 * Colours for code and signs for formulas. The libraries are loaded when they are first needed; without them, and while
 * they are on their way, both stay text. Nodes are made from what the libraries return, never markup.
 */
import { h } from "../dom.js";

const LONGEST_CODE = 50_000;
const LONGEST_FORMULA = 10_000;
const IDLE_MS = 300;
/** @type {Record<string, string>} */
const NAMES = {
  sh: "bash", shell: "bash", zsh: "bash", console: "bash", h: "c", "c++": "cpp", cc: "cpp", hpp: "cpp", golang: "go",
  toml: "ini", js: "javascript", jsx: "javascript", mjs: "javascript", md: "markdown", py: "python", python3: "python",
  rs: "rust", ts: "typescript", tsx: "typescript", html: "xml", svg: "xml", yml: "yaml", docker: "dockerfile",
  patch: "diff", jsonc: "json",
};
const KNOWN = new Set(
  "bash c cpp css diff dockerfile go ini java javascript json markdown python rust sql typescript xml yaml".split(" "),
);
/** @type {Record<string, string>} the colour of a kind of token */
const COLOURS = {
  keyword: "keyword", literal: "keyword", built_in: "keyword", type: "keyword", section: "keyword", deletion: "keyword",
  string: "string", regexp: "string", char: "string", addition: "string", number: "number", symbol: "number",
  title: "name", attr: "name", name: "name", attribute: "name", property: "name", "selector-tag": "name",
  "selector-class": "name", variable: "name", comment: "comment", quote: "comment", meta: "comment",
};
/** @type {{highlight: Promise<any> | null, temml: any, loading: Promise<void> | null}} */
const libraries = { highlight: null, temml: null, loading: null };
/** @type {Set<string>} */
const registered = new Set();

/**
 * Colour code that is complete, when there is time for it.
 *
 * @param {HTMLElement} code
 * @param {string} language as the answer names it
 */
export function colour(code, language) {
  const said = language.toLowerCase();
  const name = NAMES[said] ?? said;
  const text = code.textContent ?? "";
  if (!KNOWN.has(name) || text.length > LONGEST_CODE) return;
  const work = () => void coloured(text, name).then((nodes) => code.isConnected && code.replaceChildren(...nodes), ignore);
  if (typeof requestIdleCallback === "function") requestIdleCallback(work, { timeout: IDLE_MS });
  else setTimeout(work);
}

/**
 * @param {string} text
 * @param {string} language
 * @returns {Promise<Node[]>}
 */
async function coloured(text, language) {
  libraries.highlight ??= import("../vendor/highlight/core.min.js");
  const { default: highlight } = await libraries.highlight;
  if (!registered.has(language)) {
    const grammar = await import(`../vendor/highlight/languages/${language}.min.js`);
    highlight.registerLanguage(language, grammar.default);
    registered.add(language);
    // The grammar is compiled by its first use. That takes as long as colouring, and is a task of its own.
    highlight.highlight("", { language });
    await pause();
  }
  // The tree of tokens is not documented; a test holds the version that is vendored to it.
  return nodesOf(highlight.highlight(text, { language, ignoreIllegals: true })._emitter.root.children);
}

/**
 * @param {(string | {scope?: string, children: any[]})[]} tokens
 * @returns {Node[]}
 */
function nodesOf(tokens) {
  return tokens.map((token) => {
    if (typeof token === "string") return new Text(token);
    const kind = COLOURS[(token.scope ?? "").split(".")[0] ?? ""];
    return h("span", { class: kind && `code-${kind}` }, nodesOf(token.children));
  });
}

/**
 * A formula: its text at first, its signs as soon as they can be made.
 *
 * @param {string} text in TeX
 * @param {boolean} isDisplay it stands by itself
 */
export function formula(text, isDisplay) {
  const node = h("span", { class: isDisplay ? "math display" : "math" }, text);
  if (text.length > LONGEST_FORMULA) return node;
  const draw = () => {
    try {
      const inside = h("span");
      libraries.temml.render(text, inside, { displayMode: isDisplay, throwOnError: true });
      node.replaceChildren(...inside.childNodes);
    } catch {
      // What is no formula stays what was written.
      node.replaceChildren(text);
    }
  };
  if (libraries.temml) draw();
  else {
    libraries.loading ??= import("../vendor/temml/temml.js").then(async (module) => {
      await pause();
      libraries.temml = module.default;
    });
    libraries.loading.then(draw, ignore);
  }
  return node;
}

/** Give the page time for a key or a frame: what comes next is a task of its own. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

function ignore() {
  // Without the library it stays text.
}
