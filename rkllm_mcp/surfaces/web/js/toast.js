/** A line at the lower edge that names an action and can undo it, for some seconds. */
import { button } from "./buttons.js";
import { byId, fill } from "./dom.js";
import { say } from "./i18n.js";

const SHOWN_MS = 8000;
/** @type {{over: () => void}} */
const now = { over: () => undefined };

/**
 * @param {string} phrase
 * @param {string} action what the button says
 * @param {() => void} act
 * @param {() => void} [over] when it is gone without the button
 * @param {Record<string, string>} [values] of the phrase
 */
export function showToast(phrase, action, act, over = () => undefined, values = {}) {
  now.over();
  const place = byId("toast");
  const end = (/** @type {() => void} */ work) => {
    clearTimeout(timer);
    now.over = () => undefined;
    place.hidden = true;
    work();
  };
  const timer = setTimeout(() => end(over), SHOWN_MS);
  now.over = () => end(over);
  fill(place, say(phrase, values), button(action, () => end(act)));
  place.hidden = false;
}
