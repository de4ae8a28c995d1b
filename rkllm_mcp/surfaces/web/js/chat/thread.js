/**
 * One conversation on the page: what was said, and the answer under way. What is shown of the past is what the board has
 * stored; a question that did not get through stays until it is asked again.
 *
 * @typedef {import("../api.js").Api} Api
 * @typedef {import("./past.js").Message} Message
 * @typedef {{force_tool?: string, tokens?: Record<string, string>}} Options
 * @typedef {{message: string, prompt?: {name: string, arguments: Record<string, string>}, options?: Options,
 *   history?: {role: string, text: string}[], again?: boolean}} Wish
 * @typedef {{view: AnswerView, after: number, run: AbortController}} Reading
 */
import { ConnectionLost, Refusal } from "../api.js";
import { button } from "../buttons.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { secondsOf } from "../time.js";
import { AnswerView } from "./answer_view.js";
import { notice, past, userMessage } from "./past.js";

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
  /** Ends the wait for the connection; nothing waits at first. */
  #comeBack = () => {};
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
    this.#comeBack();
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
    const ending = messages.at(-1)?.ending;
    const asked = messages.at(-2)?.text ?? "";
    const over = ending === "running" ? messages.slice(0, -2) : messages;
    const known = this.#said.length;
    const since = secondsOf(over[known - 1]?.created) || (known > 0 ? Number.POSITIVE_INFINITY : 0);
    const news = over.slice(known);
    for (const node of this.#unanswered?.nodes ?? []) node.remove();
    if (known === 0) this.node.replaceChildren();
    this.node.append(
      ...past(
        news,
        calls.filter((call) => secondsOf(call.started) > since),
      ),
    );
    this.title = title ?? "";
    this.#said = over.map(({ role, text }) => ({ role, text }));
    if (ending === "running") {
      this.#unanswered = null;
      this.#asked = userMessage(asked);
      this.node.append(this.#asked);
      void this.#answer({ message: asked }, true);
    } else if (ending === "interrupted" && messages.at(-2)?.role === "user") {
      this.#unanswered = null;
      this.#offerAgain(asked);
    } else if (this.#unanswered) this.#settle(this.#unanswered.wish, news);
  }

  /**
   * The last answer was broken off with the board: its question can be asked again in its place.
   *
   * @param {string} message
   */
  #offerAgain(message) {
    const broken = [...this.node.querySelectorAll("article.assistant")].at(-1);
    const line = notice("chat.broken_off");
    const again = () => {
      if (this.isRunning) return;
      broken?.remove();
      this.#said.splice(-2);
      this.#retry({ message, again: true }, line);
    };
    line.append(button("retry", again));
    this.node.append(line);
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

  /**
   * @param {Wish} wish
   * @param {boolean} isUnderWay whether the board has been asked before
   */
  async #answer(wish, isUnderWay = false) {
    const run = new AbortController();
    const reading = { view: new AnswerView(this.#api), after: 0, run };
    this.node.append(reading.view.node);
    this.#run = run;
    this.#unanswered = null;
    this.#changed(this);
    try {
      if (isUnderWay) await this.#follow(reading);
      else await this.#stream(wish, reading);
      this.#close(wish, reading.view);
      this.#note(wish, reading.view);
    } catch (error) {
      if (run.signal.aborted) this.#cut(wish, reading.view);
      else this.#failed(wish, reading.view, error);
    } finally {
      this.#run = null;
      run.abort();
      this.#changed(this);
      // An answer that was read on in vain: the board has something else of it by now.
      if (this.#unanswered && reading.after > 0) void this.refresh().catch(() => false);
    }
  }

  /**
   * @param {Wish} wish
   * @param {Reading} reading
   */
  async #stream(wish, reading) {
    const { message, prompt, options, history, again } = wish;
    const asked = again ? { again } : prompt ? { prompt } : { message };
    const request = { ...asked, ...options, history, conversation: this.id || undefined, approvals: "ask" };
    const { signal } = reading.run;
    const { conversation, events } = await this.#api
      .execute({ ...request, detached: true }, signal)
      .catch((error) => {
        // Nothing is stored there, or two such answers run: then this one ends with its reader.
        if (error instanceof Refusal && error.param === "detached") return this.#api.execute(request, signal);
        throw error;
      });
    // The board has the question now: after a failure it is asked like any other.
    wish.again = undefined;
    if (conversation && conversation !== this.id) {
      this.id = conversation;
      this.#changed(this);
    }
    await this.#show(events, reading).catch((error) => this.#goOn(reading, error));
  }

  /**
   * Go on reading an answer that has lost its reader, as often as that takes.
   *
   * @param {Reading} reading
   * @param {unknown} error why the reading ended
   */
  async #goOn(reading, error) {
    for (let lost = error; lost; ) {
      if (!(lost instanceof ConnectionLost) || reading.run.signal.aborted || reading.after === 0) throw lost;
      reading.view.take({ kind: "status", text: t("chat.away") });
      await this.#back(reading.run.signal);
      lost = await this.#follow(reading).then(
        () => null,
        // What the board does not have any more is as good as lost: what it has stored is shown.
        (again) => {
          if (again instanceof Refusal) throw lost;
          return again;
        },
      );
    }
  }

  /** @param {Reading} reading */
  async #follow(reading) {
    await this.#show(await this.#api.follow(this.id, reading.after, reading.run.signal), reading);
  }

  /**
   * Wait until the board answers again, or the page becomes visible.
   *
   * @param {AbortSignal} signal
   */
  #back(signal) {
    return new Promise((resolve) => {
      this.#comeBack = () => resolve(undefined);
      signal.addEventListener("abort", this.#comeBack);
    });
  }

  /**
   * @param {AsyncIterable<import("../api.js").BoardEvent>} events
   * @param {Reading} reading
   */
  async #show(events, reading) {
    for await (const event of events) {
      if (event.whole) {
        // All text so far, in place of what is shown.
        const view = new AnswerView(this.#api);
        reading.view.node.replaceWith(view.node);
        reading.view.leave();
        reading.view = view;
      }
      reading.after = event.number ?? reading.after;
      reading.view.take(event);
    }
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #close(wish, view) {
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
