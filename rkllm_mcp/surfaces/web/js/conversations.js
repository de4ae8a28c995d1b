/**
 * The list of conversations: found by their words, opened by their addresses, renamed, exported and deleted.
 *
 * @typedef {{id: string, title: string, updated: number | string, created: number | string, messages: number,
 *   pinned?: boolean, passage?: string}} Entry
 */
import { api } from "./access.js";
import { ConnectionLost } from "./api.js";
import { button, choices, iconButton } from "./buttons.js";
import { openDialog } from "./dialogs/dialog.js";
import { written } from "./dialogs/small.js";
import { byId, fill, h, icon, tell } from "./dom.js";
import { language, moment, named, say, t } from "./i18n.js";
import { openMenu } from "./menu.js";
import { sentenceOf } from "./problems.js";
import { addressOf } from "./router.js";
import { secondsOf } from "./time.js";
import { showToast } from "./toast.js";
import { pieces } from "./words.js";

const PAGE = 50;
// The board lists no more at once; older ones are found by their words.
const MOST = 500;
const TYPING_MS = 200;
// The board writes a title some seconds after the first answers, a slow one after more of them.
const TITLED_MS = [8_000, 20_000];
const MOST_UNTITLED = 6;
const DAY_MS = 86_400_000;

export class Conversations {
  /** @type {Entry[]} */
  #entries = [];
  #list = byId("conversations");
  #note = byId("conversations-note");
  #search = /** @type {HTMLInputElement} */ (byId("conversation-search"));
  #open = "";
  /** @type {{id: string, title: string}[]} */
  #running = [];
  #told;
  #limit = PAGE;
  #count = 0;
  #drawn = "";
  /** @type {Map<string, () => void>} those that are deleted in a moment */
  #leaving = new Map();
  /** Whether the key of this page deletes conversations. */
  mayDelete = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #titling;

