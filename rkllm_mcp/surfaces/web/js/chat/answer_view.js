/**
 * An answer on the page while it is made. Text is drawn once per frame at most, however many tokens come; what is said
 * aloud goes to the announcer in sentences.
 *
 * @typedef {import("./answer.js").Segment} Segment
 * @typedef {{again?: (from: HTMLElement) => void, goOn?: (node: HTMLElement) => void}} Surroundings `again` offers
 *   to ask the question once more, `goOn` to have more written
 */
import { api } from "../access.js";
import { button, choices, copyButton, iconButton, sourceButton } from "../buttons.js";
import { fill, h, hide, icon, joined } from "../dom.js";
import { figure, language, named, say, t } from "../i18n.js";
import { MarkdownView } from "../markdown/view.js";
import { speaker } from "../speech/speaker.js";
import { announce } from "./announcer.js";
import { Answer } from "./answer.js";
import { memoryChips } from "./memory_chips.js";
import { Pace } from "./pace.js";
import { QuestionCard } from "./questions.js";
import { Sentences } from "./sentences.js";
import { ToolCard } from "./tool_card.js";

const SECOND_MS = 1000;
// The first token tells that all is read, so no estimate says so before.
const MOST_READ = 0.95;
const LONGEST_READING_S = 300;
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
  #pace = new Pace(() => this.#draw());
  #sentences = new Sentences();
  #started = performance.now();
  /** the reason of the wait since then @type {string | null} */
  #what = null;
  #isPast;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #clock;
  #isStopping = false;
  #isRead = false;

  /**
   * @param {Surroundings} around
   * @param {boolean} [isPast] it was given earlier: nothing is announced
   */
  constructor(around, isPast = false) {
    this.around = around;
    this.#isPast = isPast;
    const label = h("h2", { class: "visually-hidden" }, say("chat.answer"));
    this.node = h(
      "article",
      { class: "message assistant", "aria-busy": "true", tabindex: -1 },
      label,
      this.#parts,
      this.#foot,
      // The last one: taking it away leaves the style of the others as it is.
      this.#line,
    );
    if (isPast) return;
    this.#clock = setInterval(() => this.#wait(), SECOND_MS);
    this.#wait();
  }

  /**
   * @param {import("../api.js").BoardEvent} event
   * @param {boolean} [isKnown] it came before: it is not announced
   */
  take(event, isKnown = false) {
    const changed = this.answer.take(event);
    for (const segment of changed) this.#changed.add(segment);
    if (event.kind === "end") this.#end();
    else if (!this.#isPast) this.#pace.later();
    if (this.#isPast || isKnown) return;
    if (event.kind === "text") {
      for (const sentence of this.#sentences.feed(event.text)) announce(sentence);
      this.#read(event.text);
    }
    if (event.kind === "tool_call") announce(t("tool.calling", { name: event.name }));
    if (event.kind === "queued") announce(t("chat.queued", { count: event.position }));
  }

  /**
   * Read the answer aloud as it comes, where that is wanted.
   *
   * @param {string} text the next piece
   */
  #read(text) {
    if (!this.#isRead && speaker.isAutomatic && this.node.isConnected) {
      speaker.begin(this);
      fill(this.#foot, speaker.button(this, () => this.answer.text));
    }
    this.#isRead = true;
    speaker.feed(this, text);
  }

  /** Whether the model reads: it ends that before it stops. */
  get isReading() {
    const { segments, position } = this.answer;
    return position === null && segments.every(({ kind }) => kind === "call" || kind === "resource" || kind === "sources" || kind === "memories");
  }

  /** The person wants it to end, which takes a moment while the model reads. */
  stopping() {
    this.#isStopping = this.isReading;
    this.#wait();
  }

  /**
   * The answer did not come to its end.
   *
   * @param {string} message what happened and what can be done
   * @param {(HTMLElement | false)[]} remedies
   */
  fail(message, remedies) {
    if (!this.answer.ending) this.take({ kind: "end", reason: "failed", error: null });
    // A remedy asks again, or the conversation is gone.
    this.#foot.querySelector(".again")?.remove();
    this.#foot.before(
      h(
        "div",
        { class: "notice error-notice", role: "alert" },
        icon("warning"),
        h("p", {}, message),
        choices(remedies),
      ),
    );
  }

  /** Another view takes its place. */
  leave() {
    this.#pace.cancel();
    clearInterval(this.#clock);
  }

  #draw() {
    const changed = [...this.#changed];
    this.#changed.clear();
    for (const segment of changed) this.#show(segment);
    this.#wait();
  }

  /** @param {Segment} segment */
  #show(segment) {
    const view = this.#views.get(segment) ?? this.#begin(segment);
    view.update(segment);
  }

  /** @param {Segment} segment */
  #begin(segment) {
    const view = viewOf(segment, this.#isPast);
    // The segment before is complete: words go on in their own segment.
    for (const earlier of this.#views.values()) earlier.end?.();
    this.#views.set(segment, view);
    this.#parts.append(view.node);
    return view;
  }

  #end() {
    this.leave();
    this.#draw();
    for (const view of this.#views.values()) view.end?.();
    // Below the answer, though they came before it.
    for (const [{ kind }, { node }] of this.#views) if (kind === "memories") this.#parts.append(node);
    if (!this.#isPast) for (const sentence of this.#sentences.finish()) announce(sentence);
    speaker.finish(this);
    this.node.removeAttribute("aria-busy");
    this.#line.remove();
    const { reason = "", error = null } = this.answer.ending ?? {};
    const phrase = reason === "cancelled" && this.answer.text ? "end.kept" : ENDINGS[reason];
    const line = h("p", { class: "muted ending" }, phrase ? say(phrase) : null);
    if (phrase && (reason !== "failed" || this.#isPast)) this.#parts.append(line);
    if (reason === "cancelled" && this.isReading && !this.#isPast) void this.#untilFree(line);
    const { leftOut } = this.answer;
    if (leftOut) this.#parts.append(h("p", { class: "muted ending" }, say("end.left_out", { names: leftOut })));
    // The reason is next to the remedy.
    if (error && reason !== "failed") this.#parts.append(h("p", { class: "muted ending" }, error));
    if (reason === "answered" && !this.#isPast) announce(t("end.answered"));
    fill(this.#foot, this.#footParts());
  }

  /**
   * The answer is over, but the NPU goes on reading before it stops.
   *
   * @param {HTMLElement} line
   */
  async #untilFree(line) {
    for (let left = LONGEST_READING_S; left > 0; left--) {
      const { stopping } = await api.get("/v1/board").catch(() => ({ stopping: false }));
      if (!stopping) break;
      line.replaceChildren(this.#stopping());
      await new Promise((resolve) => setTimeout(resolve, SECOND_MS));
    }
    line.replaceChildren(say("end.cancelled"));
  }

  #footParts() {
    const { costs, text } = this.answer;
    const { again, goOn } = this.around;
    return [
      goOn && this.answer.isCut && button("chat.go_on", () => goOn(this.node), { class: "go-on" }),
      text && copyButton(() => this.answer.text),
      text && speaker.button(this, () => this.answer.text),
      again && iconButton("again", "chat.again", (event) => again(/** @type {HTMLElement} */ (event.currentTarget)), {
          class: "icon-button again",
        }),
      costs && costsView(costs),
    ];
  }

  /** Show the reason of the wait, unless text is arriving. */
  #wait() {
    const { segments, status } = this.answer;
    hide(this.#line, segments.at(-1)?.kind === "text" && !status);
    if (this.#line.hidden) return;
    const share = this.#share;
    const awaited = h("span", {}, this.#awaited(share));
    const what = awaited.querySelector("[data-say]")?.getAttribute("data-say") ?? awaited.textContent;
    if (what !== this.#what) this.#started = performance.now();
    this.#what = what;
    const seconds = Math.floor((performance.now() - this.#started) / SECOND_MS);
    const clock = seconds >= 2 && h("span", { class: "muted" }, say("tool.seconds", { seconds }));
    const bar = share !== null && h("progress", { max: 100, value: share, "aria-hidden": "true" });
    fill(this.#line, icon("dots"), awaited, clock, bar);
  }

  /** How much of the prompt the model has read, in percent; null if unknown. */
  get #share() {
    const { reading } = this.answer;
    if (!reading) return null;
    const passed = 1 - this.#left / reading.seconds;
    return passed > 2 ? null : Math.floor(100 * Math.min(passed, MOST_READ));
  }

  /** The seconds until the model has read its prompt; below 0 when it takes longer than expected. */
  get #left() {
    const { reading } = this.answer;
    return reading ? (reading.ends - performance.now()) / SECOND_MS : 0;
  }

  #stopping() {
    const left = Math.ceil(this.#left);
    return left > 0 ? say("chat.stopping_in", { s: left }) : say("chat.stopping");
  }

  /**
   * What the answer waits for.
   *
   * @param {number | null} share how much of the prompt is read, in percent
   */
  #awaited(share) {
    const { segments, status, position } = this.answer;
    if (segments.some((segment) => this.#views.get(segment)?.isOpen))
      return say("chat.your_turn");
    if (position !== null && position > 0) return say("chat.queued", { count: position });
    if (this.#isStopping && this.isReading) return this.#stopping();
    if (share !== null) return say("chat.reading", { p: share });
    const { phrase, values, words } = this.answer.doing;
    // The page's own words, or a line of the board, which is English.
    if (words && (language() === "en" || !status.startsWith("["))) return words;
    return say(phrase, values);
  }
}

/**
 * The figures of an answer, on demand.
 *
 * @param {import("./answer.js").Costs} costs
 */
function costsView(costs) {
  const rate = figure(costs.decode_ms > 0 ? (costs.generated * 1000) / costs.decode_ms : 0, 1);
  const share = Math.round((100 * costs.cached) / Math.max(1, costs.cached + costs.prefilled));
  const read = {
    prefilled: figure(costs.prefilled),
    asked: figure(costs.prefilled + costs.cached),
    seconds: figure(costs.prefill_ms / 1000, 1),
  };
  return h(
    "details",
    { class: "costs muted" },
    h("summary", { class: "icon-button", ...named("cost.title") }, icon("info")),
    h(
      "ul",
      {},
      h("li", {}, joined([say("cost.rate", { rate }), share > 0 && say("cost.share", { share })])),
      h("li", {}, say("cost.read", read)),
      h("li", {}, say("cost.cached", { cached: figure(costs.cached) })),
      h("li", {}, say("cost.written", { count: figure(costs.generated), rate })),
      ...(costs.corrections ? [h("li", {}, say("cost.corrections", { count: figure(costs.corrections) }))] : []),
      h("li", {}, say("cost.first", { seconds: figure(costs.first_ms / 1000, costs.first_ms < 100 ? 2 : 1) })),
      h("li", {}, say("cost.window", { count: figure(costs.prompt + costs.last) })),
    ),
  );
}

/**
 * @param {Segment} segment
 * @param {boolean} isPast
 * @returns {View}
 */
function viewOf(segment, isPast) {
  switch (segment.kind) {
    case "text":
      return textView();
    case "thinking":
      return thinkingView();
    case "call":
      return new ToolCard(segment);
    case "question":
      return questionView(segment, isPast);
    case "mistake": {
      const raw = h("pre", { tabindex: 0 }, segment.raw);
      const details = h("details", {}, h("summary", {}, say("tool.unreadable")), h("p", {}, segment.reason), raw);
      return { node: h("section", { class: "card tool", "data-state": "failed" }, details), update: () => undefined };
    }
    case "sources":
      return { node: sourcesView(segment.items), update: () => undefined };
    case "memories":
      return { node: memoryChips(segment.rows, segment.isNew), update: () => undefined };
    case "resource":
      return { node: h("p", { class: "chip" }, icon("clip"), h("span", {}, segment.uri)), update: () => undefined };
  }
}

/**
 * The passages that a search found; each opens in its document.
 *
 * @param {import("./answer.js").Source[]} items
 */
function sourcesView(items) {
  const row = (/** @type {import("./answer.js").Source} */ source) => {
    const open = (/** @type {Event} */ { currentTarget }) =>
      currentTarget?.dispatchEvent(new CustomEvent("source", { bubbles: true, detail: source }));
    return h("li", {}, sourceButton(source, open));
  };
  return h(
    "details",
    { class: "sources" },
    h("summary", {}, say("sources.title", { count: items.length })),
    h("ul", {}, items.map(row)),
  );
}

/** @returns {View} */
function textView() {
  const node = h("div", { class: "prose" });
  const markdown = new MarkdownView(node, copyButton);
  let written = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  return {
    node,
    update: (/** @type {import("./answer.js").Words} */ { text }) => {
      markdown.write(text.slice(written));
      written = text.length;
      // A long paragraph is drawn in larger steps; at the end of the text the rest is drawn.
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
 * @param {boolean} isPast
 * @returns {View}
 */
function questionView(question, isPast) {
  const card = new QuestionCard(question.event);
  if (!isPast) announce(card.sentence);
  return {
    node: card.node,
    update: ({ isOver, answered }) => isOver && card.close(answered),
    get isOpen() {
      return card.isOpen;
    },
  };
}

/**
 * An answer that was given earlier, drawn from the same events as when it came.
 *
 * @param {import("./past.js").Message} message
 * @param {Surroundings} around
 */
export function pastAnswer(message, around) {
  const view = new AnswerView(around, true);
  const words = [
    ...(message.thinking ? [{ kind: "thinking", text: message.thinking }] : []),
    ...(message.text ? [{ kind: "text", text: message.text }] : []),
  ];
  for (const event of message.events?.length ? message.events : words) view.take(event);
  view.take({ kind: "end", reason: message.ending || "answered", error: null });
  return view.node;
}
