/**
 * Earlier messages, as the board has stored them. Of a long conversation the last part is shown, the rest when it is
 * asked for: all at once would keep a phone busy for seconds.
 *
 * @typedef {{role: string, text: string, pictures?: string[], thinking?: string, ending?: string, created?: number | string,
 *   events?: import("../api.js").BoardEvent[], version?: number, versions?: number}} Message
 * @typedef {() => HTMLElement} Maker
 */
import { button } from "../buttons.js";
import { h } from "../dom.js";
import { say } from "../i18n.js";

const PART = 60;
// A few more are no reason for a button.
const NEARLY = 1.5;

/**
 * The part that ends here, after a button for earlier messages.
 *
 * @param {Maker[]} makers
 * @param {number} end
 * @returns {HTMLElement[]}
 */
export function lastOf(makers, end = makers.length) {
  const start = end > PART * NEARLY ? end - PART : 0;
  const nodes = makers.slice(start, end).map((make) => make());
  if (start === 0) return nodes;
  const line = h("div", { class: "earlier" });
  line.append(button("chat.earlier", () => put(line, lastOf(makers, start)), { class: "quiet" }));
  return [line, ...nodes];
}

/**
 * Replace the button by earlier messages; the visible ones do not move.
 *
 * @param {HTMLElement} line
 * @param {HTMLElement[]} nodes
 */
function put(line, nodes) {
  const pane = /** @type {HTMLElement} */ (line.closest(".messages"));
  const below = pane.scrollHeight - pane.scrollTop;
  line.replaceWith(...nodes);
  pane.scrollTop = pane.scrollHeight - below;
  const next = /** @type {HTMLElement | null | undefined} */ (nodes[0]?.querySelector(":scope > button"));
  (next ?? pane).focus({ preventScroll: true });
}

/**
 * A line about what happened to an answer.
 *
 * @param {string} phrase
 */
export function notice(phrase) {
  return h("div", { class: "notice", role: "status" }, h("p", {}, say(phrase)));
}
