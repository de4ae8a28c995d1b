/**
 * A search for servers: in the dated copy of the MCP registry that came with this release, or, when that is asked for, in
 * the registry itself. Nothing is added here: an address is put into the form, and a program has a command for a terminal.
 *
 * @typedef {{name: string, description: string, is_required: boolean, is_secret: boolean}} Wanted
 * @typedef {{name: string, short: string, title: string, description: string, version: string, url: string,
 *   headers: Wanted[], command: string, environment: Wanted[]}} Found
 * @typedef {{name: string, url: string, wants?: string}} Filled what the form for an address begins with
 */
import { api } from "../access.js";
import { button, choices, form, submitButton, typed } from "../buttons.js";
import { fill, h, redraw } from "../dom.js";
import { say } from "../i18n.js";
import { sentenceOf } from "../problems.js";

const TYPING_MS = 200;

/**
 * @param {(filled: Filled) => void} take puts an address into the form
 * @param {string} begin the words to begin with
 */
export function registrySearch(take, begin = "") {
  const words = h("input", { type: "search", id: "registry-search", autocomplete: "off", value: begin });
  const note = h("p", { class: "muted small", role: "status" });
  const list = h("div", { class: "downloads" });
  /** @type {{number: number, typing: ReturnType<typeof setTimeout> | undefined}} */
  const state = { number: 0, typing: undefined };

  const search = async (/** @type {boolean} */ live, cursor = "") => {
    state.number += 1;
    const { number } = state;
    if (live) fill(note, say("loading"));
    try {
      const found = await api.get("/v1/servers/registry", { search: words.value.trim(), live, ...(cursor && { cursor }) });
      if (number !== state.number) return;
      const { servers, date, registry } = found;
      fill(note, live ? say("registry.asked", { registry }) : say("registry.copy", { date, count: servers.length, registry }));
      const cards = servers.map((/** @type {Found} */ each) => card(each, take));
      const draw = () => {
        if (!cursor) fill(list);
        list.querySelector(".more")?.remove();
        list.append(...cards);
        if (servers.length === 0) list.append(h("p", { class: "muted" }, say("registry.none")));
        if (found.cursor) list.append(button("documents.more", () => search(true, found.cursor), { class: "quiet more" }));
      };
      redraw(list, draw, (cursor && cards[0]) || words);
    } catch (error) {
      if (number === state.number) fill(note, h("span", { class: "error" }, sentenceOf(error)));
    }
  };
  words.addEventListener("input", () => {
    clearTimeout(state.typing);
    state.typing = setTimeout(() => void search(false), TYPING_MS);
  });
  const label = h("label", { for: words.id }, say("registry.search"));
  const field = form(() => void search(true), { class: "search-row" }, label, words, submitButton("registry.ask", {}));
  void search(false);
  return h("div", { class: "registry" }, field, note, list);
}

/**
 * @param {Found} found
 * @param {(filled: Filled) => void} take
 */
function card(found, take) {
  const { name, short, title, description, version, url, headers, command, environment } = found;
  const needed = environment.filter((each) => each.is_required && /^\w+$/.test(each.name));
  const variables = needed.map((each) => ` --env ${each.name}=VALUE`).join("");
  const wanted = (url ? headers : environment).map((each) =>
    h("li", {}, h("code", {}, each.name), " ", each.is_required && say("form.must"), " ", each.description),
  );
  return h(
    "section",
    { class: "server", "data-registry": name, "data-entry": name, tabindex: -1 },
    h("div", { class: "names" }, h("h4", {}, title), h("span", { class: "muted small" }, version)),
    h("p", { class: "muted small address" }, name),
    description && h("p", { lang: "en" }, description),
    url && h("p", { class: "small address" }, say("registry.address"), " ", h("code", {}, url)),
    wanted.length > 0 && h("p", { class: "small" }, say("registry.wants")),
    wanted.length > 0 && h("ul", { class: "small" }, wanted),
    url && choices(button("registry.fill", () => take({ name: short, url, wants: headers.map((each) => each.name).join(", ") }))),
    command && h("p", { class: "small" }, say("registry.program")),
    command && typed(`rkllm-mcp servers add ${short}${variables} -- ${command}`),
    !url && !command && h("p", { class: "muted small" }, say("registry.neither")),
  );
}
