/**
 * The model in the header: its menu loads another one, if there are several, and leads to those that can be had.
 *
 * @typedef {{id: string, loaded?: boolean, capabilities?: string[], board?: string}} Model `board` is another one of several
 * @typedef {{model: string, board?: string, shared?: boolean, first_model?: string}} Me
 */
import { api } from "./access.js";
import { announce } from "./chat/announcer.js";
import { byId, h } from "./dom.js";
import { say, t } from "./i18n.js";
import { openMenu } from "./menu.js";
import { prefer, preference } from "./preferences.js";
import { sentenceOf } from "./problems.js";
import { showToast } from "./toast.js";

export class ModelPicker {
  /** @type {Model[]} those that chat and may be asked here */
  models = [];
  /** @type {Model[]} those of other boards, which have their own page */
  #elsewhere = [];
  // Several boards answer, and each question names the model.
  #isFleet = false;
  /** @type {Me} */
  #me = { model: "" };
  // The one that loads.
  #wanted = "";
  #button = /** @type {HTMLButtonElement} */ (byId("model"));
  #told;

  /**
   * @param {{changed: () => Promise<void>, shown: () => void, more: () => void}} told called when another model is loaded, when the
   *   model that answers may be another one or is about to be, and when models are to be downloaded or removed
   */
  constructor(told) {
    this.#told = told;
    this.#button.addEventListener("click", () => this.#open());
  }

  /** What a question says of the model: while one loads it is for that one. */
  get options() {
    const model = this.#wanted || this.#chosen?.id;
    return model ? { model } : {};
  }

  /** The model that a person has chosen of those of several boards. */
  get #chosen() {
    return this.#isFleet ? this.models.find(({ id }) => id === preference("model")) : undefined;
  }

  /** What the proxy of several boards asks when a question names no model: not always this board's. */
  get #first() {
    return this.#isFleet ? this.models.find(({ id }) => id === this.#me.first_model) : undefined;
  }

  /** @param {Me} me what answers, and the board of the page */
  async show(me) {
    this.#me = me;
    if (!this.#isFleet) this.#label();
    const { data } = await api.get("/v1/models").catch(() => ({ data: [] }));
    const chatting = data.filter((/** @type {Model} */ { capabilities }) => !capabilities || capabilities.includes("chat"));
    // Without one store for all boards, this page has the conversations of its own board alone.
    this.models = chatting.filter((/** @type {Model} */ { board }) => !board || me.shared);
    this.#elsewhere = chatting.filter((/** @type {Model} */ { board }) => board && !me.shared);
    this.#isFleet = Boolean(me.shared && this.models.some(({ board }) => board));
    this.#label();
    this.#button.disabled = false;
    this.#told.shown();
  }

  /**
   * Whether the model of the next question sees pictures, and the name of another one that does; empty without one.
   * Until the models are known it may: the board says so if it does not.
   */
  get eyes() {
    if (!this.models.length) return { sees: true, other: "", board: "" };
    const canSee = (/** @type {Model} */ { capabilities }) => capabilities?.includes("vision");
    const asked = this.options.model || this.#first?.id || this.#me.model;
    const isAsked = ({ id, loaded, board }) => (asked ? id === asked : loaded && !board);
    const sees = this.models.some((model) => canSee(model) && isAsked(model));
    const other = this.models.find(canSee) ?? this.#elsewhere.find(canSee);
    return { sees, other: other?.id ?? "", board: other?.board ?? "", isHere: !this.#elsewhere.includes(other) };
  }

  /** The model that answers next, and its board. */
  #label() {
    const { model, board } = this.#me;
    const next = this.#chosen ?? this.#first;
    const [name, place] = next ? [next.id, next.board || board] : [model, board];
    // Of a line that is too long the model's name is cut, and the board's stays.
    this.#button.replaceChildren(h("span", {}, name), ...(place ? [h("span", { class: "place" }, ` · ${place}`)] : []));
  }

  /**
   * Load another model; the questions meanwhile are for that one.
   *
   * @param {string} name
   */
  async choose(name) {
    if (!this.#isFleet) return this.#load(name);
    // The board that the proxy sends the next question to loads it, if none has.
    prefer("model", name);
    void api.put("/v1/me/settings", { model: name }).catch(() => undefined);
    this.#label();
    this.#told.shown();
  }

  #open() {
    const on = (this.#chosen ?? this.#first)?.id ?? this.#me.model;
    const entry = (/** @type {Model} */ { id, loaded, board }) => ({
      phrase: "model.name",
      values: { name: id },
      isOn: this.#isFleet ? id === on : (loaded ?? false),
      note: [board, t(loaded ? "model.ready" : "model.loads")].filter(Boolean).join(" · "),
      act: () => void this.choose(id),
    });
    const more = { phrase: "models.more", act: () => this.#told.more() };
    openMenu(this.#button, [...(this.models.length > 1 ? this.models.map(entry) : []), more]);
  }

  /** @param {string} name */
  async #load(name) {
    this.#wanted = name;
    this.#told.shown();
    this.#button.replaceChildren(say("model.loading", { model: name }));
    announce(t("model.loading", { model: name }));
    try {
      await api.post("/v1/models:load", { model: name });
    } catch (error) {
      const values = { model: name, reason: sentenceOf(error) };
      showToast("model.failed", "connection.retry", () => this.#load(name), () => undefined, values);
    }
    // Meanwhile another one may have been chosen.
    if (this.#wanted !== name) return;
    this.#wanted = "";
    await this.#told.changed();
  }
}
