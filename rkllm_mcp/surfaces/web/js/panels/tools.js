/**
 * Servers and their tools: how they are, what each costs of the model's window, and switches for both.
 *
 * @typedef {import("../api.js").Api} Api
 */
import { toggle } from "../buttons.js";
import { h } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";

export class ToolsPanel {
  node = h("div", { class: "panel-body" });
  #note = h("p", { class: "muted", role: "status" }, say("loading"));
  #list = h("div");
  /** @type {Set<string>} servers whose tools are shown */
  #unfolded = new Set();
  #api;

  /** @param {Api} api */
  constructor(api) {
    this.#api = api;
    this.node.append(this.#note, this.#list);
  }

  async load() {
    try {
      const [{ servers }, { tools, tokens }, board] = await Promise.all([
        this.#api.get("/v1/servers"),
        this.#api.get("/v1/tools"),
        this.#window(),
      ]);
      this.#show(servers, tools, tokens, board);
    } catch (error) {
      this.#note.textContent = sentenceOf(error);
    }
  }

  async #window() {
    const { context_tokens: size } = await this.#api.get("/v1/board");
    return Number(size) || 0;
  }

  /**
   * @param {any[]} servers
   * @param {any[]} tools
   * @param {number} tokens what all that is switched on costs
   * @param {number} size of the model's window, tokens; 0 when it is not known
   */
  #show(servers, tools, tokens, size) {
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset["control"];
    const cost = h("p", { id: "tools-cost" }, say("tools.cost", { tokens, size: size || "?" }));
    const meter =
      size > 0 && h("meter", { min: 0, max: size, high: size / 2, value: tokens, "aria-labelledby": "tools-cost" });
    this.#note.replaceChildren(servers.length === 0 && tools.length === 0 ? say("tools.none") : "");
    const own = tools.filter((tool) => !servers.some((server) => server.name === tool.server));
    const cards = servers.map((server) =>
      this.#server(
        server,
        tools.filter((tool) => tool.server === server.name),
      ),
    );
    if (own.length > 0) cards.push(h("section", { class: "server" }, this.#tools("", own)));
    this.#list.replaceChildren(cost, meter || "", ...cards);
    if (focused)
      /** @type {HTMLElement | null} */ (this.#list.querySelector(`[data-control="${CSS.escape(focused)}"]`))?.focus();
  }

  /**
   * @param {any} server
   * @param {any[]} tools
   */
  #server(server, tools) {
    const control = toggle(server.enabled !== false, t("tools.switch_server", { name: server.name }), (isOn) =>
      this.#switch("servers", server.name, isOn),
    );
    control.dataset["control"] = `server ${server.name}`;
    const state = h("span", { class: "badge", "data-state": server.state }, stateWord(server.state));
    const facts = [server.transport, server.tokens ? say("tools.tokens", { count: server.tokens }) : null].filter(
      Boolean,
    );
    const head = h(
      "div",
      { class: "server-head" },
      h("div", { class: "names" }, h("h3", {}, server.name), state),
      control,
    );
    const line = h(
      "p",
      { class: "muted" },
      facts.flatMap((fact, place) => (place > 0 ? [" · ", fact] : [fact])),
    );
    const error = server.error && h("p", { class: "error" }, server.error);
    return h("section", { class: "server" }, head, line, error, tools.length > 0 && this.#tools(server.name, tools));
  }

  /**
   * @param {string} server
   * @param {any[]} tools
   */
  #tools(server, tools) {
    const label = h("summary", {}, say("tools.count", { count: tools.length }));
    const details = h(
      "details",
      { open: this.#unfolded.has(server) },
      label,
      h(
        "ul",
        { class: "tools" },
        tools.map((tool) => this.#tool(tool)),
      ),
    );
    details.addEventListener("toggle", () =>
      details.open ? this.#unfolded.add(server) : this.#unfolded.delete(server),
    );
    return details;
  }

  /** @param {any} tool */
  #tool(tool) {
    const name = tool.qualified_name || tool.name;
    const control = toggle(tool.enabled !== false, t("tools.switch_tool", { name: tool.name }), (isOn) =>
      this.#switch("tools", name, isOn),
    );
    control.dataset["control"] = `tool ${name}`;
    const kind = tool.destructive ? "tools.destructive" : tool.read_only ? "tools.read_only" : "";
    const badge = kind && h("span", { class: tool.destructive ? "badge caution" : "badge" }, say(kind));
    const cost = h("span", { class: "muted" }, say("tools.tokens", { count: tool.tokens ?? 0 }));
    const names = h("div", { class: "names" }, h("code", {}, tool.name), badge, cost);
    const head = h("div", { class: "server-head" }, names, control);
    return h("li", {}, head, h("p", { class: "muted as-written" }, tool.description));
  }

  /**
   * @param {"servers" | "tools"} kind
   * @param {string} name
   * @param {boolean} isOn
   */
  async #switch(kind, name, isOn) {
    try {
      await this.#api.post(`/v1/${kind}/${encodeURIComponent(name)}:${isOn ? "enable" : "disable"}`);
      await this.load();
    } catch (error) {
      this.#note.textContent = sentenceOf(error);
    }
  }
}

/** @param {string} state */
function stateWord(state) {
  const phrase = `server.${state}`;
  return ["server.ready", "server.waiting", "server.connecting", "server.failed", "server.died"].includes(phrase)
    ? say(phrase)
    : state;
}
