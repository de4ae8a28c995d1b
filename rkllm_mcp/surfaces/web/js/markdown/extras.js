/**
 * Colours for code and signs for formulas. A worker makes them when they are first needed; until it has, and without it,
 * both stay text.
 *
 * @typedef {import("./libraries.js").Tree} Tree
 * @typedef {import("./libraries.js").Wanted} Wanted
 */
import { h, nodeOf } from "../dom.js";
import { workerAddress } from "../workers.js";

const LONGEST_CODE = 50_000;
const LONGEST_FORMULA = 10_000;
const IDLE_MS = 300;
// So many tokens get their colours at a time: the page stays free for keys.
const STEP = 100;
const KEPT_FORMULAS = 500;
const FONTS = /** @type {const} */ (["p", "h3", "strong", "em", "code"]);
const LETTERS = "a 文字です。🙂";
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
/** @type {{worker: Worker | null, asked: number}} */
const state = { worker: null, asked: 0 };
/** @type {Map<number, (trees: Tree[] | null) => void>} */
const waiting = new Map();
/** @type {Map<string, Tree[]>} formulas that were made: a row that is drawn anew shows them at once */
const made = new Map();

/**
 * @param {Wanted} wanted
 * @returns {Promise<Tree[] | null>} null when it cannot be made
 */
function madeOf(wanted) {
  if (!state.worker) {
    state.worker = new Worker(workerAddress("libraries"), { type: "module" });
    state.worker.addEventListener("message", ({ data: { id, trees } }) => {
      waiting.get(id)?.(trees);
      waiting.delete(id);
    });
  }
  const id = state.asked++;
  state.worker.postMessage({ id, wanted });
  return new Promise((resolve) => waiting.set(id, resolve));
}

/**
 * Colour complete code in idle time.
 *
 * @param {HTMLElement} code
 * @param {string} language as the answer names it
 */
export async function colour(code, language) {
  const said = language.toLowerCase();
  const name = NAMES[said] ?? said;
  const text = code.textContent ?? "";
  if (!KNOWN.has(name) || text.length > LONGEST_CODE) return;
  const trees = (await madeOf({ kind: "code", text, language: name })) ?? [];
  for (let at = 0; at < trees.length; at += STEP) {
    await idle();
    const rest = code.lastChild;
    if (!code.isConnected || !(rest instanceof Text)) return;
    const nodes = trees.slice(at, at + STEP).map(nodeOf);
    rest.deleteData(0, nodes.reduce((length, node) => length + (node.textContent ?? "").length, 0));
    rest.before(...nodes);
  }
}

/**
 * Have the fonts of answers loaded before one comes, and the dictionary of where Japanese lines break: a first paragraph in
 * another writing than the page's takes longer than a frame without them.
 */
export async function warmFonts() {
  const place = h("div", { class: "visually-hidden", "aria-hidden": "true" });
  document.body.append(place);
  for (const tag of FONTS) {
    await idle();
    place.replaceChildren(h(tag, { class: "as-written" }, LETTERS));
    // Asking for its size lays it out.
    void place.scrollHeight;
  }
  place.remove();
}

/** Wait until the page has nothing better to do. */
function idle() {
  return new Promise((resolve) => {
    if (typeof requestIdleCallback === "function") requestIdleCallback(resolve, { timeout: IDLE_MS });
    else setTimeout(resolve);
  });
}

/**
 * A formula: its text at first, its signs as soon as they can be made.
 *
 * @param {string} text in TeX
 * @param {boolean} isDisplay a formula on its own line
 */
export function formula(text, isDisplay) {
  const node = h("span", { class: isDisplay ? "math display" : "math" }, text);
  if (text.length > LONGEST_FORMULA) return node;
  const name = `${isDisplay} ${text}`;
  const draw = (/** @type {Tree[] | null | undefined} */ trees) => trees && node.replaceChildren(...trees.map(nodeOf));
  if (made.has(name)) draw(made.get(name));
  else {
    void madeOf({ kind: "math", text, isDisplay }).then((trees) => {
      if (made.size >= KEPT_FORMULAS) made.clear();
      if (trees) made.set(name, trees);
      draw(trees);
    });
  }
  return node;
}
