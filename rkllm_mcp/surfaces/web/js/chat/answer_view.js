/**
 * An answer on the page while it is made. Text is drawn once per frame, however many tokens come; what is said aloud goes
 * to the announcer in sentences.
 *
 * @typedef {import("./answer.js").Segment} Segment
 * @typedef {import("../api.js").Api} Api
 */
import { copyButton } from "../buttons.js";
import { fill, h, icon } from "../dom.js";
import { figure, say, t } from "../i18n.js";
import { MarkdownView } from "../markdown/view.js";
import { announce } from "./announcer.js";
import { Answer, bare } from "./answer.js";
import { QuestionCard } from "./questions.js";
import { Sentences } from "./sentences.js";
import { ToolCard } from "./tool_card.js";

const SECOND_MS = 1000;
/** @type {Record<string, string>} */
const ENDINGS = {
  round_limit: "end.round_limit",
  token_limit: "end.token_limit",
  cancelled: "end.cancelled",
  failed: "end.failed",
  interrupted: "end.interrupted",
};

/** @typedef {{update: (segment: any) => void, end?: () => void, node: HTMLElement, readonly isOpen?: boolean}} View */

export class AnswerView {
  answer = new Answer();
  /** @type {Map<Segment, View>} */
  #views = new Map();
  /** @type {Set<Segment>} */
  #changed = new Set();
  #parts = h("div", { class: "parts" });
  #line = h("p", { class: "waiting-line" });
  #foot = h("footer", { class: "message-foot" });
  #frame = 0;
  #sentences = new Sentences();
  #started = performance.now();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #clock;

  /** @param {Api} api */
  constructor(api) {
    this.api = api;
    const label = h("h2", { class: "visually-hidden" }, say("chat.answer"));
    this.node = h(
      "article",
      { class: "message assistant", "aria-busy": "true" },
      label,
      this.#parts,
      this.#line,
      this.#foot,
    );
    this.#clock = setInterval(() => this.#wait(), SECOND_MS);
    this.#wait();
  }

