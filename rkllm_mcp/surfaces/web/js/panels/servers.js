/** Servers: those in use with their tools, those to add, permanent approvals, and the calls of the tools. */
import { api } from "../access.js";
import { button } from "../buttons.js";
import { announce } from "../chat/announcer.js";
import { fill, h } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { HistoryPanel } from "./history.js";
import { serversToAdd } from "./new_server.js";
import { ToolsPanel } from "./tools.js";

export class ServersPanel {
  node = h("div", { class: "panel-body" });
  #tools = new ToolsPanel();
  #history = new HistoryPanel();
  #isRevealing = false;
  /** @type {Promise<void>} the servers are shown */
  #loading = Promise.resolve();
  #link = { add: "", name: "" };
  #adding = this.#fold("servers.add", (place) => this.#gallery(place));

  constructor() {
    this.node.append(
      this.#tools.node,
      this.#adding,
      this.#fold("servers.permissions", (place) => this.#permissions(place)),
      this.#fold("servers.activity", async (place) => {
        fill(place, this.#history.node);
        await this.#history.load();
      }),
    );
  }

  load() {
    this.#loading = this.#tools.load();
    return this.#loading;
  }

  /**
   * Unfold a part and bring it into view.
   *
   * @param {string} part
   */
  reveal(part) {
    const [name, query = ""] = part.split("?");
    if (name !== "add") return;
    const link = new URLSearchParams(query);
    this.#link = { add: link.get("add-server") ?? "", name: link.get("name") ?? "" };
    this.#isRevealing = true;
    // Opened again it is fetched again, for another link.
    if (this.#adding.open) void this.#gallery(/** @type {HTMLElement} */ (this.#adding.querySelector(".fold-body")));
    this.#adding.open = true;
    this.#adding.querySelector("summary")?.focus();
  }

  /**
   * A part that is fetched whenever it is unfolded.
   *
   * @param {string} phrase
   * @param {(place: HTMLElement) => Promise<void>} show
   */
  #fold(phrase, show) {
    const place = h("div", { class: "fold-body" });
    const details = h("details", { class: "fold" }, h("summary", {}, say(phrase)), place);
    details.addEventListener("toggle", async () => {
      if (!details.open) return;
      await show(place).catch((error) => fill(place, h("p", { class: "error", role: "alert" }, sentenceOf(error))));
      // What came may be below the edge of the panel, also since the servers above it came later.
      await this.#loading;
      details.scrollIntoView({ block: "nearest" });
    });
    return details;
  }

  /** @param {HTMLElement} place */
  async #gallery(place) {
    const added = async (/** @type {string} */ name) => {
      await this.#tools.load();
      if (name) await this.#tools.test(name);
    };
    const link = this.#link;
    this.#link = { add: "", name: "" };
    fill(place, await serversToAdd(added, link));
    // Its place is known when it has its contents.
    if (this.#isRevealing) this.#adding.scrollIntoView({ block: "start" });
    this.#isRevealing = false;
  }

  /** @param {HTMLElement} place */
  async #permissions(place) {
    const { permissions } = await api.get("/v1/approvals/lasting");
    const forget = async (/** @type {any} */ { server, tool }) => {
      const query = new URLSearchParams({ server, tool });
      await api.delete(`/v1/approvals/lasting?${query}`);
      announce(t("servers.forgotten"));
      await this.#permissions(place);
      /** @type {HTMLElement | null} */ (place.closest("details")?.querySelector("summary") ?? null)?.focus();
    };
    fill(
      place,
      permissions.length === 0 && h("p", { class: "muted" }, say("servers.no_permissions")),
      permissions.map((/** @type {any} */ permission) =>
        h(
          "div",
          { class: "server-head" },
          h(
            "div",
            { class: "names" },
            h("code", {}, permission.server ? `${permission.server} / ${permission.tool}` : permission.tool),
            h("span", { class: permission.kind === "never" ? "badge caution" : "badge" }, say(`permission.${permission.kind}`)),
          ),
          button("servers.forget", () => forget(permission), { class: "quiet" }),
        ),
      ),
    );
  }
}
