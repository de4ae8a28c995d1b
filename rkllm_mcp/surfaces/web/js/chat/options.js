/**
 * What goes with a question in addition to its words: the tool that its answer begins with, for one question; tokens for
 * servers, as long as the window is there. Both are chosen in a dialog and stand above the question. Nothing of it is
 * stored.
 *
 * @typedef {import("./unanswered.js").Options} Options
 * @typedef {{name: string, shown: string}} Tool by the name that no other has, and by the one that people read; both empty
 *   for none
 * @typedef {{tool: Tool, tokens: Record<string, string>}} Chosen
 */
import { api } from "../access.js";
import { button, choices, form, iconButton, submitButton } from "../buttons.js";
import { openDialog } from "../dialogs/dialog.js";
import { byId, fill, h, icon } from "../dom.js";
import { named, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { nameOf, switchedOn } from "../tools.js";

const SERVERS = "token-names";
const NONE = { name: "", shown: "" };
const counter = { last: 0 };

export class QuestionOptions {
  #place = byId("chosen");
  #tool = NONE;
  /** @type {Record<string, string>} */
  #tokens = {};

  constructor() {
    byId("options").addEventListener("click", async () => {
      const chosen = await chosenOptions({ tool: this.#tool, tokens: this.#tokens });
      if (!chosen) return;
      this.#tool = chosen.tool;
      this.#tokens = chosen.tokens;
      this.#show();
    });
  }

  /** @returns {Options} the options to send; only the chosen ones */
  get chosen() {
    return {
      ...(this.#tool.name && { force_tool: this.#tool.name }),
      ...(Object.keys(this.#tokens).length > 0 && { tokens: { ...this.#tokens } }),
    };
  }

  /** @param {Tool} tool that the next answer begins with */
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

/**
 * @param {Chosen} before
 * @returns {Promise<Chosen | null>} null when nothing is to be changed
 */
async function chosenOptions(before) {
  /** @type {Chosen | null} */
  let chosen = null;
  await openDialog("options.title", {}, (close) => {
    const tool = h("select", { id: "force-tool", "aria-describedby": "force-tool-help" });
    const tokens = tokenFields(before.tokens);
    const names = h("datalist", { id: SERVERS });
    const error = h("p", { class: "error", role: "alert" });
    const use = () => {
      const given = tokens.given();
      if (!given) return;
      const shown = tool.value && (tool.selectedOptions[0]?.text ?? "");
      chosen = { tool: { name: tool.value, shown }, tokens: given };
      close();
    };
    const made = form(
      use,
      { class: "form" },
      h(
        "div",
        { class: "field" },
        h("label", { for: tool.id }, say("options.tool")),
        tool,
        h("p", { class: "muted", id: "force-tool-help" }, say("options.tool_help")),
      ),
      tokens.node,
      names,
      error,
      choices(submitButton("options.use")),
    );
    offer(tool, [], before.tool);
    Promise.all([api.get("/v1/tools"), api.get("/v1/servers")]).then(
      ([{ tools }, { servers }]) => {
        offer(tool, tools, { name: tool.value, shown: tool.selectedOptions[0]?.text ?? "" });
        names.append(...servers.map((/** @type {any} */ { name }) => h("option", { value: name })));
      },
      (problem) => error.append(sentenceOf(problem)),
    );
    return [made];
  });
  return chosen;
}

/**
 * The tools that are switched on, by server.
 *
 * @param {HTMLSelectElement} select
 * @param {any[]} tools
 * @param {Tool} chosen stays, even if it is not among them
 */
function offer(select, tools, chosen) {
  const on = switchedOn(tools);
  const servers = [...new Set(on.map((tool) => tool.server))];
  const isThere = !chosen.name || on.some((tool) => nameOf(tool) === chosen.name);
  select.replaceChildren(
    h("option", { value: "" }, say("options.any")),
    ...(isThere ? [] : [h("option", { value: chosen.name }, chosen.shown)]),
    ...servers.map((server) =>
      h(
        "optgroup",
        { label: server || "–" },
        on.filter((tool) => tool.server === server).map((tool) => h("option", { value: nameOf(tool) }, tool.name)),
      ),
    ),
  );
  select.value = chosen.name;
}

/**
 * A row for each token, and a button for one more.
 *
 * @param {Record<string, string>} before
 */
function tokenFields(before) {
  const rows = h("div", { class: "token-rows" });
  const add = button("options.add", () => {
    const row = tokenRow("", "", () => add.focus());
    rows.append(row);
    row.querySelector("input")?.focus();
  });
  rows.append(...Object.entries(before).map(([name, value]) => tokenRow(name, value, () => add.focus())));
  const node = h(
    "fieldset",
    { class: "field" },
    h("legend", {}, say("options.tokens")),
    h("p", { class: "muted" }, say("options.tokens_help")),
    rows,
    h("div", {}, add),
  );
  return { node, given: () => tokensOf(rows) };
}

/**
 * @param {string} name
 * @param {string} value
 * @param {() => void} removed
 */
function tokenRow(name, value, removed) {
  counter.last += 1;
  const id = `token-${counter.last}`;
  const error = h("p", { class: "error", id: `${id}-error` });
  const who = h("input", {
    id: `${id}-name`,
    value: name,
    list: SERVERS,
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    "aria-describedby": error.id,
  });
  // Shown as a password, so that it is not read along and no keyboard learns it; no browser may offer to keep it.
  const what = h("input", { id: `${id}-value`, type: "password", value, autocomplete: "off", spellcheck: "false" });
  const row = h(
    "div",
    { class: "token-row" },
    h("div", { class: "field" }, h("label", { for: who.id }, say("options.name")), who, error),
    h("div", { class: "field" }, h("label", { for: what.id }, say("options.value")), what),
  );
  const remove = () => {
    row.remove();
    removed();
  };
  row.append(iconButton("close", "options.drop", remove));
  return row;
}

/**
 * @param {HTMLElement} rows
 * @returns {Record<string, string> | null} null when one lacks its name, which is shown then
 */
function tokensOf(rows) {
  /** @type {Record<string, string>} */
  const tokens = {};
  for (const row of rows.children) {
    const [who, what] = row.querySelectorAll("input");
    const name = who?.value.trim() ?? "";
    const value = what?.value.trim() ?? "";
    const isUnnamed = Boolean(value && !name);
    /** @type {HTMLElement} */ (row.querySelector(".error")).textContent = isUnnamed ? t("options.unnamed") : "";
    if (isUnnamed) {
      who?.focus();
      return null;
    }
    if (value) tokens[name] = value;
  }
  return tokens;
}
