/** The arguments of a call: on one line, and as names and values. */
import { h } from "../dom.js";
import { say } from "../i18n.js";

const SUMMARY_CHARS = 80;

/** @param {unknown} value */
function written(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * Arguments on one line, cut.
 *
 * @param {Record<string, unknown>} given
 */
export function shortOf(given) {
  const short = Object.entries(given)
    .map(([name, value]) => `${name}: ${written(value)}`)
    .join(", ");
  return short.length > SUMMARY_CHARS ? `${short.slice(0, SUMMARY_CHARS)}…` : short;
}

/**
 * Arguments as names and values.
 *
 * @param {Record<string, unknown>} given
 * @param {boolean} [isRepaired]
 */
export function argumentsView(given, isRepaired = false) {
  const pairs = Object.entries(given);
  if (pairs.length === 0) return h("p", { class: "muted" }, say("tool.no_arguments"));
  return h(
    "div",
    { class: "arguments" },
    h(
      "dl",
      {},
      pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, written(value)))),
    ),
    isRepaired && h("p", { class: "muted" }, say("tool.repaired")),
  );
}
