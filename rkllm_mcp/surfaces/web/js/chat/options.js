/**
 * What goes with a question besides its words: the tool that its answer begins with, for one question; tokens for
 * servers, as long as the window is there. What is chosen stands above the question. Nothing of it is stored.
 *
 * @typedef {import("./thread.js").Options} Options
 */
import { iconButton } from "../buttons.js";
import { chosenOptions } from "../dialogs/options.js";
import { byId, fill, h, icon } from "../dom.js";
import { named, say } from "../i18n.js";

const NONE = { name: "", shown: "" };

export class QuestionOptions {
  #place = byId("chosen");
  #tool = NONE;
  /** @type {Record<string, string>} */
  #tokens = {};

  /** @param {import("../api.js").Api} api */
  constructor(api) {
    byId("options").addEventListener("click", async () => {
      const chosen = await chosenOptions(api, { tool: this.#tool, tokens: this.#tokens });
      if (!chosen) return;
      this.#tool = chosen.tool;
      this.#tokens = chosen.tokens;
      this.#show();
    });
  }

  /** @returns {Options} what is sent; only what was chosen */
  get chosen() {
    return {
      ...(this.#tool.name && { force_tool: this.#tool.name }),
      ...(Object.keys(this.#tokens).length > 0 && { tokens: { ...this.#tokens } }),
    };
  }

  /** @param {import("../dialogs/options.js").Tool} tool that the next answer begins with */
  begin(tool) {
    this.#tool = tool;
    this.#show();
  }

  /** A question has gone with them. */
  spent() {
    this.#tool = NONE;
    this.#show();
  }

  /** Another key may be another user's. */
  forget() {
    this.#tool = NONE;
    this.#tokens = {};
    this.#show();
  }

  #show() {
    const tool =
      this.#tool.name &&
      chip("tool", "options.begin", this.#tool.shown, () => {
        this.#tool = NONE;
        this.#left();
      });
    const tokens = Object.keys(this.#tokens).map((name) =>
      chip("key", "options.with", name, () => {
        delete this.#tokens[name];
        this.#left();
      }),
    );
    fill(this.#place, tool, tokens);
  }

  #left() {
    this.#show();
    byId("options").focus();
  }
}

/**
 * @param {string} symbol
 * @param {string} phrase
 * @param {string} name
 * @param {() => void} remove
 */
function chip(symbol, phrase, name, remove) {
  return h(
    "span",
    { class: "chosen-option" },
    icon(symbol),
    h("span", { class: "one-line" }, say(phrase, { name })),
    iconButton("close", "options.remove", remove, named("options.remove", { name })),
  );
}
