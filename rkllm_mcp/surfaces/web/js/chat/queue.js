/**
 * Questions that wait for the answer under way, above the field: each can be changed, left out, or sent at once, which
 * stops the answer first.
 *
 * @typedef {import("./thread.js").Thread} Thread
 */
import { iconButton } from "../buttons.js";
import { byId, fill, h } from "../dom.js";
import { say, t } from "../i18n.js";
import { keepTyped } from "../preferences.js";
import { announce } from "./announcer.js";

const MOST = 3;

export class Queue {
  #place = byId("queued");
  #actions;

  /** @param {{ask: (thread: Thread, message: string) => void, edit: (message: string) => void, stop: () => void}} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  /**
   * @param {Thread} thread
   * @param {string} message
   * @returns {boolean} false when too many wait
   */
  add(thread, message) {
    announce(t(thread.queued.length < MOST ? "queue.added" : "queue.full"));
    if (thread.queued.length >= MOST) return false;
    thread.queued.push(message);
    this.show(thread);
    return true;
  }

  /**
   * Send the next one when the answer is over; one that was stopped or has failed sends nothing by itself.
   *
   * @param {Thread} thread
   */
  go(thread) {
    if (thread.isRunning || !thread.queued.length || thread.isStopped) return;
    this.#actions.ask(thread, thread.queued.shift() ?? "");
  }

  /** @param {Thread} thread the one on the page */
  show(thread) {
    if (thread.id) keepTyped(`queued.${thread.id}`, thread.queued);
    fill(
      this.#place,
      thread.queued.length > 0 && h("p", { class: "muted small" }, say("queue.title")),
      thread.queued.map((message, place) =>
        h(
          "div",
          { class: "pending" },
          h("span", { class: "one-line", dir: "auto" }, message),
          iconButton("send", "queue.now", () => this.#now(thread, place)),
          iconButton("edit", "chat.edit", () => this.#actions.edit(this.#take(thread, place))),
          iconButton("close", "queue.drop", () => {
            this.#take(thread, place);
            byId("question").focus();
          }),
        ),
      ),
    );
  }

  /**
   * @param {Thread} thread
   * @param {number} place
   */
  #now(thread, place) {
    const message = this.#take(thread, place);
    if (!thread.isRunning) {
      this.#actions.ask(thread, message);
      return;
    }
    thread.queued.unshift(message);
    thread.isGoingOn = true;
    this.show(thread);
    this.#actions.stop();
  }

  /**
   * @param {Thread} thread
   * @param {number} place
   */
  #take(thread, place) {
    const [message = ""] = thread.queued.splice(place, 1);
    this.show(thread);
    return message;
  }
}
