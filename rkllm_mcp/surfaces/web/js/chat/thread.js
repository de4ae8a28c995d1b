/**
 * One conversation on the page: what was said, and the answer under way. What is shown of the past is always what the
 * board has stored; after a lost connection it is fetched again.
 *
 * @typedef {import("../api.js").Api} Api
 * @typedef {{message: string, prompt?: {name: string, arguments: Record<string, string>}}} Wish
 * @typedef {{role: string, text: string, thinking?: string, ending?: string, created?: number | string}} Message
 */
import { ConnectionLost, Refusal } from "../api.js";
import { button } from "../buttons.js";
import { h, icon } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { secondsOf } from "../time.js";
import { AnswerView, pastAnswer } from "./answer_view.js";
import { ToolCard } from "./tool_card.js";

const CALLS_SHOWN = 200;
// How long the board may take to end an answer by itself before the connection is cut, which ends it as well.
const STOPPING_MS = 4000;
const RETRIES_MS = [1000, 2000, 4000, 8000, 15_000, 30_000];

export class Thread {
  node = h("div", { class: "thread" });
  title = "";
  /** @type {AbortController | null} */
  #run = null;
  #api;
  #changed;
  #system = "";

  /**
   * @param {Api} api
   * @param {string} id empty until the board has given it one
   * @param {(thread: Thread) => void} changed told when it gets its id, and when an answer begins and ends
   */
  constructor(api, id, changed) {
    this.#api = api;
    this.#changed = changed;
    this.id = id;
  }

  get isRunning() {
    return this.#run !== null;
  }

  get isEmpty() {
    return this.node.childElementCount === 0;
  }

  /**
   * Show what the board has stored.
   *
   * @throws {Refusal} when there is no such conversation, or it is not this person's
   */
  async load() {
    const past = await this.#api.get(`/v1/conversations/${encodeURIComponent(this.id)}`);
    const calls = await this.#pastCalls();
    if (this.isRunning) return [];
    this.title = past.title ?? "";
    this.node.replaceChildren(...history(past.messages, calls));
    return /** @type {Message[]} */ (past.messages);
  }

  /**
   * Ask, and show the answer as it comes.
   *
   * @param {Wish} wish
   */
  async ask(wish) {
    // Until the board has given it a title, or for good where it keeps nothing.
    this.title ||= wish.message || (wish.prompt?.name ?? "");
    this.node.append(userMessage(wish));
    await this.#answer(wish);
  }

  /** End the answer under way. */
  async stop() {
    const run = this.#run;
    if (!run) return;
    // The board ends the answer properly; the connection is cut when it does not, or when it is too early to name it.
    const limit = setTimeout(() => run.abort(), this.id ? STOPPING_MS : 0);
    run.signal.addEventListener("abort", () => clearTimeout(limit));
    if (!this.id) return;
    await this.#api.post(`/v1/conversations/${encodeURIComponent(this.id)}/cancel`).catch(() => run.abort());
  }

