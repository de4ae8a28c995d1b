/** A line at the lower edge, for some seconds; most offer an action. */
import { button } from "./buttons.js";
import { byId, fill } from "./dom.js";
import { say } from "./i18n.js";

const SHOWN_MS = 8000;
/** @type {{over: () => void}} */
const now = { over: () => undefined };

/**
 * @param {string} phrase
 * @param {import("./i18n.js").Values} [values] of the phrase
 */
export function showLine(phrase, values = {}) {
  show(say(phrase, values), [], () => undefined);
}

/**
 * @param {string} phrase
 * @param {string} action what the button says
 * @param {() => void} act
 * @param {() => void} [over] when it is gone without the button
 * @param {Record<string, string>} [values] of the phrase
 */
export function showToast(phrase, action, act, over = () => undefined, values = {}) {
  const end = show(say(phrase, values), [button(action, () => end(act))], over);
}

/**
 * @param {HTMLElement} words
 * @param {HTMLElement[]} actions
 * @param {() => void} over when it is gone by itself
 * @returns {(work: () => void) => void} takes it away and does that
 */
function show(words, actions, over) {
  now.over();
  const end = (/** @type {() => void} */ work) => {
    clearTimeout(timer);
    now.over = () => undefined;
    byId("toast").hidden = true;
    work();
  };
  const timer = setTimeout(() => end(over), SHOWN_MS);
  now.over = () => end(over);
  fill(byId("toast"), words, actions);
  byId("toast").hidden = false;
  return end;
}
