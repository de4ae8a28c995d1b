/**
 * Questions that wait for the answer under way, above the field: each can be changed, left out, or sent at once, which
 * stops the answer first.
 *
 * @typedef {import("./thread.js").Thread} Thread
 * @typedef {{message: string, pictures?: import("./pictures.js").Picture[]}} Waiting a question that waits
 */
import { iconButton } from "../buttons.js";
import { byId, fill, h } from "../dom.js";
import { say, t } from "../i18n.js";
import { keepTyped } from "../preferences.js";
import { announce } from "./announcer.js";
import { image } from "./pictures.js";

const MOST = 3;

export class Queue {
  #place = byId("queued");
  #actions;

  /** @param {{ask: (thread: Thread, asked: Waiting) => void, edit: (asked: Waiting) => void, stop: () => void}} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  /**
   * @param {Thread} thread
   * @param {Waiting} asked
   * @returns {boolean} false when too many wait
   */
  add(thread, { message, pictures }) {
    announce(t(thread.queued.length < MOST ? "queue.added" : "queue.full"));
    if (thread.queued.length >= MOST) return false;
    thread.queued.push({ message, pictures });
    this.show(thread);
    return true;
  }

  /**
   * Send the next one when the answer is over; one that was stopped or has failed sends nothing by itself.
   *
   * @param {Thread} thread
   */
  go(thread) {
    if (thread.isRunning || thread.isStopped) return;
    const next = thread.queued.shift();
    if (next) this.#actions.ask(thread, next);
  }

  /** @param {Thread} thread the one on the page */
  show(thread) {
    if (thread.id) keepTyped(`queued.${thread.id}`, thread.queued);
    fill(
      this.#place,
      thread.queued.length > 0 && h("p", { class: "muted small" }, say("queue.title")),
      thread.queued.map(({ message, pictures = [] }, place) =>
        h(
          "div",
          { class: "pending" },
          pictures.map((picture) => image(picture, "thumbnail-image")),
          h("span", { class: "one-line", dir: "auto" }, message),
          iconButton("send", "queue.now", () => this.#now(thread, place)),
          iconButton("edit", "chat.edit", () => this.#take(thread, place).forEach(this.#actions.edit)),
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
    const taken = this.#take(thread, place);
    if (!thread.isRunning) {
      for (const asked of taken) this.#actions.ask(thread, asked);
      return;
    }
    thread.queued.unshift(...taken);
    thread.isGoingOn = true;
    this.show(thread);
    this.#actions.stop();
  }

  /**
   * @param {Thread} thread
   * @param {number} place
   */
  #take(thread, place) {
    const taken = thread.queued.splice(place, 1);
    this.show(thread);
    return taken;
  }
}