  /**
   * @param {{gone: (id: string) => void, loaded: () => void, settings: (id: string) => Promise<void>}} told callbacks for the deleted one,
   *   when the list is new, and whose settings are wanted
   */
  constructor(told) {
    this.#told = told;
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.load(), TYPING_MS);
    });
  }

  async load() {
    const search = this.#search.value.trim();
    try {
      const { conversations, count } = await api.get("/v1/conversations", { limit: this.#limit, search });
      // A newer search is already running.
      if (search !== this.#search.value.trim()) return;
      this.#entries = conversations;
      this.#count = count;
      this.#draw();
      this.#told.loaded();
    } catch (error) {
      // The line above the field says that the board is away, and what is listed stays.
      tell(this.#note, error instanceof ConnectionLost ? "" : sentenceOf(error));
    }
  }

  /**
   * Load the list again once the board has had time to write a title; twice at most.
   *
   * @param {string} id of a conversation that was answered
   */
  awaitTitle(id, pauses = TITLED_MS) {
    const entry = this.#entries.find((each) => each.id === id);
    const [pause, ...rest] = pauses;
    clearTimeout(this.#titling);
    if (!entry || entry.messages > MOST_UNTITLED || pause === undefined) return;
    this.#titling = setTimeout(async () => {
      // A page that comes back loads the list anyway.
      if (document.visibilityState === "visible") await this.load();
      if (this.titleOf(id) === entry.title) this.awaitTitle(id, rest);
    }, pause);
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
   * @param {HTMLElement} from the button that asks
   * @param {string} id empty for a new one
   * @param {string} [called] its title where the list has none yet
   */
  manage(from, id, called = "") {
    const title = this.titleOf(id) || called;
    const shown = title || t("conversations.untitled");
    const isPinned = this.#entries.find((entry) => entry.id === id)?.pinned ?? false;
    const act = (/** @type {() => Promise<void>} */ work) => () => void this.#attempt(work);
    const stored = [
      { phrase: "conversations.rename", act: act(() => this.#rename(id, title)) },
      {
        phrase: isPinned ? "conversations.unpin" : "conversations.pin",
        act: act(() => this.#change(id, { pinned: !isPinned })),
      },
      { phrase: "conversations.markdown", act: act(() => this.#export(id, shown, "markdown")) },
      { phrase: "conversations.json", act: act(() => this.#export(id, shown, "json")) },
      ...(this.mayDelete ? [{ phrase: "conversations.delete", act: () => this.#delete(id), isDanger: true }] : []),
    ];
    const settings = { phrase: "conversations.settings", act: act(() => this.#told.settings(id)) };
    openMenu(from, id === this.#open ? [settings, ...(id ? stored : [])] : stored);
  }

  /**
   * @param {string} id
   * @param {string} title
   */
  async #rename(id, title) {
    const name = await written("conversations.rename", "conversations.title", title);
    if (!name) return;
    await this.#change(id, { title: name });
  }

  /**
   * @param {string} id
   * @param {object} values
   */
  async #change(id, values) {
    await api.patch(`/v1/conversations/${encodeURIComponent(id)}`, values);
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
    const blob = await api.blob(`/v1/conversations/${encodeURIComponent(id)}/export?format=${format}`);
    const name =
      title
        .replaceAll(/[\\/:*?"<>|\p{Cc}]/gu, " ")
        .trim()
        .slice(0, 80) || "conversation";
    saveAs(blob, `${name}.${format === "markdown" ? "md" : "json"}`);
  }

  /**
   * Leave it out at once, and delete it unless it is asked for back.
   *
   * @param {string} id
   */
  #delete(id) {
    const finish = () => {
      if (!this.#leaving.delete(id)) return;
      void this.#attempt(() => api.delete(`/v1/conversations/${encodeURIComponent(id)}`).then(() => this.load()));
    };
    const keep = () => {
      if (!this.#leaving.delete(id)) return;
      this.#draw();
      location.hash = addressOf(id);
    };
    this.#leaving.set(id, finish);
    this.#told.gone(id);
    this.#draw();
    showToast("conversations.deleted", "conversations.undo", keep, finish);
  }

  /** Nothing can be asked for back any more. */
  settle() {
    for (const finish of [...this.#leaving.values()]) finish();
  }

  /** @param {() => Promise<void>} work */
  async #attempt(work) {
    try {
      await work();
    } catch (error) {
      await openDialog("problem.title", {}, (close) => [
        h("p", { role: "alert" }, sentenceOf(error)),
        choices(button("close", () => close())),
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
    ].filter(({ id }) => !this.#leaving.has(id));
    tell(this.#note, rows.length === 0 ? say(none) : "");
    // Drawn anew under a finger, a row would miss the click that it is about to get.
    const drawn = JSON.stringify([rows, this.#search.value, this.#count, this.#open, this.#running, language()]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset["entry"];
    const more = () => {
      this.#limit = Math.min(MOST, this.#limit + PAGE);
      return this.load();
    };
    const isCut = this.#count > this.#entries.length && this.#limit < MOST;
    const older = isCut && h("li", {}, button("conversations.older", more, { class: "quiet" }));
    let group = "";
    const nodes = rows.flatMap((entry) => {
      const before = group;
      group = groupOf(entry);
      const head = group !== before && h("li", { class: "group" }, h("h2", {}, say(`conversations.${group}`)));
      return head ? [head, this.#row(entry)] : [this.#row(entry)];
    });
    fill(this.#list, nodes, older);
    // Drawn anew, the row keeps the focus that it had.
    if (focused)
      /** @type {HTMLElement | null} */ (this.#list.querySelector(`[data-entry="${CSS.escape(focused)}"]`))?.focus();
  }

  /**
   * A text with what was searched marked in it.
   *
   * @param {string} text
   */
  #marked(text) {
    const words = this.#search.value.trim();
    return pieces(text, words).map((piece, place) => (place % 2 ? h("mark", {}, piece) : piece));
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
      h("span", { class: "one-line", dir: "auto" }, this.#marked(title)),
      dots,
      when,
      entry.passage && h("span", { class: "muted excerpt one-line", dir: "auto" }, this.#marked(entry.passage)),
    );
    const manage = (/** @type {Event} */ event) =>
      this.manage(/** @type {HTMLElement} */ (event.currentTarget), entry.id, entry.title);
    const more = iconButton("more", "conversations.actions_of", manage, {
      ...named("conversations.actions_of", { title }),
      "data-entry": `${entry.id} more`,
    });
    return h("li", { class: isOpen && "open" }, link, more);
  }
}

/**
 * @param {Blob} blob
 * @param {string} name of the file
 */
export function saveAs(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * The part of the list that a conversation belongs to.
 *
 * @param {Entry} entry
 */
function groupOf(entry) {
  if (entry.pinned) return "pinned";
  const day = new Date(secondsOf(entry.updated || entry.created) * 1000).setHours(0, 0, 0, 0);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - day) / DAY_MS);
  return days <= 0 ? "today" : days === 1 ? "yesterday" : days <= 7 ? "week" : "before";
}
