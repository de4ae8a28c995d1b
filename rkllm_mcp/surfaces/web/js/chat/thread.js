/**
 * One conversation on the page: what was said, and the answer under way. What is shown of the past is what the board has
 * stored; a question that did not get through stays until it is asked again.
 *
 * @typedef {import("../api.js").Api} Api
 * @typedef {import("./past.js").Message} Message
 * @typedef {{force_tool?: string, tokens?: Record<string, string>}} Options
 * @typedef {{message: string, prompt?: {name: string, arguments: Record<string, string>}, options?: Options,
 *   history?: {role: string, text: string}[]}} Wish
 */
import { ConnectionLost, Refusal } from "../api.js";
import { button } from "../buttons.js";
import { h } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { secondsOf } from "../time.js";
import { AnswerView } from "./answer_view.js";
import { past, userMessage } from "./past.js";

const CALLS_SHOWN = 200;
// How long the board may take to end an answer by itself before the connection is cut, which ends it as well.
const STOPPING_MS = 4000;
const NOT_FOUND = 404;

export class Thread {
  node = h("div", { class: "thread" });
  title = "";
  /** @type {AbortController | null} */
  #run = null;
  /** @type {{role: string, text: string}[]} what both sides have said, as far as it is shown */
  #said = [];
  /** @type {{wish: Wish, nodes: HTMLElement[]} | null} what was asked in vain, and what shows that */
  #unanswered = null;
  /** @type {HTMLElement | null} the question under way, unless the board has stored it before */
  #asked = null;
  #api;
  #changed;

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

  /** What was asked in vain; empty when there is nothing of that kind. */
  get unsent() {
    return this.#unanswered?.wish.message ?? "";
  }

  /** Whether something of it would be gone if it were fetched again: an answer under way, a question in vain. */
  get isUnsettled() {
    return this.isRunning || this.#unanswered !== null;
  }

  /**
   * Show what the board has stored.
   *
   * @throws {Refusal} when there is no such conversation, or it is not this person's
   */
  async load() {
    const stored = await this.#stored();
    const calls = await this.#pastCalls();
    if (this.isRunning) return;
    this.#said = [];
    this.#add(stored, calls);
  }

  /**
   * Add what other windows have said since, and what became of a question while the connection was gone.
   *
   * @returns {Promise<boolean>} whether there was anything
   */
  async refresh() {
    if (this.isRunning || !this.id) return false;
    const stored = await this.#stored();
    const isNew = () => !this.isRunning && stored.messages.length > this.#said.length;
    if (!isNew()) return false;
    const calls = await this.#pastCalls();
    // Somebody may have asked since, or another refresh may have been quicker.
    if (!isNew()) return false;
    this.#add(stored, calls);
    return true;
  }

  /** @returns {Promise<{title: string, messages: Message[]}>} */
  #stored() {
    return this.#api.get(`/v1/conversations/${encodeURIComponent(this.id)}`);
  }

  /**
   * What is shown already stays: it knows more than what is stored, such as the results of tools.
   *
   * @param {{title: string, messages: Message[]}} stored
   * @param {any[]} calls
   */
  #add({ title, messages }, calls) {
    const known = this.#said.length;
    const since = secondsOf(messages[known - 1]?.created) || (known > 0 ? Number.POSITIVE_INFINITY : 0);
    const news = messages.slice(known);
    for (const node of this.#unanswered?.nodes ?? []) node.remove();
    if (known === 0) this.node.replaceChildren();
    this.node.append(
      ...past(
        news,
        calls.filter((call) => secondsOf(call.started) > since),
      ),
    );
    this.title = title ?? "";
    this.#said = messages.map(({ role, text }) => ({ role, text }));
    if (this.#unanswered) this.#settle(this.#unanswered.wish, news);
  }

  /**
   * Ask, and show the answer as it comes.
   *
   * @param {Wish} wish
   */
  async ask(wish) {
    // Until the board has given it a title, or for good where it keeps nothing.
    this.title ||= wish.message || (wish.prompt?.name ?? "");
    this.#asked = userMessage(wish.message, wish.prompt);
    this.node.append(this.#asked);
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
    this.#unanswered = null;
    this.#changed(this);
    try {
      await this.#stream(wish, view, run);
      this.#note(wish, view);
    } catch (error) {
      if (run.signal.aborted) this.#cut(wish, view);
      else this.#failed(wish, view, error);
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
    const { message, prompt, options, history } = wish;
    const asked = prompt ? { prompt } : { message };
    const request = { ...asked, ...options, history, conversation: this.id || undefined, approvals: "ask" };
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
   */
  #note(wish, view) {
    const question = wish.message || (wish.prompt?.name ?? "");
    this.#said.push({ role: "user", text: question }, { role: "assistant", text: view.answer.text });
  }

  /**
   * The person has ended it, and the board did not say so in time.
   *
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #cut(wish, view) {
    view.take({ kind: "end", reason: "cancelled", error: null });
    if (this.id) this.#note(wish, view);
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   * @param {unknown} error
   */
  #failed(wish, view, error) {
    this.#unanswered = { wish, nodes: [view.node, ...(this.#asked ? [this.#asked] : [])] };
    const isUnknown = error instanceof Refusal && error.status === NOT_FOUND && error.param === "conversation";
    // Whether there is one now is said elsewhere; this stays when it is back.
    const why = error instanceof ConnectionLost ? t("chat.lost") : sentenceOf(error);
    view.fail(why, [isUnknown ? this.#onward(wish, view) : this.#again(wish, view)]);
  }

  /**
   * What became of a question that did not get through.
   *
   * @param {Wish} wish
   * @param {Message[]} news what was stored since
   */
  #settle(wish, news) {
    const last = news.at(-1);
    this.#unanswered = null;
    if (last?.role === "assistant" && news.at(-2)?.text === wish.message) {
      this.node.append(notice("chat.reloaded"));
      return;
    }
    this.#asked = last?.role === "user" ? null : userMessage(wish.message, wish.prompt);
    const line = notice("chat.unanswered");
    line.append(button("retry", () => this.#retry(wish, line)));
    const nodes = this.#asked ? [this.#asked, line] : [line];
    this.node.append(...nodes);
    this.#unanswered = { wish, nodes };
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #again(wish, view) {
    return button("retry", () => this.#retry(wish, view.node));
  }

  /**
   * The board does not know this conversation any more: it goes on as a new one, with what is shown of it.
   *
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #onward(wish, view) {
    return button("chat.onward", () => {
      this.id = "";
      this.#retry({ ...wish, history: [...this.#said] }, view.node);
    });
  }

  /**
   * @param {Wish} wish
   * @param {HTMLElement} gone what offered it; the focus of its button stays in the conversation
   */
  #retry(wish, gone) {
    if (this.isRunning) return;
    /** @type {HTMLElement | null} */ (gone.closest(".messages"))?.focus({ preventScroll: true });
    gone.remove();
    void this.#answer(wish);
  }

  async #pastCalls() {
    const query = { limit: CALLS_SHOWN, conversation: this.id };
    const { calls } = await this.#api.get("/v1/tools/history", query).catch((error) => {
      // The calls are an extra: a conversation without them is still the conversation.
      if (error instanceof ConnectionLost) throw error;
      return { calls: [] };
    });
    return calls;
  }
}

/** @param {string} phrase */
function notice(phrase) {
  return h("div", { class: "notice", role: "status" }, h("p", {}, say(phrase)));
}
