/**
 * The model in the header: its menu loads another one, if there are several, and leads to those that can be had.
 *
 * @typedef {{id: string, loaded?: boolean, capabilities?: string[]}} Model
 */
import { api } from "./access.js";
import { announce } from "./chat/announcer.js";
import { byId } from "./dom.js";
import { say, t } from "./i18n.js";
import { openMenu } from "./menu.js";
import { sentenceOf } from "./problems.js";
import { showToast } from "./toast.js";

export class ModelPicker {
  /** @type {Model[]} those that chat */
  models = [];
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
    return this.#wanted ? { model: this.#wanted } : {};
  }

  /** @param {string} name of the model that answers */
  async show(name) {
    this.#button.textContent = name;
    const { data } = await api.get("/v1/models").catch(() => ({ data: [] }));
    this.models = data.filter((/** @type {Model} */ { capabilities }) => !capabilities || capabilities.includes("chat"));
    this.#button.disabled = false;
    this.#told.shown();
  }

  /**
   * Whether the model of the next question sees pictures, and the name of another one that does; empty without one.
   * Until the models are known it may: the board says so if it does not.
   */
  get eyes() {
    if (!this.models.length) return { sees: true, other: "" };
    const seeing = this.models.filter(({ capabilities }) => capabilities?.includes("vision"));
    const sees = seeing.some(({ id, loaded }) => (this.#wanted ? id === this.#wanted : loaded));
    return { sees, other: seeing[0]?.id ?? "" };
  }

  /**
   * Load another model; the questions meanwhile are for that one.
   *
   * @param {string} name
   */
  choose(name) {
    return this.#load(name);
  }

  #open() {
    const entry = (/** @type {Model} */ { id, loaded }) => ({
      phrase: "model.name",
      values: { name: id },
      isOn: loaded ?? false,
      note: t(loaded ? "model.ready" : "model.loads"),
      act: () => void this.#load(id),
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
