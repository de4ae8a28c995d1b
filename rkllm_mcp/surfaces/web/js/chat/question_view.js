/**
 * A question of the conversation: its words, its versions, and the editor in which it is asked in other words.
 *
 * @typedef {{message: string, pictures?: import("./pictures.js").Picture[],
 *   prompt?: {name: string, arguments: Record<string, string>}, version?: number, versions?: number}} Asked
 * @typedef {{ask: (text: string) => boolean, show: (version: number) => void,
 *   cost: (text: string) => Promise<{tokens: number, seconds: number} | null>}} Actions of a question that is stored
 */
import { button, choices, copyButton, iconButton } from "../buttons.js";
import { fill, h, icon } from "../dom.js";
import { labelled, say } from "../i18n.js";
import { isSending } from "./composer.js";
import { rememberMessage } from "./memory_chips.js";
import { thumbnails } from "./pictures.js";

const TYPING_MS = 400;

export class QuestionView {
  #bubble = h("div", { class: "bubble" });
  #foot = h("footer", { class: "message-foot" });
  #asked;
  #actions;

  /**
   * @param {Asked} asked
   * @param {Actions} actions
   */
  constructor(asked, actions) {
    this.#asked = asked;
    this.#actions = actions;
    const label = h("h2", { class: "visually-hidden" }, say("chat.you"));
    this.node = h("article", { class: "message user", tabindex: -1 }, label, this.#bubble, this.#foot);
    this.#show();
  }

  get versions() {
    return this.#asked.versions ?? 1;
  }

  /** Write it in other words. */
  edit() {
    if (!this.#asked.message) return;
    const field = h("textarea", { rows: 2, dir: "auto", ...labelled("chat.edit") });
    field.value = this.#asked.message;
    const cost = h("p", { class: "muted small", role: "status" });
    const submit = () => {
      const text = field.value.trim();
      if (text && this.#actions.ask(text)) this.#show();
    };
    const leave = () => {
      this.#show();
      this.node.focus();
    };
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") leave();
      else if (isSending(event)) submit();
      else return;
      event.preventDefault();
    });
    let timer = setTimeout(() => this.#tell(cost, field.value), 0);
    const fit = () => {
      field.style.height = "auto";
      field.style.height = `${field.scrollHeight + 2}px`;
    };
    field.addEventListener("input", () => {
      fit();
      clearTimeout(timer);
      timer = setTimeout(() => this.#tell(cost, field.value), TYPING_MS);
    });
    const ends = choices(button("cancel", leave), button("chat.edit_ask", submit, { class: "primary" }));
    fill(this.#bubble, field, cost, h("p", { class: "muted small" }, say("chat.edit_kept")), ends);
    this.node.classList.add("editing");
    fill(this.#foot);
    fit();
    field.focus();
  }

  /**
   * Go to another version.
   *
   * @param {number} step
   */
  turn(step) {
    const wanted = (this.#asked.version ?? 1) + step;
    if (wanted >= 1 && wanted <= this.versions) this.#actions.show(wanted);
  }

  #show() {
    const { message, prompt, pictures = [] } = this.#asked;
    const given = Object.entries(prompt?.arguments ?? {}).map(([name, value]) => `${name}: ${value}`);
    const asked =
      prompt && h("p", { class: "chip" }, icon("prompt"), h("span", {}, [prompt.name, ...given].join(" · ")));
    this.node.classList.remove("editing");
    const seen = pictures.length > 0 && thumbnails(pictures);
    fill(this.#bubble, asked, seen, message && h("p", { class: "as-written", dir: "auto" }, message));
    fill(
      this.#foot,
      this.versions > 1 && this.#switch(),
      message && copyButton(() => message),
      message && iconButton("book", "memory.remember", () => void rememberMessage(message), { class: "icon-button remember" }),
      message && iconButton("edit", "chat.edit", () => this.edit(), { class: "icon-button edit" }),
    );
  }

  #switch() {
    const { version = 1 } = this.#asked;
    return h(
      "span",
      { class: "versions", role: "group", ...labelled("chat.versions") },
      iconButton("left", "chat.version_before", () => this.turn(-1), { "aria-disabled": version <= 1 }),
      h(
        "span",
        { class: "muted" },
        h("span", { "aria-hidden": "true" }, `${version} / ${this.versions}`),
        h("span", { class: "visually-hidden" }, say("chat.version", { n: version, m: this.versions })),
      ),
      iconButton("right", "chat.version_after", () => this.turn(1), { "aria-disabled": version >= this.versions }),
    );
  }

  /**
   * Say what asking costs.
   *
   * @param {HTMLElement} place
   * @param {string} text
   */
  async #tell(place, text) {
    const cost = text.trim() && (await this.#actions.cost(text).catch(() => null));
    if (!cost) place.replaceChildren();
    else if (cost.seconds > 0) place.replaceChildren(say("chat.edit_cost", { n: cost.tokens, s: cost.seconds }));
    else place.replaceChildren(say("chat.edit_tokens", { n: cost.tokens }));
  }
}
