/**
 * The drawer beside the conversation with its tabs; on a phone it covers the page. A tab's contents are loaded when it is
 * shown, and work that repeats ends when it is left.
 *
 * @typedef {{node: HTMLElement, load: () => unknown, leave?: () => void}} Tab
 */
import { byId, h } from "../dom.js";
import { say } from "../i18n.js";
import { sentenceOf } from "../problems.js";

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
  };
}

export class Panel {
  #node = byId("panel");
  #names;
  #tabs;
  /** @type {Map<string, HTMLElement>} */
  #buttons = new Map();
  #shown = "";
  /** @type {HTMLElement | null} */
  #opener = null;
  #changed;

  /**
   * @param {Record<string, Tab>} tabs by name
   * @param {() => void} changed told when it opens and closes
   */
  constructor(tabs, changed) {
    this.#tabs = tabs;
    this.#names = Object.keys(tabs);
    this.#changed = changed;
    const list = byId("panel-tabs");
    for (const name of this.#names) list.append(this.#tabButton(name));
    list.addEventListener("keydown", (event) => this.#arrows(event));
    byId("panel-close").addEventListener("click", () => this.close());
    for (const link of document.querySelectorAll("[data-panel]")) {
      link.addEventListener("click", () => this.#toggle(/** @type {HTMLElement} */ (link)));
    }
  }

  get isOpen() {
    return this.#shown !== "";
  }

  /** Load what is shown again, because something has happened. */
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
   * Open it at one of its tabs.
   *
   * @param {string} name
   */
  open(name) {
    this.#opener = /** @type {HTMLElement | null} */ (document.activeElement);
    this.#show(name);
    this.#buttons.get(name)?.focus();
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
    this.#buttons.get(name)?.focus();
  }

  /** @param {string} name */
  #show(name) {
    this.#leave();
    this.#shown = name;
    this.#node.hidden = false;
    const tab = /** @type {Tab} */ (this.#tabs[name]);
    byId("panel-content").setAttribute("aria-labelledby", `tab-${name}`);
    byId("panel-content").replaceChildren(tab.node);
    tab.load();
    this.#mark();
    this.#changed();
  }

  #leave() {
    this.#tabs[this.#shown]?.leave?.();
    this.#shown = "";
    this.#mark();
  }

  #mark() {
    for (const [name, control] of this.#buttons) {
      control.setAttribute("aria-selected", String(name === this.#shown));
      control.tabIndex = name === this.#shown ? 0 : -1;
    }
    for (const link of document.querySelectorAll("[data-panel]")) {
      link.setAttribute("aria-expanded", String(/** @type {HTMLElement} */ (link).dataset["panel"] === this.#shown));
    }
  }

  /** @param {string} name */
  #tabButton(name) {
    const control = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": "panel-content",
        click: () => this.#show(name),
      },
      say(`panel.${name}`),
    );
    this.#buttons.set(name, control);
    return control;
  }

  /** @param {KeyboardEvent} event */
  #arrows(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = (this.#names.indexOf(this.#shown) + step + this.#names.length) % this.#names.length;
    const name = this.#names[place] ?? "";
    this.#show(name);
    this.#buttons.get(name)?.focus();
  }
}
