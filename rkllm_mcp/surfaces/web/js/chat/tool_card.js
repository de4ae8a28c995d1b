/**
 * A call of a tool as a card: name, server, arguments, how far it is, and what came of it. A long result is folded.
 *
 * @typedef {import("./answer.js").Call} Call
 */
import { h, icon } from "../dom.js";
import { figure, say } from "../i18n.js";

const FOLDED_CHARS = 400;
const SUMMARY_CHARS = 80;

/** @type {Record<string, string>} */
const SYMBOLS = { waiting: "tool", running: "tool", done: "check", failed: "warning", stopped: "stop" };

export class ToolCard {
  #head = h("div", { class: "card-head" });
  #progress = h("div", { class: "card-progress", hidden: true });
  #bar = h("progress");
  #message = h("span", { class: "muted" });
  #result = h("div", { class: "card-result" });
  #hasResult = false;

  /** @param {Call} call */
  constructor(call) {
    this.#progress.append(this.#bar, this.#message);
    this.node = h("section", { class: "card tool" }, this.#head, argumentsOf(call), this.#progress, this.#result);
    this.update(call);
  }

  /** @param {Call} call */
  update(call) {
    const state = stateOf(call);
    this.node.dataset.state = state;
    const seconds = call.result && say("tool.seconds", { seconds: figure(call.result.seconds, 2) });
    this.#head.replaceChildren(
      icon(SYMBOLS[state] ?? "tool"),
      h(
        "div",
        { class: "card-name" },
        h("strong", {}, call.name),
        call.server && h("span", { class: "muted" }, call.server),
        h("span", { class: "card-state" }, say(`tool.${state}`), seconds ? " · " : "", seconds ?? ""),
      ),
    );
    this.#showProgress(call);
    // Of past calls only what went wrong is kept.
    if (call.result?.text && !this.#hasResult) this.#showResult(call.result);
  }

  /** @param {Call} call */
  #showProgress(call) {
    const { progress } = call;
    this.#progress.hidden = call.isOver || !progress;
    if (!progress) return;
    this.#bar.setAttribute("aria-label", call.name);
    if (progress.total) {
      this.#bar.max = progress.total;
      this.#bar.value = progress.progress;
    } else {
      this.#bar.removeAttribute("value");
    }
    const count = progress.total
      ? `${figure(progress.progress, 1)} / ${figure(progress.total, 1)}`
      : figure(progress.progress, 1);
    this.#message.textContent = [count, progress.message].filter(Boolean).join(" · ");
  }

  /** @param {import("./answer.js").Result} result */
  #showResult(result) {
    this.#hasResult = true;
    const text = h("pre", { tabindex: 0 }, result.text);
    const cut = result.truncated && h("p", { class: "muted" }, say("tool.truncated"));
    const isShort = result.text.length <= FOLDED_CHARS;
    const label = say(result.is_error ? "tool.error" : "tool.result", { count: result.text.length });
    this.#result.append(h("details", { open: isShort || result.is_error }, h("summary", {}, label), text, cut));
  }
}

/**
 * @param {Call} call
 * @returns {"waiting" | "running" | "done" | "failed" | "stopped"}
 */
function stateOf(call) {
  if (call.result) return call.result.is_error ? "failed" : "done";
  if (call.isOver) return "stopped";
  return call.isRunning ? "running" : "waiting";
}

/** @param {Call} call */
function argumentsOf(call) {
  if (Object.keys(call.arguments).length === 0) return h("p", { class: "muted" }, say("tool.no_arguments"));
  return argumentsView(call.arguments, call.repaired);
}

/**
 * Arguments on one line, and in full when it is opened.
 *
 * @param {Record<string, unknown>} given
 * @param {boolean} [isRepaired]
 */
export function argumentsView(given, isRepaired = false) {
  const line = Object.entries(given).map(
    ([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  const short = line.join(", ");
  const summary = short.length > SUMMARY_CHARS ? `${short.slice(0, SUMMARY_CHARS)}…` : short;
  return h(
    "details",
    { class: "arguments" },
    h(
      "summary",
      {},
      h("span", { class: "visually-hidden" }, say("tool.arguments"), ": "),
      h("span", { class: "one-line" }, summary),
    ),
    h("pre", { tabindex: 0 }, JSON.stringify(given, null, 2)),
    isRepaired && h("p", { class: "muted" }, say("tool.repaired")),
  );
}
