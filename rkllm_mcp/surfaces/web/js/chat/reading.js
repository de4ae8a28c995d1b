/** One answer read as it comes, and read on after the connection was lost, as often as that takes. */
import { api } from "../access.js";
import { ConnectionLost, Refusal } from "../api.js";
import { t } from "../i18n.js";
import { AnswerView } from "./answer_view.js";

const UNSUPPORTED = 422;
// A board sends the head of an answer within a second; later than that the proxy of several boards holds the question.
const HEAD_MS = 1500;
const LOOK_MS = 1000;
const WAITING = new Set(["queued", "status", "prefill"]);

export class Reading {
  /** the number of the last event that came */
  after = 0;
  /** Ends the wait for the connection; nothing waits at first. */
  comeBack = () => {};
  #around;
  /** ends it */
  run = new AbortController();
  /** @type {HTMLElement | null} the visible part of the continued answer, until its text arrives again */
  begun = null;
  /** characters that come again and are not announced */
  known = 0;

  /** @param {import("./answer_view.js").Surroundings} around */
  constructor(around) {
    this.#around = around;
    this.view = new AnswerView(around);
  }

  /**
   * @param {object} request the body of `/v1/execute`
   * @param {string} id of the conversation; empty for a new one
   * @param {(id: string) => void} named called with the conversation's id when the board has the question
   * @param {string} [once] the same when it is sent again
   */
  async ask(request, id, named, once = "") {
    const { signal } = this.run;
    const { model = "" } = /** @type {{model?: string}} */ (request);
    const begun = this.#showPlace(model);
    const { conversation, events } = await api
      .execute({ ...request, detached: true }, signal, once)
      .catch((error) => {
        // Nothing is stored there, or two such answers run: then this one ends with its reader.
        if (!(error instanceof Refusal && error.param === "detached")) throw error;
        // Only a stored answer can be continued.
        if (error.status === UNSUPPORTED) delete this.#around.goOn;
        return api.execute(request, signal, once);
      })
      .finally(begun);
    named(conversation);
    await this.#show(events).catch((error) => {
      // Without an event the board may not even have begun.
      if (this.after === 0) throw error;
      return this.#goOn(conversation || id, error);
    });
  }

  /**
   * Show how many wait in the proxy at most before this question, until its answer begins.
   *
   * @param {string} model
   * @returns {() => void} to be called then
   */
  #showPlace(model) {
    let place = Infinity;
    let isOver = false;
    const look = async () => {
      const { waiting } = await api.get("/v1/queue", { model: model || undefined }).catch(() => ({ waiting: 0 }));
      if (isOver) return;
      // Those that came later wait after it.
      if (waiting < place) this.view.take({ kind: "queued", position: waiting });
      place = Math.min(place, waiting);
      timer = setTimeout(look, LOOK_MS);
    };
    let timer = setTimeout(look, HEAD_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }

  /**
   * Read an answer that the board gives already, as often as the connection is lost.
   *
   * @param {string} id of the conversation
   */
  async follow(id) {
    await this.#resume(id).catch((error) => this.#goOn(id, error));
  }

  /** @param {string} id of the conversation */
  async #resume(id) {
    await this.#show(await api.follow(id, this.after, this.run.signal));
  }

  /**
   * Go on reading an answer that has lost its reader.
   *
   * @param {string} id
   * @param {unknown} error why the reading ended
   */
  async #goOn(id, error) {
    for (let lost = error; lost; ) {
      if (!(lost instanceof ConnectionLost) || this.run.signal.aborted) throw lost;
      this.view.take({ kind: "status", text: t("chat.away") });
      await this.#back();
      lost = await this.#resume(id).then(
        () => null,
        // An answer that the board has dropped is lost: the stored part is shown.
        (again) => {
          if (again instanceof Refusal) throw lost;
          return again;
        },
      );
    }
  }

  /** Wait until the board answers again, or the page becomes visible. */
  #back() {
    return new Promise((resolve) => {
      this.comeBack = () => resolve(undefined);
      this.run.signal.addEventListener("abort", this.comeBack);
    });
  }

  /** @param {AsyncIterable<import("../api.js").BoardEvent>} events */
  async #show(events) {
    for await (const event of events) {
      if (event.whole) {
        // All text so far replaces the visible text.
        const view = new AnswerView(this.#around);
        this.view.node.replaceWith(view.node);
        this.view.leave();
        this.view = view;
      }
      this.after = event.number ?? this.after;
      if (this.begun && !WAITING.has(event.kind)) {
        this.begun.remove();
        this.begun = null;
      }
      this.view.take(event, this.known > 0);
      if (event.kind === "text") this.known -= event.text.length;
    }
  }
}