  /** @param {import("../api.js").BoardEvent} event */
  take(event) {
    const changed = this.answer.take(event);
    for (const segment of changed) this.#changed.add(segment);
    if (event.kind === "text") for (const sentence of this.#sentences.feed(event.text)) announce(sentence);
    if (event.kind === "tool_call") announce(t("tool.calling", { name: event.name }));
    if (event.kind === "queued") announce(t("chat.queued", { count: event.position }));
    if (event.kind === "end") this.#end();
    else if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  /**
   * The answer did not come to its end.
   *
   * @param {string} message what happened and what can be done
   * @param {HTMLElement[]} remedies
   */
  fail(message, remedies) {
    if (!this.answer.ending) this.take({ kind: "end", reason: "failed", error: null });
    this.#foot.before(
      h(
        "div",
        { class: "notice error-notice", role: "alert" },
        icon("warning"),
        h("p", {}, message),
        h("div", { class: "choices" }, remedies),
      ),
    );
    this.#grown();
  }

  /** Another view takes its place. */
  leave() {
    cancelAnimationFrame(this.#frame);
    clearInterval(this.#clock);
  }

  #draw() {
    this.#frame = 0;
    const changed = [...this.#changed];
    this.#changed.clear();
    for (const segment of changed) this.#show(segment);
    this.#wait();
    this.#grown();
  }

  /** @param {Segment} segment */
  #show(segment) {
    const view = this.#views.get(segment) ?? this.#begin(segment);
    view.update(segment);
  }

  /** @param {Segment} segment */
  #begin(segment) {
    const view = viewOf(segment, this.api);
    // Whatever stood before is complete: words go on in a segment of their own.
    for (const earlier of this.#views.values()) earlier.end?.();
    this.#views.set(segment, view);
    this.#parts.append(view.node);
    return view;
  }

  #end() {
    this.leave();
    this.#draw();
    for (const view of this.#views.values()) view.end?.();
    for (const sentence of this.#sentences.finish()) announce(sentence);
    this.node.removeAttribute("aria-busy");
    this.#line.remove();
    const { reason = "", error = null } = this.answer.ending ?? {};
    const phrase = ENDINGS[reason];
    if (phrase && reason !== "failed") this.#parts.append(h("p", { class: "muted ending" }, say(phrase)));
    // Why it failed stands beside what can be done about it.
    if (error && reason !== "failed") this.#parts.append(h("p", { class: "muted ending" }, error));
    if (reason === "answered") announce(t("end.answered"));
    this.#foot.append(...this.#footParts());
    this.#grown();
  }

  #grown() {
    this.node.dispatchEvent(new CustomEvent("grown", { bubbles: true }));
  }

  #footParts() {
    const { costs, text } = this.answer;
    const copy = text ? [copyButton(() => this.answer.text, announce)] : [];
    if (!costs) return copy;
    const rate = costs.decode_ms > 0 ? (costs.generated * 1000) / costs.decode_ms : 0;
    const read = say("cost.read", { prefilled: figure(costs.prefilled), cached: figure(costs.cached) });
    const written = say("cost.written", { count: figure(costs.generated), rate: figure(rate, 1) });
    const first = say("cost.first", { seconds: figure(costs.first_ms / 1000, costs.first_ms < 100 ? 2 : 1) });
    return [...copy, h("span", { class: "costs muted" }, read, " · ", written, " · ", first)];
  }

  /** Say what is waited for, unless text is arriving. */
  #wait() {
    const { segments, status } = this.answer;
    this.#line.hidden = segments.at(-1)?.kind === "text" && !status;
    if (this.#line.hidden) return;
    const seconds = Math.floor((performance.now() - this.#started) / SECOND_MS);
    const clock = seconds >= 2 && h("span", { class: "muted" }, figure(seconds), " s");
    fill(this.#line, icon("dots"), h("span", {}, this.#awaited()), clock);
  }

  /** What the answer waits for. */
  #awaited() {
    const { segments, status, position } = this.answer;
    if (segments.some((segment) => segment.kind === "question" && this.#views.get(segment)?.isOpen))
      return say("chat.your_turn");
    if (position !== null && position > 0) return say("chat.queued", { count: position });
    return status ? bare(status) : say("chat.working");
  }
}

/**
 * @param {Segment} segment
 * @param {Api} api
 * @returns {View}
 */
function viewOf(segment, api) {
  switch (segment.kind) {
    case "text":
      return textView();
    case "thinking":
      return thinkingView();
    case "call":
      return new ToolCard(segment);
    case "question":
      return questionView(segment, api);
    case "mistake": {
      const raw = h("pre", { tabindex: 0 }, segment.raw);
      const details = h("details", {}, h("summary", {}, say("tool.unreadable")), h("p", {}, segment.reason), raw);
      return { node: h("section", { class: "card tool", "data-state": "failed" }, details), update: () => undefined };
    }
    case "resource":
      return { node: h("p", { class: "chip" }, icon("clip"), h("span", {}, segment.uri)), update: () => undefined };
  }
}

/** @returns {View} */
function textView() {
  const node = h("div", { class: "prose" });
  const markdown = new MarkdownView(node, (code) => copyButton(code, announce));
  let written = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  return {
    node,
    update: (/** @type {import("./answer.js").Words} */ { text }) => {
      markdown.write(text.slice(written));
      written = text.length;
      // A long paragraph is drawn in larger steps; when nothing more comes, what is left is drawn.
      clearTimeout(pause);
      pause = setTimeout(() => markdown.draw(), 250);
    },
    end: () => {
      clearTimeout(pause);
      markdown.end();
    },
  };
}

/** @returns {View} */
function thinkingView() {
  const words = new Text();
  const label = h("span", {}, say("thinking.now"));
  const body = h("div", { class: "thoughts", dir: "auto" }, words);
  const node = h("details", { class: "thinking" }, h("summary", {}, icon("thought"), label), body);
  return {
    node,
    update: (/** @type {import("./answer.js").Words} */ { text }) => words.appendData(text.slice(words.length)),
    end: () => label.replaceChildren(say("thinking.over")),
  };
}

/**
 * @param {import("./answer.js").Question} question
 * @param {Api} api
 * @returns {View}
 */
function questionView(question, api) {
  const card = new QuestionCard(question.event, api);
  announce(card.sentence);
  return {
    node: card.node,
    update: ({ isOver }) => isOver && card.close(),
    get isOpen() {
      return card.isOpen;
    },
  };
}

/**
 * An answer that was given earlier.
 *
 * @param {{text: string, thinking?: string, ending?: string}} message
 */
export function pastAnswer(message) {
  const parts = h("div", { class: "parts" });
  if (message.thinking) {
    const view = thinkingView();
    view.update({ text: message.thinking });
    view.end?.();
    parts.append(view.node);
  }
  const prose = textView();
  prose.update({ text: message.text });
  prose.end?.();
  parts.append(prose.node);
  const label = h("h2", { class: "visually-hidden" }, say("chat.answer"));
  const ending = ENDINGS[message.ending ?? ""];
  if (ending) parts.append(h("p", { class: "muted ending" }, say(ending)));
  const foot = h("footer", { class: "message-foot" }, message.text && copyButton(() => message.text, announce));
  return h("article", { class: "message assistant" }, label, parts, foot);
}
