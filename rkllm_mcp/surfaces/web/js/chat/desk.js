/**
 * The conversations that are open in this window: one is on the page, others may be answered after it.
 *
 * @typedef {import("./unanswered.js").Wish} Wish
 */
import { api } from "../access.js";
import { Refusal } from "../api.js";
import { byId, h, icon } from "../dom.js";
import { say, t } from "../i18n.js";
import { keepTyped, typed } from "../preferences.js";
import { sentenceOf } from "../problems.js";
import { speaker } from "../speech/speaker.js";
import { announce } from "./announcer.js";
import { Following } from "./following.js";
import { QuestionCard } from "./questions.js";
import { Queue } from "./queue.js";
import { Thread } from "./thread.js";

export class Desk {
  #place = byId("thread");
  #following = new Following();
  /** @type {Set<Thread>} those that would lose something if they were fetched: an answer under way, a question in vain */
  #unsettled = new Set();
  /** @type {Set<Thread>} those whose messages are on their way */
  #loading = new Set();
  /** @type {Map<string, QuestionCard>} what waits for a person and belongs to no answer of this window */
  #waiting = new Map();
  /** @type {Thread | undefined} the new conversation of the page that was loaded again */
  #begun;
  /** @type {(() => void)[]} those who wait for a change of a conversation */
  #waitingForChange = [];
  #told;
  #queue;

