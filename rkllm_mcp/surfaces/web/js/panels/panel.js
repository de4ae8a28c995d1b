/**
 * The drawer next to the conversation with its tabs; on a phone it covers the page. A tab's contents are loaded when it is
 * shown, and work that repeats ends when it is left.
 *
 * @typedef {{node: HTMLElement, load: () => unknown, leave?: () => void, reveal?: (part: string) => void}} Tab
 */
import { api } from "../access.js";
import { tabs } from "../buttons.js";
import { byId, h, tell } from "../dom.js";
import { say } from "../i18n.js";
import { sentenceOf } from "../problems.js";

// Tabs whose contents each board of several has for itself.
const PER_BOARD = new Set(["servers", "documents", "models", "board"]);

/**
 * A tab whose script is fetched when it is first shown.
 *
 * @param {() => Promise<Tab>} make
 * @returns {Tab}
 */
export function lateTab(make) {
  const node = h("div");
  /** @type {{tab: Tab | null, isShown: boolean}} */
  const state = { tab: null, isShown: false };
  return {
    node,
    load: async () => {
      state.isShown = true;
      try {
        state.tab ??= await make();
        if (node.firstChild !== state.tab.node) node.replaceChildren(state.tab.node);
        if (state.isShown) await state.tab.load();
      } catch (error) {
        node.replaceChildren(h("p", { class: "error" }, sentenceOf(error)));
      }
    },
    leave: () => {
      state.isShown = false;
      state.tab?.leave?.();
    },
    reveal: (part) => state.tab?.reveal?.(part),
  };
}

export class Panel {
  #node = byId("panel");
  #board = h("p", { class: "panel-board muted" });
  #tabs;
  #markTab;
  #shown = "";
  /** @type {HTMLElement | null} */
  #opener = null;
  #changed;

  /**
   * @param {Record<string, Tab>} given by name
   * @param {() => void} changed called when it opens and closes
   */
  constructor(given, changed) {
    this.#tabs = given;
    this.#changed = changed;
    const phrases = Object.fromEntries(Object.keys(given).map((name) => [name, `panel.${name}`]));
    this.#markTab = tabs(byId("panel-tabs"), phrases, byId("panel-content"), (name) => this.#show(name));
    byId("panel-close").addEventListener("click", () => this.close());
    for (const link of document.querySelectorAll("[data-panel]")) {
      link.addEventListener("click", () => this.#toggle(/** @type {HTMLElement} */ (link)));
    }
  }

  get isOpen() {
    return this.#shown !== "";
  }

  /** Load the visible tab again after a change. */
  refresh() {
    if (this.isOpen) this.#tabs[this.#shown]?.load();
  }

  close() {
    if (!this.isOpen) return;
    const hadFocus = this.#node.contains(document.activeElement);
    this.#leave();
    this.#node.hidden = true;
    this.#changed();
    if (hadFocus) this.#opener?.focus();
  }

  /**
   * Open it at one of its tabs, and there at a part that is folded otherwise.
   *
   * @param {string} name
   * @param {string} [part]
   */
  open(name, part = "") {
    this.#opener = /** @type {HTMLElement | null} */ (document.activeElement);
    const loaded = name === this.#shown ? null : this.#show(name);
    this.#mark()?.focus();
    if (part) void Promise.resolve(loaded).then(() => this.#tabs[name]?.reveal?.(part));
  }

  /** @param {HTMLElement} opener */
  #toggle(opener) {
    const name = opener.dataset["panel"] ?? "";
    if (name === this.#shown) {
      this.close();
      return;
    }
    this.#opener = opener;
    this.#show(name);
    this.#mark()?.focus();
  }

  /**
   * @param {string} name
   * @returns {unknown} what its loading returns
   */
  #show(name) {
    this.#leave();
    this.#shown = name;
    this.#node.hidden = false;
    const tab = /** @type {Tab} */ (this.#tabs[name]);
    byId("panel-content").replaceChildren(tab.node);
    const loaded = tab.load();
    void this.#nameBoard(name);
    this.#mark();
    this.#changed();
    return loaded;
  }

  /**
   * Say whose the contents are, where each board has its own.
   *
   * @param {string} name
   */
  async #nameBoard(name) {
    if (!PER_BOARD.has(name)) return;
    const { board } = await api.get("/v1/me").catch(() => ({ board: "" }));
    if (!board || (name === "documents" && (await hasSharedDocuments())) || name !== this.#shown) return;
    tell(this.#board, say(`panel.of_board.${name}`, { board }));
    byId("panel-content").prepend(this.#board);
  }

  #leave() {
    this.#tabs[this.#shown]?.leave?.();
    this.#shown = "";
    this.#mark();
  }

  /** @returns {HTMLElement | undefined} the tab that is shown */
  #mark() {
    for (const link of document.querySelectorAll("[data-panel]")) {
      link.setAttribute("aria-expanded", String(/** @type {HTMLElement} */ (link).dataset["panel"] === this.#shown));
    }
    const tab = this.#markTab(this.#shown);
    // With large text the tabs are wider than the panel.
    tab?.scrollIntoView({ block: "nearest", inline: "nearest" });
    return tab;
  }
}

/** A knowledge server with an address serves every board that names it; one that a board starts is that board's. */
async function hasSharedDocuments() {
  const { servers } = await api.get("/v1/servers").catch(() => ({ servers: [] }));
  return servers.some(
    (/** @type {{name: string, transport: string}} */ { name, transport }) =>
      name === "knowledge" && transport !== "stdio",
  );
}
