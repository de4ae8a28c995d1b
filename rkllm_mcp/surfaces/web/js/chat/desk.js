/**
 * The conversations that are open in this window: one is on the page, others may be answered behind it.
 *
 * @typedef {import("../api.js").Api} Api
 * @typedef {import("./thread.js").Wish} Wish
 */
import { byId, h, icon } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { announce } from "./announcer.js";
import { Following } from "./following.js";
import { QuestionCard } from "./questions.js";
import { Thread } from "./thread.js";

export class Desk {
  #place = byId("thread");
  #following = new Following();
  /** @type {Set<Thread>} those with an answer under way */
  #running = new Set();
  #api;
  #changed;

  /**
   * @param {Api} api
   * @param {() => void} changed told when an answer begins or ends, and when a conversation gets its id
   */
  constructor(api, changed) {
    this.#api = api;
    this.#changed = changed;
    this.thread = this.#blank("");
  }

  get isRunning() {
    return this.thread.isRunning;
  }

  /** The conversations that are being answered and have their id. */
  get running() {
    return [...this.#running].filter((thread) => thread.id).map(({ id, title }) => ({ id, title }));
  }

  /**
   * Put a conversation on the page.
   *
   * @param {string} id empty for a new one
   */
  async open(id) {
    if (id && this.thread.id === id) return;
    const running = [...this.#running].find((thread) => thread.id === id && id !== "");
    const thread = running ?? this.#blank(id);
    this.thread = thread;
    this.#show(thread);
    if (id && !running) await this.#load(thread);
  }

  /** Fetch what is on the page again. */
  async reload() {
    if (this.thread.id && !this.thread.isRunning) await this.#load(this.thread);
  }

  /** @param {Wish} wish */
  ask(wish) {
    if (this.thread.isRunning) {
      announce(t("chat.first"));
      return false;
    }
    byId("welcome").hidden = true;
    this.#place.querySelector(".load-problem")?.remove();
    void this.thread.ask(wish);
    this.#following.toEnd();
    return true;
  }

  stop() {
    void this.thread.stop();
  }

  /** Show the questions that wait for a person and belong to no answer of this window. */
  async showQuestions() {
    if (this.#running.size > 0) return;
    const { questions } = await this.#api.get("/v1/questions");
    if (this.#running.size > 0) return;
    byId("waiting").replaceChildren(
      ...questions.map((/** @type {any} */ question) => new QuestionCard(question, this.#api).node),
    );
    this.#following.follow();
  }

  /** @param {string} id */
  #blank(id) {
    return new Thread(this.#api, id, (thread) => this.#noted(thread));
  }

  /** @param {Thread} thread */
  #noted(thread) {
    if (thread.isRunning) this.#running.add(thread);
    else this.#running.delete(thread);
    this.#changed();
  }

  /** @param {Thread} thread */
  #show(thread) {
    this.#place.replaceChildren(thread.node);
    byId("welcome").hidden = Boolean(thread.id) || !thread.isEmpty;
    this.#following.toEnd();
    this.#changed();
  }

  /** @param {Thread} thread */
  async #load(thread) {
    thread.node.replaceChildren(h("p", { class: "muted", role: "status" }, say("loading")));
    try {
      await thread.load();
    } catch (error) {
      thread.node.replaceChildren(
        h(
          "div",
          { class: "notice error-notice load-problem", role: "alert" },
          icon("warning"),
          h("p", {}, sentenceOf(error)),
        ),
      );
    }
    if (this.thread === thread) this.#following.toEnd();
  }
}