  /** @param {Wish} wish */
  async #answer(wish) {
    const run = new AbortController();
    const view = new AnswerView(this.#api);
    this.node.append(view.node);
    this.#run = run;
    this.#changed(this);
    try {
      await this.#stream(wish, view, run);
    } catch (error) {
      if (run.signal.aborted) view.take({ kind: "end", reason: "cancelled", error: null });
      else if (error instanceof ConnectionLost) this.#lost(wish, view);
      else this.#refused(wish, view, error);
    } finally {
      this.#run = null;
      run.abort();
      this.#changed(this);
    }
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   * @param {AbortController} run
   */
  async #stream(wish, view, run) {
    const asked = wish.prompt ? { prompt: wish.prompt } : { message: wish.message };
    const request = { ...asked, conversation: this.id || undefined, approvals: "ask" };
    const { conversation, events } = await this.#api.execute(request, run.signal);
    if (conversation && conversation !== this.id) {
      this.id = conversation;
      this.#changed(this);
    }
    for await (const event of events) view.take(event);
    const { ending } = view.answer;
    const why = [t("end.failed"), ending?.error].filter(Boolean).join(" ");
    if (ending?.reason === "failed") view.fail(why, [this.#again(wish, view)]);
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   * @param {unknown} error
   */
  #refused(wish, view, error) {
    view.fail(sentenceOf(error), [this.#again(wish, view)]);
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #lost(wish, view) {
    view.fail(t("problem.connection"), [this.#again(wish, view)]);
    if (this.id) void this.#recover(wish, 0);
  }

  /**
   * Fetch the conversation as soon as the board is there again; then what it has stored stands on the page.
   *
   * @param {Wish} wish what was asked when the connection broke
   * @param {number} tries
   */
  async #recover(wish, tries) {
    const pause_ms = RETRIES_MS[tries];
    if (pause_ms === undefined) return;
    await new Promise((resolve) => {
      setTimeout(resolve, pause_ms);
    });
    // Somebody may have asked again, or opened another conversation, which is fetched when it is opened.
    if (this.isRunning || !this.node.isConnected) return;
    try {
      this.#reloaded(wish, await this.load());
    } catch (error) {
      if (error instanceof ConnectionLost) await this.#recover(wish, tries + 1);
    }
  }

  /**
   * @param {Wish} wish
   * @param {Message[]} messages
   */
  #reloaded(wish, messages) {
    if (this.isRunning) return;
    const last = messages.at(-1);
    if (last?.role === "assistant" && messages.at(-2)?.text === wish.message) {
      this.node.append(notice("chat.reloaded"));
      return;
    }
    if (last?.role !== "user") this.node.append(userMessage(wish));
    const line = notice("chat.reloaded_unanswered");
    line.append(
      button("retry", () => {
        line.remove();
        void this.#answer(wish);
      }),
    );
    this.node.append(line);
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #again(wish, view) {
    return button("retry", () => {
      if (this.isRunning) return;
      view.node.remove();
      void this.#answer(wish);
    });
  }

  async #pastCalls() {
    const query = { limit: CALLS_SHOWN, conversation: this.id };
    const { calls } = await this.#api.get("/v1/tools/history", query).catch((error) => {
      // The calls are an extra: a conversation without them is still the conversation.
      if (error instanceof Refusal) return { calls: [] };
      throw error;
    });
    return calls;
  }
}

/**
 * Messages with the calls between them, each in front of the answer that it served.
 *
 * @param {Message[]} messages
 * @param {any[]} calls
 */
function history(messages, calls) {
  const waiting = [...calls].sort((one, other) => secondsOf(one.started) - secondsOf(other.started));
  /** @type {HTMLElement[]} */
  const nodes = [];
  for (const message of messages) {
    if (message.role === "user") {
      nodes.push(userMessage({ message: message.text }));
    } else if (message.role === "assistant") {
      const until = secondsOf(message.created);
      while (waiting[0] && secondsOf(waiting[0].started) <= until) nodes.push(pastCall(waiting.shift()));
      nodes.push(pastAnswer(message));
    }
  }
  nodes.push(...waiting.map(pastCall));
  return nodes;
}

/** @param {any} call one of the tool history */
function pastCall(call) {
  const result = { is_error: call.is_error, text: call.error ?? "", seconds: call.seconds, truncated: false };
  const card = new ToolCard({
    kind: "call",
    id: "",
    name: call.name,
    server: call.server,
    arguments: argumentsOf(call),
    repaired: false,
    progress: null,
    result,
    isOver: true,
  });
  return h("div", { class: "message past-call" }, card.node);
}

/**
 * @param {any} call
 * @returns {Record<string, unknown>}
 */
function argumentsOf(call) {
  if (typeof call.arguments !== "string") return call.arguments ?? {};
  try {
    const value = JSON.parse(call.arguments);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    // Long arguments are cut in the history; then they are no JSON any more.
    return { "": call.arguments };
  }
}

/** @param {Wish} wish */
function userMessage(wish) {
  const label = h("h2", { class: "visually-hidden" }, say("chat.you"));
  const given = Object.entries(wish.prompt?.arguments ?? {}).map(([name, value]) => `${name}: ${value}`);
  const prompt =
    wish.prompt && h("p", { class: "chip" }, icon("prompt"), h("span", {}, [wish.prompt.name, ...given].join(" · ")));
  const text = wish.message && h("p", { class: "as-written" }, wish.message);
  return h("article", { class: "message user" }, label, h("div", { class: "bubble" }, prompt, text));
}

/** @param {string} phrase */
function notice(phrase) {
  return h("div", { class: "notice", role: "status" }, h("p", {}, say(phrase)));
}
