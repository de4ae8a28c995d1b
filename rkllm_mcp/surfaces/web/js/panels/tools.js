/**
 * Servers and their tools: how they are, what each costs of the model's window, and switches for both. A server's tools
 * are drawn when they are unfolded, and long lists have a search.
 *
 * @typedef {{servers: any[], tools: any[], tokens: number, size: number}} Found what all that is switched on costs, and the
 *   model's window, in tokens; 0 when it is not known
 */
import { api } from "../access.js";
import { toggle } from "../buttons.js";
import { fill, h, joined, redraw, tell } from "../dom.js";
import { language, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { nameOf } from "../tools.js";
import { holds } from "../words.js";
import { ServerActions } from "./server_actions.js";

// As many can be looked through.
const FEW = 20;
const TYPING_MS = 150;
const STATES = new Set(["ready", "waiting", "connecting", "failed", "died"]);

export class ToolsPanel {
  node = h("div", { class: "panel-body" });
  #note = h("p", { class: "muted", role: "status" }, say("loading"));
  #cost = h("div", { class: "cost" });
  #search = h("input", {
    type: "search",
    id: "tool-search",
    autocomplete: "off",
    placeholder: t("tools.search"),
    "data-hint": "tools.search",
  });
  #field = h(
    "div",
    { hidden: true },
    h("label", { for: "tool-search", class: "visually-hidden" }, say("tools.search")),
    this.#search,
  );
  #list = h("div");
  /** @type {Set<string>} servers whose tools are shown */
  #unfolded = new Set();
  /** @type {Map<string, ServerActions>} by server; their state outlives a drawing of the list */
  #actions = new Map();
  /** @type {Map<string, string>} of servers that were installed by name */
  #descriptions = new Map();
  /** @type {Found} */
  #found = { servers: [], tools: [], tokens: 0, size: 0 };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;

  constructor() {
    this.node.append(this.#cost, this.#field, this.#note, this.#list);
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#show(), TYPING_MS);
    });
  }

  async load() {
    try {
      const [{ servers }, { tools, tokens }, board, gallery] = await Promise.all([
        api.get("/v1/servers"),
        api.get("/v1/tools"),
        api.get("/v1/board"),
        api.get("/v1/servers/gallery").catch(() => ({ servers: [] })),
      ]);
      for (const { name, description, description_ja } of gallery.servers)
        this.#descriptions.set(name, language() === "ja" ? description_ja : description);
      this.#found = { servers, tools, tokens, size: Number(board.context_tokens) || 0 };
      this.#field.hidden = tools.length <= FEW;
      this.#showCost();
      this.#show();
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }

  #showCost() {
    const { tokens, size } = this.#found;
    const cost = h("p", { id: "tools-cost" }, say("tools.cost", { tokens, size: size || "?" }));
    const meter =
      size > 0 && h("meter", { min: 0, max: size, high: size / 2, value: tokens, "aria-labelledby": "tools-cost" });
    fill(this.#cost, cost, meter);
  }

  #show() {
    redraw(this.#list, () => this.#fillList(), this.#field.hidden ? this.#list : this.#search);
  }

  #fillList() {
    const { servers, tools } = this.#found;
    const words = this.#field.hidden ? "" : this.#search.value.trim();
    const wanted = tools.filter((tool) => holds(`${tool.name} ${tool.server} ${tool.description}`, words));
    const none = servers.length === 0 && wanted.length === 0 ? say("tools.none") : "";
    tell(this.#note, words ? say("tools.found", { count: wanted.length }) : none);
    const cards = servers.flatMap((server) => {
      const its = wanted.filter((tool) => tool.server === server.name);
      return words && its.length === 0 ? [] : [this.#server(server, its, words !== "")];
    });
    const own = wanted.filter((tool) => !servers.some((server) => server.name === tool.server));
    const title = h("h3", {}, say("tools.own"));
    if (own.length > 0) cards.push(h("section", { class: "server" }, title, this.#tools("", own, words !== "")));
    this.#list.replaceChildren(...cards);
  }

  /**
   * @param {any} server
   * @param {any[]} tools
   * @param {boolean} isOpen
   */
  #server(server, tools, isOpen) {
    const control = toggle(server.enabled !== false, t("tools.switch_server", { name: server.name }), (isOn) =>
      this.#switch("servers", server.name, isOn),
    );
    control.dataset["control"] = `server ${server.name}`;
    const state = server.can_log_in
      ? h("span", { class: "badge caution" }, say("server.needs_login"))
      : h("span", { class: "badge", "data-state": server.state }, STATES.has(server.state) ? say(`server.${server.state}`) : server.state);
    const facts = [server.transport, server.tokens > 0 && say("tools.tokens", { count: server.tokens })];
    const head = h(
      "div",
      { class: "server-head" },
      h("div", { class: "names" }, h("h3", {}, server.name), state),
      control,
    );
    // Those of the gallery are programs; a folder of this program has the same name and may only be read.
    const description = server.transport === "stdio" ? this.#descriptions.get(server.name) : undefined;
    const lines = [description && h("p", {}, description), h("p", { class: "muted" }, joined(facts))];
    const error = server.error && !server.can_log_in && h("p", { class: "error" }, server.error);
    const list = tools.length > 0 && this.#tools(server.name, tools, isOpen);
    return h("section", { class: "server", "data-entry": server.name }, head, lines, error, this.#actionsOf(server.name).show(server), list);
  }

  /**
   * Test a server and show the result with it.
   *
   * @param {string} name
   */
  async test(name) {
    const actions = this.#actionsOf(name);
    actions.node.scrollIntoView({ block: "center" });
    await actions.test();
  }

  /** @param {string} name */
  #actionsOf(name) {
    const actions = this.#actions.get(name) ?? new ServerActions(name, () => this.load());
    this.#actions.set(name, actions);
    return actions;
  }

  /**
   * @param {string} server
   * @param {any[]} tools
   * @param {boolean} isOpen they were searched for
   */
  #tools(server, tools, isOpen) {
    const label = h("summary", {}, say("tools.count", { count: tools.length }));
    const list = h("ul", { class: "tools" });
    const details = h("details", {}, label, list);
    const draw = () => {
      if (list.childElementCount === 0) list.append(...tools.map((tool) => this.#tool(tool)));
    };
    details.addEventListener("toggle", () => {
      if (details.open) draw();
      if (isOpen) return;
      if (details.open) this.#unfolded.add(server);
      else this.#unfolded.delete(server);
    });
    details.open = isOpen || this.#unfolded.has(server);
    // The event comes later: what has the focus must be there now.
    if (details.open) draw();
    return details;
  }

  /** @param {any} tool */
  #tool(tool) {
    const name = nameOf(tool);
    const control = toggle(tool.enabled !== false, t("tools.switch_tool", { name: tool.name }), (isOn) =>
      this.#switch("tools", name, isOn),
    );
    control.dataset["control"] = `tool ${name}`;
    const kind = tool.destructive ? "tools.destructive" : tool.read_only ? "tools.read_only" : "";
    const badge = kind && h("span", { class: tool.destructive ? "badge caution" : "badge" }, say(kind));
    const cost = h("span", { class: "muted" }, tool.on_demand ? say("tools.on_demand") : say("tools.tokens", { count: tool.tokens ?? 0 }));
    const names = h("div", { class: "names" }, tool.title && h("strong", {}, tool.title), h("code", {}, tool.name), badge, cost);
    const head = h("div", { class: "server-head" }, names, control);
    return h("li", {}, head, h("p", { class: "muted as-written", dir: "auto" }, tool.description));
  }

  /**
   * @param {"servers" | "tools"} kind
   * @param {string} name
   * @param {boolean} isOn
   */
  async #switch(kind, name, isOn) {
    try {
      await api.post(`/v1/${kind}/${encodeURIComponent(name)}:${isOn ? "enable" : "disable"}`);
      await this.load();
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }
}
