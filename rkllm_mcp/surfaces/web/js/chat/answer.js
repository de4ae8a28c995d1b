/**
 * The events of one answer become its visible state: segments in the order in which they began, a line that says
 * the reason of a wait, the costs, and the ending. This module does not draw.
 *
 * @typedef {import("../api.js").BoardEvent} BoardEvent
 * @typedef {{kind: "text" | "thinking", text: string}} Words
 * @typedef {{action: string, content: Record<string, unknown>, seconds: number}} Answered what became of a question
 * @typedef {{is_error: boolean, text: string, seconds: number, truncated: boolean, ruling: string, omitted: boolean}} Result
 * @typedef {{kind: "call", id: string, name: string, server: string, arguments: Record<string, unknown>,
 *   repaired: boolean, question: BoardEvent | null, answered: Answered | null, progress: {progress: number, total: number | null, message: string | null} | null,
 *   result: Result | null, isRunning: boolean, isOver: boolean}} Call
 * @typedef {{kind: "mistake", raw: string, reason: string}} Mistake
 * @typedef {{kind: "question", event: BoardEvent, answered: Answered | null, isOver: boolean}} Question
 * @typedef {{kind: "resource", uri: string}} Attached
 * @typedef {import("../panels/passage.js").Source} Source
 * @typedef {{kind: "sources", items: Source[]}} Sources
 * @typedef {{kind: "memories", rows: import("./memory_chips.js").Row[], isNew: boolean}} Memories
 * @typedef {Memories | Sources | Words | Call | Mistake | Question | Attached} Segment
 * @typedef {{prompt: number, prefilled: number, cached: number, generated: number, prefill_ms: number,
 *   decode_ms: number, first_ms: number, last: number, corrections: number}} Costs
 * @typedef {{reason: string, error: string | null}} Ending
 */

const SECOND_MS = 1000;
// Lines whose content the neighbouring events repeat.
const KNOWN = new Set(
  "calling completed found_nothing failed failed_context detected detected_one parameters resource records records_one prompt".split(" "),
);
/** @type {Record<string, [string, string]>} what the board says of its work: the phrase for it, and the value that is its `name` */
const DOINGS = {
  loading: ["doing.loading", "name"],
  connecting: ["doing.connecting", "server"],
  waiting: ["doing.connecting", "names"],
  restarted: ["doing.restarted", ""],
  handing_over: ["doing.handing_over", "name"],
  shortened: ["doing.shortened", ""],
};
// Events after which the last status line may still be true.
const ASIDE = new Set(["status", "queued", "usage", "prefill", "end"]);

export class Answer {
  /** @type {Segment[]} */
  segments = [];
  /** the last status line of the board */
  status = "";
  /** @type {BoardEvent | null} the event of that line */
  #said = null;
  /** @type {number | null} how many come before this question; null when it is its turn */
  position = null;
  /** @type {{seconds: number, ends: number} | null} how long the model reads, and until when of `performance.now()` */
  reading = null;
  /** @type {Costs | null} */
  costs = null;
  /** @type {Ending | null} */
  ending = null;
  /** the servers that were still starting, without whose tools it is */
  leftOut = "";

