/**
 * A call of a tool as a card: its question to the person, its arguments, how far it is, and what came of it. When it is
 * over it folds to one line.
 *
 * @typedef {import("./answer.js").Call} Call
 */
import { h, icon, joined } from "../dom.js";
import { figure, say } from "../i18n.js";
import { titleView } from "../tools.js";
import { argumentsView, shortOf } from "./arguments.js";
import { QuestionCard, sayLate } from "./questions.js";

/** @type {Record<string, string>} */
const SYMBOLS = { waiting: "tool", asking: "question", running: "tool", done: "check", failed: "warning" };
const REFUSALS = new Set(["deny", "never"]);
const RULINGS = new Set(["once", "conversation", "always", "deny", "never"]);

export class ToolCard {
  #summary = h("summary", { class: "card-head" });
  #asked = h("div", { class: "card-asked" });
  #progress = h("div", { class: "card-progress", hidden: true });
  #bar = h("progress");
  #message = h("span", { class: "muted" });
  #result = h("div", { class: "card-result" });
  #hasResult = false;
  /** @type {QuestionCard | null} */
  #question = null;

  /** @param {Call} call */
  constructor(call) {
    this.#progress.append(this.#bar, this.#message);
    this.#details = h("details", {}, this.#summary, argumentsView(call.arguments, call.repaired), this.#result);
    this.node = h("section", { class: "card tool" }, this.#details, this.#asked, this.#progress);
    this.update(call);
  }

  #details;

  /** Whether it waits for a decision. */
  get isOpen() {
    return this.#question?.isOpen ?? false;
  }

  /** @param {Call} call */
  update(call) {
    if (call.question && !this.#question) this.#ask(call.question);
    if (call.isOver || call.isRunning || call.answered) this.#question?.close(call.answered);
    const state = stateOf(call, this.isOpen);
    const seconds = call.result && say("tool.seconds", { seconds: figure(call.result.seconds, 2) });
    this.#summary.replaceChildren(
      icon(SYMBOLS[state] ?? "stop"),
      h(
        "span",
        { class: "card-name" },
        titleView(call.server ?? "", call.name),
        h("span", { class: "muted one-line card-short" }, shortOf(call.arguments)),
        h("span", { class: "card-state" }, refusalOf(call) ?? joined([say(`tool.${state}`), seconds])),
      ),
    );
    if (state !== this.node.dataset.state && (state === "asking" || state === "failed")) this.#details.open = true;
    if (this.node.dataset.state === "asking" && state !== "failed" && state !== "asking") this.#details.open = false;
    this.node.dataset.state = state;
    this.#showProgress(call);
    if (call.result && !this.#hasResult) this.#showResult(call.result, call.answered);
  }

  /** @param {import("../api.js").BoardEvent} event */
  #ask(event) {
    this.#question = new QuestionCard(event, true);
    this.#asked.append(this.#question.node);
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

  /**
   * @param {import("./answer.js").Result} result
   * @param {import("./answer.js").Answered | null} answered
   */
  #showResult(result, answered) {
    this.#hasResult = true;
    const isRefused = answered?.action === "late" || REFUSALS.has(result.ruling);
    if (isRefused || RULINGS.has(result.ruling)) this.#asked.remove();
    // After a refusal the result is a sentence for the model.
    if (isRefused) return;
    if (RULINGS.has(result.ruling)) this.#result.append(h("p", { class: "card-note" }, say(`approval.said.${result.ruling}`)));
    if (result.omitted) this.#result.append(h("p", { class: "muted small" }, say("tool.omitted")));
    if (!result.text) return;
    const label = say(result.is_error ? "tool.error" : "tool.result", { count: result.text.length });
    const cut = result.truncated && h("p", { class: "muted" }, say("tool.truncated"));
    this.#result.append(h("p", { class: "muted small" }, label), h("pre", { tabindex: 0 }, result.text), cut || "");
  }
}

/**
 * Who refused a call; null if it was not refused.
 *
 * @param {Call} call
 */
function refusalOf({ result, answered }) {
  if (!result) return null;
  if (answered?.action === "late") return sayLate(answered.seconds);
  return REFUSALS.has(result.ruling) ? say(`approval.said.${result.ruling}`) : null;
}

/**
 * @param {Call} call
 * @param {boolean} isAsking
 * @returns {"waiting" | "asking" | "running" | "done" | "failed" | "refused" | "stopped"}
 */
function stateOf(call, isAsking) {
  if (isAsking) return "asking";
  if (refusalOf(call)) return "refused";
  if (call.result && call.result.ruling !== "stopped") return call.result.is_error ? "failed" : "done";
  if (call.isOver) return "stopped";
  return call.isRunning ? "running" : "waiting";
}
