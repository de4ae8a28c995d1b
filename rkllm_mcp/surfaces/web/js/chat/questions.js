/**
 * What waits for a person, as cards: whether a call may be made, and what a server wants to know. A card answers to the
 * board by itself and then shows the answer.
 *
 * @typedef {import("../api.js").BoardEvent} BoardEvent
 */
import { api } from "../access.js";
import { Refusal } from "../api.js";
import { button, choices, submitButton } from "../buttons.js";
import { fill, h, icon } from "../dom.js";
import { FormView } from "../forms/view.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { argumentsView } from "./arguments.js";

const SECOND_MS = 1000;
const LASTING = /** @type {const} */ (["conversation", "always", "never"]);

export class QuestionCard {
  #event;
  #body = h("div", { class: "card-body" });
  #note = h("p", { class: "card-note", role: "status" });
  #left = h("span", { class: "muted time-left", role: "timer" });
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #clock;
  #isOver = false;
  #isSettled = false;
  #isInside;

  /**
   * @param {BoardEvent} event of the kind `approval` or `elicitation`
   * @param {boolean} [isInside] it is inside the card of its call, which shows the arguments
   */
  constructor(event, isInside = false) {
    this.#event = event;
    this.#isInside = isInside;
    const isApproval = event.kind === "approval";
    const title = say(isApproval ? "approval.title" : "question.title", { name: event.name ?? event.server });
    const id = `asked-${event.id}`;
    const head = h("div", { class: "card-head" }, icon("question"), h("strong", { id }, title), this.#left);
    const named = { role: "group", "aria-labelledby": id };
    const style = isInside ? "question" : "card question";
    this.node = h("section", { class: style, tabindex: -1, ...named }, head, this.#body, this.#note);
    this.#body.append(...(isApproval ? this.#approval() : event.url ? this.#address() : this.#form()));
    if (event.seconds_left > 0) this.#count(Date.now() + event.seconds_left * SECOND_MS);
  }

  /**
   * Show the time that is left, once a second while someone can see it.
   *
   * @param {number} end
   */
  #count(end) {
    const show = () => {
      if (document.hidden) return;
      const seconds = Math.max(0, Math.round((end - Date.now()) / SECOND_MS));
      const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
      this.#left.replaceChildren(say("question.left", { time }));
    };
    show();
    this.#clock = setInterval(show, SECOND_MS);
  }

  /** Whether it still waits for an answer. */
  get isOpen() {
    return !this.#isOver;
  }

  /**
   * It is not waited for any more. An answer that is on its way says by itself what became of it.
   *
   * @param {import("./answer.js").Answered | null} [answered]
   */
  close(answered = null) {
    this.#isOver = true;
    const isForm = this.#event.kind === "elicitation";
    if (!this.#isSettled && (answered || !this.#isBusy)) this.#settle(answered ? saidOf(isForm, answered) : say("question.over"));
    const given = Object.entries(answered?.content ?? {});
    if (!isForm || given.length === 0 || this.#body.querySelector("dl")) return;
    const titles = this.#event.schema?.properties ?? {};
    this.#body.append(argumentsView(Object.fromEntries(given.map(([name, value]) => [titles[name]?.title || name, value]))));
  }

  get #isBusy() {
    return this.node.getAttribute("aria-busy") === "true";
  }

  #approval() {
    const { reason, arguments: given } = this.#event;
    const once = button("approval.once", () => this.#decide("once"), { "data-decision": "once" });
    const deny = button("approval.deny", () => this.#decide("deny"), { class: "primary", "data-decision": "deny" });
    const lasting = choices();
    const offer = () =>
      fill(
        lasting,
        LASTING.map((decision) =>
          // What holds from now on is asked a second time.
          button(`approval.${decision}`, () => (decision === "conversation" ? this.#decide(decision) : sure(decision)), {
            class: "quiet",
          }),
        ),
      );
    const sure = (/** @type {"always" | "never"} */ decision) => {
      const words = h("p", {}, say(`approval.sure.${decision}`, { name: this.#event.name }));
      fill(lasting, words, button(`approval.${decision}`, () => this.#decide(decision)), button("cancel", offer));
      lasting.querySelector("button")?.focus();
    };
    offer();
    const more = h("details", { class: "more-choices" }, h("summary", {}, say("approval.more")), lasting);
    return [
      h("p", {}, reason),
      !this.#isInside && argumentsView(given ?? {}),
      choices(once, deny, more),
    ].filter((part) => part !== false);
  }

  #form() {
    const { schema, message } = this.#event;
    const form = new FormView(schema, (content) => this.#fill("accept", content));
    this.form = form;
    form.node.append(
      choices(
        submitButton("question.send"),
        button("question.decline", () => this.#fill("decline")),
        button("question.cancel", () => this.#fill("cancel"), { class: "quiet" }),
      ),
    );
    return [h("p", { class: "as-written" }, message), form.node];
  }

  #address() {
    const { url, message } = this.#event;
    const target = webAddress(url);
    if (!target)
      return [
        h("p", { class: "as-written" }, message),
        h("p", { class: "error" }, say("question.bad_address", { url })),
      ];
    const link = h(
      "a",
      { href: target.href, target: "_blank", rel: "noopener noreferrer nofollow", class: "button primary" },
      say("question.open"),
    );
    return [
      h("p", { class: "as-written" }, message),
      h("p", {}, say("question.host"), " ", h("strong", { class: "host" }, target.host)),
      h("p", { class: "muted address" }, target.href),
      choices(
        link,
        button("question.done", () => this.#fill("accept")),
        button("question.decline", () => this.#fill("decline")),
      ),
    ];
  }

  /** @param {string} decision */
  #decide(decision) {
    const path = `/v1/approvals/${encodeURIComponent(this.#event.id)}`;
    return this.#answer(() => api.post(path, { decision }), `approval.said.${decision}`);
  }

  /**
   * @param {"accept" | "decline" | "cancel"} action
   * @param {Record<string, unknown>} [content]
   */
  #fill(action, content) {
    const path = `/v1/elicitations/${encodeURIComponent(this.#event.id)}`;
    return this.#answer(() => api.post(path, { action, content }), `question.said.${action}`);
  }

  /**
   * @param {() => Promise<unknown>} send
   * @param {string} phrase says that it was answered
   */
  async #answer(send, phrase) {
    if (this.#isBusy) return;
    this.node.setAttribute("aria-busy", "true");
    try {
      await send();
      this.#settle(say(phrase));
    } catch (error) {
      const isGone = this.#isOver || (error instanceof Refusal && error.status === 404);
      if (isGone) this.#settle(say("question.over"));
      else if (!(error instanceof Refusal && this.form?.complain(error.param, error.message)))
        this.#note.textContent = sentenceOf(error);
    } finally {
      this.node.removeAttribute("aria-busy");
    }
  }

  /** @param {Node} words what became of it */
  #settle(words) {
    clearInterval(this.#clock);
    this.#left.remove();
    const hadFocus = this.node.contains(document.activeElement);
    this.#isOver = true;
    this.#isSettled = true;
    this.node.dataset.state = "over";
    for (const part of this.#body.querySelectorAll("form, .choices")) part.remove();
    this.#note.replaceChildren(words);
    if (hadFocus) this.node.focus();
  }

  /** The announcement for a screen reader when the card appears. */
  get sentence() {
    const { kind, name, server, reason, message } = this.#event;
    return kind === "approval"
      ? `${t("approval.title", { name })}. ${reason}`
      : `${t("question.title", { name: server })}. ${message}`;
  }
}

/**
 * @param {boolean} isForm
 * @param {import("./answer.js").Answered} answered
 */
function saidOf(isForm, { action, seconds }) {
  if (action === "late") return isForm ? say("question.said.cancel") : sayLate(seconds);
  return say(`${isForm ? "question" : "approval"}.said.${action}`);
}

/** @param {number} seconds that a call has waited for a decision in vain */
export function sayLate(seconds) {
  const minutes = Math.round(seconds / 60);
  return minutes > 1 ? say("approval.late", { m: minutes }) : say("approval.late_s", { s: Math.max(1, Math.round(seconds)) });
}

/**
 * @param {string} url
 * @returns {URL | null} null unless it opens a page
 */
export function webAddress(url) {
  const target = URL.canParse(url) ? new URL(url) : null;
  return target && (target.protocol === "https:" || target.protocol === "http:") ? target : null;
}
