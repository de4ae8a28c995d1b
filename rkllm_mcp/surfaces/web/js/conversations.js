/**
 * The list of conversations: found by their words, opened by their addresses, renamed, exported and deleted.
 *
 * @typedef {import("./api.js").Api} Api
 * @typedef {{id: string, title: string, updated: number | string, created: number | string, messages: number}} Entry
 */
import { announce } from "./chat/announcer.js";
import { button, iconButton } from "./buttons.js";
import { openDialog } from "./dialogs/dialog.js";
import { confirmed, written } from "./dialogs/small.js";
import { byId, fill, h, icon, tell } from "./dom.js";
import { language, moment, named, say, t } from "./i18n.js";
import { sentenceOf } from "./problems.js";
import { addressOf } from "./router.js";
import { secondsOf } from "./time.js";

const PAGE = 50;
// The board lists no more at once; older ones are found by their words.
const MOST = 500;
const TYPING_MS = 200;

export class Conversations {
  /** @type {Entry[]} */
  #entries = [];
  #list = byId("conversations");
  #note = byId("conversations-note");
  #search = /** @type {HTMLInputElement} */ (byId("conversation-search"));
  #api;
  #open = "";
  /** @type {{id: string, title: string}[]} */
  #running = [];
  #told;
  #limit = PAGE;
  #count = 0;
  #drawn = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;

  /**
   * @param {Api} api
   * @param {{gone: (id: string) => void, loaded: () => void}} told which one was deleted, and when the list is new
   */
  constructor(api, told) {
    this.#api = api;
    this.#told = told;
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.load(), TYPING_MS);
    });
  }

  async load() {
    const search = this.#search.value.trim();
    try {
      const { conversations, count } = await this.#api.get("/v1/conversations", { limit: this.#limit, search });
      // What was typed since then is already being looked for.
      if (search !== this.#search.value.trim()) return;
      this.#entries = conversations;
      this.#count = count;
      this.#draw();
      this.#told.loaded();
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }

  /**
   * @param {string} id of the one that is on the page; empty for a new one
   * @param {{id: string, title: string}[]} running those that are being answered
   */
  mark(id, running) {
    this.#open = id;
    this.#running = running;
    this.#draw();
  }

  /** @param {string} id */
  titleOf(id) {
    return this.#entries.find((entry) => entry.id === id)?.title ?? "";
  }

  /**
   * What can be done with a conversation.
   *
   * @param {string} id
   * @param {string} [called] its title where the list has none yet
   */
  async manage(id, called) {
    const title = this.titleOf(id) || called || t("conversations.untitled");
    const action = await openDialog("conversations.actions", {}, (close) => [
      h("p", { class: "one-line" }, h("strong", {}, title)),
      h(
        "div",
        { class: "menu" },
        ["rename", "markdown", "json", "delete"].map((name) =>
          button(`conversations.${name}`, () => close(name), { class: name === "delete" && "danger" }),
        ),
      ),
    ]);
    await this.#attempt(async () => {
      if (action === "rename") await this.#rename(id, this.titleOf(id) || (called ?? ""));
      if (action === "markdown" || action === "json") await this.#export(id, title, action);
      if (action === "delete") await this.#delete(id, title);
    });
  }

  /**
   * @param {string} id
   * @param {string} title
   */
  async #rename(id, title) {
    const name = await written("conversations.rename", "conversations.title", title);
    if (!name) return;
    await this.#api.patch(`/v1/conversations/${encodeURIComponent(id)}`, { title: name });
    await this.load();
  }

  /**
   * Save it as a file. It is fetched with the key in a header, as everything is; a plain link could not do that.
   *
   * @param {string} id
   * @param {string} title
   * @param {"markdown" | "json"} format
   */
  async #export(id, title, format) {
    const blob = await this.#api.blob(`/v1/conversations/${encodeURIComponent(id)}/export?format=${format}`);
    const address = URL.createObjectURL(blob);
    const name =
      title
        .replaceAll(/[\\/:*?"<>|\p{Cc}]/gu, " ")
        .trim()
        .slice(0, 80) || "conversation";
    h("a", { href: address, download: `${name}.${format === "markdown" ? "md" : "json"}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  /**
   * @param {string} id
   * @param {string} title
   */
  async #delete(id, title) {
    if (!(await confirmed("conversations.delete", "conversations.delete_question", { title }, "conversations.delete")))
      return;
    await this.#api.delete(`/v1/conversations/${encodeURIComponent(id)}`);
    announce(t("conversations.deleted"));
    this.#told.gone(id);
    await this.load();
  }

  /** @param {() => Promise<void>} work */
  async #attempt(work) {
    try {
      await work();
    } catch (error) {
      await openDialog("problem.title", {}, (close) => [
        h("p", { role: "alert" }, sentenceOf(error)),
        h(
          "div",
          { class: "choices" },
          button("close", () => close()),
        ),
      ]);
    }
  }

  #draw() {
    const none = this.#search.value.trim() ? "conversations.none_found" : "conversations.none";
    // A new one is not in the board's list before its first answer is over.
    const begun = this.#running.filter(({ id }) => !this.#entries.some((entry) => entry.id === id));
    const now = Date.now() / 1000;
    const rows = [
      ...begun.map(({ id, title }) => ({ id, title, updated: now, created: now, messages: 1 })),
      ...this.#entries,
    ];
    tell(this.#note, rows.length === 0 ? say(none) : "");
    // Drawn anew under somebody's finger, a row would miss the click that it is about to get.
    const drawn = JSON.stringify([rows, this.#count, this.#open, this.#running, language()]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset["entry"];
    const older =
      this.#count > this.#entries.length &&
      this.#limit < MOST &&
      h(
        "li",
        {},
        button("conversations.older", () => this.#more(), { class: "quiet" }),
      );
    fill(
      this.#list,
      rows.map((entry) => this.#row(entry)),
      older,
    );
    // Drawn anew, the row keeps the focus that it had.
    if (focused)
      /** @type {HTMLElement | null} */ (this.#list.querySelector(`[data-entry="${CSS.escape(focused)}"]`))?.focus();
  }

  #more() {
    this.#limit = Math.min(MOST, this.#limit + PAGE);
    return this.load();
  }

  /** @param {Entry} entry */
  #row(entry) {
    const title = entry.title || t("conversations.untitled");
    const isOpen = entry.id === this.#open;
    const when = h("span", { class: "muted when" }, moment(secondsOf(entry.updated || entry.created)));
    const dots =
      this.#running.some(({ id }) => id === entry.id) &&
      h("span", { class: "running", ...named("chat.working") }, icon("dots"));
    const link = h(
      "a",
      { href: addressOf(entry.id), "aria-current": isOpen && "page", "data-entry": entry.id },
      h("span", { class: "one-line", dir: "auto" }, title),
      dots,
      when,
    );
    const more = iconButton("more", "conversations.actions_of", () => this.manage(entry.id), {
      ...named("conversations.actions_of", { title }),
      "data-entry": `${entry.id} more`,
    });
    return h("li", { class: isOpen && "open" }, link, more);
  }
}
