/** @typedef {import("./answer.js").Costs} Costs */

/** How full the model's window will be when the question is sent, in figures that the board gives; shown when it fills up. */
import { api } from "../access.js";
import { byId, fill, h } from "../dom.js";
import { figure, say, t } from "../i18n.js";
import { announce } from "./announcer.js";

// One count at a time, when the typing has paused.
const PAUSE_MS = 600;
const SHOWN_FROM = 0.7;
const CAUTION = 0.85;

export class ContextBar {
  #place = byId("context");
  #read;
  #size = 0;
  #counted = "";
  #tokens = 0;
  #isCounting = false;
  #isFull = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #pause;

  /**
   * @param {() => {draft: string, files: number, tools: number, costs: Costs | null}} read the draft, the tokens of
   *   its files and of the tools, and the figures of the last answer
   */
  constructor(read) {
    this.#read = read;
  }

  /** @param {number} size of the window, tokens; 0 for a model elsewhere, which has none that is known */
  fits(size) {
    this.#size = size;
    this.#place.hidden = size === 0;
    this.later();
  }

  /** Something has changed: show it when nothing more does for a moment. */
  later() {
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => void this.#show(), PAUSE_MS);
  }

  async #show() {
    if (this.#isCounting) return;
    const text = this.#size ? this.#read().draft.trim() : "";
    if (text !== this.#counted) await this.#count(text);
    const { draft, files, tools, costs } = this.#read();
    if (this.#size && draft.trim() !== text) this.later();
    const written = this.#tokens + files;
    const total = (costs ? costs.prompt + costs.last : tools) + written;
    // Earlier questions make room for this one; it has to fit by itself. The chips of the files say when they do not.
    const room = this.#size - tools;
    const over = files > room ? 0 : written - room;
    const share = this.#size ? Math.min(1, total / this.#size) : 0;
    if (share < SHOWN_FROM) {
      this.#isFull = false;
      fill(this.#place);
      return;
    }
    const full = over > 0 ? t("file.too_many", { n: over }) : t("context.full", { p: Math.round(100 * share) });
    const isFull = share >= CAUTION;
    this.#place.classList.toggle("caution", isFull);
    const title = say("context.title", { n: figure(total), size: figure(this.#size) });
    title.id = "context-title";
    fill(
      this.#place,
      title,
      h("meter", { min: 0, max: 1, high: CAUTION, value: share, "aria-labelledby": title.id }),
      costs &&
        h(
          "span",
          { class: "muted" },
          say("context.read", { prefilled: figure(costs.prefilled), asked: figure(costs.prefilled + costs.cached) }),
        ),
      isFull && h("strong", {}, full),
    );
    if (isFull && !this.#isFull) announce(full);
    this.#isFull = isFull;
  }

  /** @param {string} text */
  async #count(text) {
    this.#isCounting = true;
    try {
      this.#tokens = text ? (await api.post("/v1/tokens", { texts: [text] })).tokens : 0;
      this.#counted = text;
    } catch {
      // The error is shown elsewhere; it is counted at the next change.
    } finally {
      this.#isCounting = false;
    }
  }
}