  /**
   * @param {BoardEvent} event kinds that are not known are passed over: the board may be newer than the page
   * @returns {Segment[]} the segments that it began or changed
   */
  take(event) {
    if (event.kind !== "queued" && event.kind !== "status") this.position = null;
    // A stopped answer is over before the reading is.
    if (event.kind !== "status" && event.kind !== "end") this.reading = null;
    if (!ASIDE.has(event.kind)) this.status = "";
    switch (event.kind) {
      case "text":
      case "thinking":
        return [this.#words(event.kind, event.text)];
      case "tool_call":
        return [this.#begin(callFrom(event))];
      case "tool_call_failed":
        return [this.#begin({ kind: "mistake", raw: event.raw, reason: event.reason })];
      case "tool_progress":
        return this.#progress(event);
      case "tool_result":
        return [this.#result(event)];
      case "approval":
        return [this.#ask(event)];
      case "elicitation":
        return [this.#begin({ kind: "question", event, answered: null, isOver: false })];
      case "answered":
        return this.#answered(event);
      case "resource":
        return [this.#begin({ kind: "resource", uri: event.uri })];
      case "sources":
        return event.items.length > 0 ? [this.#begin({ kind: "sources", items: event.items })] : [];
      case "memories":
        return event.rows.length > 0 ? [this.#begin({ kind: "memories", rows: event.rows, isNew: event.is_new })] : [];
      case "end":
        return this.#end(event);
      case "status":
        return this.#status(event);
      case "prefill":
        this.status = "";
        this.reading = { seconds: event.seconds, ends: performance.now() + event.seconds_left * SECOND_MS };
        return [];
      default:
        this.#note(event);
        return [];
    }
  }

  /** All text, without thoughts and tools. */
  get text() {
    return this.segments.map((segment) => (segment.kind === "text" ? segment.text : "")).join("");
  }

  /**
   * What happens now, as a phrase and its values; as words where the board alone has words for it.
   *
   * @returns {{phrase: string, values?: Record<string, string>, words: string}}
   */
  get doing() {
    const [phrase, value] = (this.status && DOINGS[this.#said?.about]) || [];
    if (phrase) return { phrase, values: { name: String(this.#said?.values?.[value ?? ""] ?? "").replaceAll("'", "") }, words: "" };
    const call = this.segments.findLast((segment) => segment.kind === "call" && segment.isRunning && !segment.isOver);
    const words = bare(this.status);
    if (call?.kind === "call") return { phrase: "doing.using", values: { name: call.name }, words };
    if (this.segments.at(-1)?.kind === "thinking") return { phrase: "thinking.now", words };
    const hasBegun = this.segments.some(({ kind }) => kind === "call" || kind === "text" || kind === "mistake");
    return { phrase: hasBegun ? "doing.writing" : "chat.working", words };
  }

  /** Whether it ended in the middle of its text. */
  get isCut() {
    const reason = this.ending?.reason ?? "";
    return ["cancelled", "token_limit", "interrupted"].includes(reason) && this.segments.at(-1)?.kind === "text";
  }

  /** @param {BoardEvent} event one that changes no segment */
  #note(event) {
    if (event.kind === "queued") this.position = event.position;
    if (event.kind === "usage") this.costs = sum(this.costs, event);
  }

  /**
   * A call runs from the line that says so, which comes after the approval.
   *
   * @param {BoardEvent} event
   */
  #status(event) {
    this.status = KNOWN.has(event.about) ? "" : event.text;
    this.#said = event;
    if (event.about === "join_later" || event.about === "left_out") this.leftOut = event.values.names.replaceAll("'", "");
    const name = event.about === "calling" ? event.values.name : null;
    const call = this.segments.find(
      (segment) => segment.kind === "call" && segment.name === name && !segment.isOver && !segment.isRunning,
    );
    if (call?.kind !== "call") return [];
    call.isRunning = true;
    return [call];
  }

  /**
   * @param {"text" | "thinking"} kind
   * @param {string} text
   */
  #words(kind, text) {
    const last = this.segments.at(-1);
    if (last?.kind !== kind) return this.#begin({ kind, text });
    last.text += text;
    return last;
  }

  /**
   * A question about a call is inside the card of that call; without a visible card it has its own.
   *
   * @param {BoardEvent} event
   */
  #ask(event) {
    const given = JSON.stringify(event.arguments);
    const call = this.segments.find(
      (segment) =>
        segment.kind === "call" &&
        segment.name === event.name &&
        !(segment.isOver || segment.isRunning || segment.question) &&
        JSON.stringify(segment.arguments) === given,
    );
    if (call?.kind !== "call") return this.#begin({ kind: "question", event, answered: null, isOver: false });
    call.question = event;
    return call;
  }

  /** @param {BoardEvent} event */
  #answered({ id, call, action, content, seconds }) {
    const found = this.segments.find(
      (segment) =>
        (segment.kind === "call" && segment.id === call && !segment.result) ||
        (segment.kind === "question" && segment.event.id === id),
    );
    if (found?.kind !== "call" && found?.kind !== "question") return [];
    found.answered = { action, content, seconds };
    if (found.kind === "question") found.isOver = true;
    return [found];
  }

  /** @param {BoardEvent} event */
  #progress(event) {
    const call = this.#call(event.id);
    if (!call) return [];
    call.isRunning = true;
    call.progress = { progress: event.progress, total: event.total ?? null, message: event.message ?? null };
    return [call];
  }

  /** @param {BoardEvent} event */
  #result(event) {
    const call = this.#call(event.id) ?? /** @type {Call} */ (this.#begin(callFrom({ ...event, arguments: {} })));
    const { is_error, text, seconds, truncated, ruling = "", omitted = false } = event;
    call.result = { is_error, text, seconds, truncated, ruling, omitted };
    call.isOver = true;
    return call;
  }

  /** @param {BoardEvent} event */
  #end(event) {
    this.status = "";
    this.ending = { reason: event.reason, error: event.error ?? null };
    const waiting = this.segments.filter((segment) => "isOver" in segment && !segment.isOver);
    for (const segment of waiting) /** @type {Call | Question} */ (segment).isOver = true;
    return waiting;
  }

  /**
   * @param {Segment} segment
   * @returns {Segment}
   */
  #begin(segment) {
    this.segments.push(segment);
    return segment;
  }

  /**
   * @param {string} id
   * @returns {Call | undefined}
   */
  #call(id) {
    const found = this.segments.find((segment) => segment.kind === "call" && segment.id === id && !segment.result);
    return /** @type {Call | undefined} */ (found);
  }
}

/**
 * @param {BoardEvent} event
 * @returns {Call}
 */
function callFrom(event) {
  return {
    kind: "call",
    id: event.id,
    name: event.name,
    server: event.server ?? "",
    arguments: event.arguments ?? {},
    repaired: event.repaired ?? false,
    question: null,
    answered: null,
    progress: null,
    result: null,
    isRunning: false,
    isOver: false,
  };
}

/**
 * The figures of an answer: the sums of its rounds; null without any.
 *
 * @param {BoardEvent[]} events
 * @returns {Costs | null}
 */
export function costsOf(events) {
  const usages = events.filter(({ kind }) => kind === "usage");
  return usages.reduce(sum, /** @type {Costs | null} */ (null));
}

/**
 * @param {Costs | null} before
 * @param {BoardEvent} usage one more round
 * @returns {Costs}
 */
function sum(before, usage) {
  return {
    prompt: usage.prompt_tokens,
    prefilled: (before?.prefilled ?? 0) + usage.prefilled_tokens,
    cached: (before?.cached ?? 0) + usage.cached_tokens,
    generated: (before?.generated ?? 0) + usage.generated_tokens,
    prefill_ms: (before?.prefill_ms ?? 0) + usage.prefill_ms,
    decode_ms: (before?.decode_ms ?? 0) + usage.decode_ms,
    first_ms: before?.first_ms ?? usage.time_to_first_token_ms,
    last: usage.generated_tokens,
    corrections: (before?.corrections ?? 0) + (usage.corrections ?? 0),
  };
}

/**
 * A status line without the brackets that a terminal shows it in.
 *
 * @param {string} line
 */
export function bare(line) {
  return line.replace(/^\[(?:MCP: |NPU: )?/, "").replace(/\]$/, "");
}