  /**
   * @param {{changed: () => void, ask: (wish: Wish) => boolean, edit: (asked: import("./queue.js").Waiting) => void,
   *   models: () => import("../models.js").Model[]}} told called when an answer begins or ends, and when a conversation
   *   gets its id; and the way to ask
   */
  constructor(told) {
    this.#told = told;
    this.#queue = new Queue({
      ask: (thread, asked) => {
        this.#queue.show(this.thread);
        if (thread === this.thread) told.ask(asked);
        else void thread.ask(asked);
      },
      edit: told.edit,
      stop: () => this.stop(),
    });
    this.thread = this.#blank("");
  }

  /**
   * Take up the questions that an earlier page was to ask when the board is back.
   *
   * @param {string} id of the conversation that is opened; empty for a new one
   */
  takeUp(id) {
    const waiting = /** @type {import("./unanswered.js").Kept[]} */ (typed("waiting") ?? []);
    for (const kept of waiting) {
      const thread = this.#blank(kept.id);
      thread.takeUp(kept);
      this.#unsettled.add(thread);
      if (kept.id === id && !id) this.#begun = thread;
    }
    this.#keep();
  }

  get isRunning() {
    return this.thread.isRunning;
  }

  /** The conversations that are being answered and have their id. */
  get running() {
    return [...this.#unsettled]
      .filter((thread) => thread.id && thread.isRunning)
      .map(({ id, title }) => ({ id, title }));
  }

  /**
   * Put a conversation on the page.
   *
   * @param {string} id empty for a new one
   */
  async open(id) {
    if (id && this.thread.id === id) return;
    const kept = id ? [...this.#unsettled].find((thread) => thread.id === id) : this.#begun;
    this.#begun = undefined;
    const thread = kept ?? this.#blank(id);
    speaker.stop();
    this.thread = thread;
    this.#show(thread);
    if (kept) await this.refresh();
    else if (id) await this.#load(thread);
  }

  /** Load the page again for another user. */
  async reload() {
    if (this.thread.id && !this.thread.isRunning) await this.#load(this.thread);
  }

  /** Read on the answers that have lost their connection. */
  comeBack() {
    for (const thread of this.#unsettled) thread.comeBack();
  }

  /** The board is back: ask the questions that wait for it. */
  sendWaiting() {
    for (const thread of this.#unsettled) void thread.sendWaiting();
  }

  /** Show the changes since the page was hidden or offline. */
  async refresh() {
    // The old content is better than an error, which is shown elsewhere.
    for (const thread of this.#unsettled) if (thread !== this.thread) void thread.refresh().catch(() => false);
    const isNew = await this.thread.refresh().catch(() => false);
    if (isNew) this.#following.follow();
  }

  /** @param {Wish} wish */
  ask(wish) {
    // A question among messages that have not come yet would be drawn over.
    if (this.thread.isRunning || this.#loading.has(this.thread)) {
      if (wish.message && wish.replaces === undefined) return this.#queue.add(this.thread, wish);
      announce(t("chat.first"));
      return false;
    }
    speaker.stop();
    byId("welcome").hidden = true;
    this.#place.querySelector(".load-problem")?.remove();
    void this.thread.ask(wish);
    if (wish.replaces === undefined) this.#following.begin();
    return true;
  }

  stop() {
    void this.thread.stop();
  }

  /**
   * Wait for the end of the answer that is under way.
   *
   * @returns {Promise<boolean>} whether it came to its end, and its conversation is still the one on the page
   */
  async answered() {
    const { thread } = this;
    while (thread.isRunning) await new Promise((resolve) => this.#waitingForChange.push(() => resolve(undefined)));
    return thread === this.thread && !thread.isUnsettled && !thread.isStopped;
  }

  /** Show the questions that wait for a person and belong to no answer of this window. */
  async showQuestions() {
    if (this.#isAnyRunning) return;
    const { questions } = await api.get("/v1/questions");
    if (this.#isAnyRunning) return;
    for (const [id, card] of this.#waiting) {
      if (questions.some((/** @type {any} */ question) => question.id === id)) continue;
      card.node.remove();
      this.#waiting.delete(id);
    }
    // A card that is there already stays as it is: the user may have begun to fill it in.
    for (const question of questions) {
      if (this.#waiting.has(question.id)) continue;
      const card = new QuestionCard(question);
      this.#waiting.set(question.id, card);
      byId("waiting").append(card.node);
      this.#following.follow();
    }
  }

  get #isAnyRunning() {
    return [...this.#unsettled].some((thread) => thread.isRunning);
  }

  /** @param {string} id */
  #blank(id) {
    const thread = new Thread(id, {
      changed: (changed) => this.#noted(changed),
      ask: this.#told.ask,
      models: this.#told.models,
    });
    if (id) thread.queued = typed(`queued.${id}`) ?? [];
    return thread;
  }

  /** @param {Thread} thread */
  #noted(thread) {
    if (thread.isUnsettled) this.#unsettled.add(thread);
    else this.#unsettled.delete(thread);
    this.#keep();
    this.#queue.go(thread);
    if (thread === this.thread) this.#queue.show(thread);
    this.#told.changed();
    for (const resolve of this.#waitingForChange.splice(0)) resolve();
  }

  /** Store the questions that wait for the board; what the browser has no room for is left as a draft. */
  #keep() {
    // Tokens of servers are never stored.
    const threads = [...this.#unsettled].filter(({ waiting }) => waiting && !waiting.wish.options?.tokens);
    const isKept = keepTyped("waiting", threads.map(({ waiting }) => /** @type {object} */ (waiting)));
    for (const thread of this.#unsettled) thread.isKept = isKept && threads.includes(thread);
  }

  /** @param {Thread} thread */
  #show(thread) {
    this.#place.replaceChildren(thread.node);
    byId("welcome").hidden = Boolean(thread.id) || !thread.isEmpty;
    this.#queue.show(thread);
    this.#following.toEnd();
    this.#told.changed();
  }

  /** @param {Thread} thread */
  async #load(thread) {
    thread.node.replaceChildren(h("p", { class: "muted", role: "status" }, say("loading")));
    this.#loading.add(thread);
    try {
      await thread.load().finally(() => this.#loading.delete(thread));
      this.#queue.go(thread);
    } catch (error) {
      thread.node.replaceChildren(
        h(
          "div",
          { class: "notice error-notice load-problem", role: "alert" },
          icon("warning"),
          h("p", {}, error instanceof Refusal && error.status === 404 ? say("chat.gone") : sentenceOf(error)),
        ),
      );
    }
    if (this.thread === thread) this.#following.toEnd();
  }
}
