/**
 * Choosing what goes with a question: the tool that its answer begins with, and tokens for servers.
 *
 * @typedef {import("../api.js").Api} Api
 * @typedef {{name: string, shown: string}} Tool by the name that no other has, and by the one that people read; both empty
 *   for none
 * @typedef {{tool: Tool, tokens: Record<string, string>}} Chosen
 */
import { button, iconButton } from "../buttons.js";
import { h } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { openDialog } from "./dialog.js";

const SERVERS = "token-names";
const counter = { last: 0 };

/**
 * @param {Api} api
 * @param {Chosen} before
 * @returns {Promise<Chosen | null>} null when nothing is to be changed
 */
export async function chosenOptions(api, before) {
  /** @type {Chosen | null} */
  let chosen = null;
  await openDialog("options.title", {}, (close) => {
    const tool = h("select", { id: "force-tool", "aria-describedby": "force-tool-help" });
    const tokens = tokenFields(before.tokens);
    const names = h("datalist", { id: SERVERS });
    const error = h("p", { class: "error", role: "alert" });
    const form = h(
      "form",
      { class: "form", novalidate: true },
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
      h("div", { class: "choices" }, h("button", { type: "submit", class: "primary" }, say("options.use"))),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = tokens.given();
      if (!given) return;
      const shown = tool.value && (tool.selectedOptions[0]?.text ?? "");
      chosen = { tool: { name: tool.value, shown }, tokens: given };
      close();
    });
    offer(tool, [], before.tool);
    Promise.all([api.get("/v1/tools"), api.get("/v1/servers")]).then(
      ([{ tools }, { servers }]) => {
        offer(tool, tools, { name: tool.value, shown: tool.selectedOptions[0]?.text ?? "" });
        names.append(...servers.map((/** @type {any} */ { name }) => h("option", { value: name })));
      },
      (problem) => error.append(sentenceOf(problem)),
    );
    return [form];
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
  const on = tools.filter((tool) => tool.enabled !== false);
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

/** @param {any} tool */
function nameOf(tool) {
  return String(tool.qualified_name || tool.name);
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
