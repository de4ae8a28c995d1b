/**
 * What goes with the next question: files that are chosen, dropped or pasted, and resources of servers. Each is read by
 * the board and shown with its cost before anything is sent; a file that does not fit has choices. A long paste
 * becomes a file, one tap makes it text again.
 *
 * @typedef {{name: string, text: string, pages: number[], reference: string, tokens: number, isPaste: boolean,
 *   note: string, problem: string, isReading: boolean, file: File | null}} Attached `text` goes with the question, or else
 *   `reference`; `pages` has the position of each in the text; `note` replaces the tokens
 */
import { api } from "../access.js";
import { Refusal } from "../api.js";
import { button, iconButton } from "../buttons.js";
import { byId, fill, h, icon } from "../dom.js";
import { labelled, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { announce } from "./announcer.js";

// A paste that would take this part of the window becomes a file; the characters are what a token has at the least.
const PASTE_SHARE = 0.15;
const CHARS_PER_TOKEN = 2;
const LARGEST = 50_000_000;
// Tokens are not spread evenly over a text, so a part that is to fit is chosen a little shorter.
const MARGIN = 0.97;
// The browser reads these by itself.
const PLAIN = /^text\/|\/(json|xml|x-yaml|yaml|toml|javascript|x-sh)$|\+(json|xml)$/;
const PLAIN_NAMES = /\.(txt|md|csv|tsv|json|ya?ml|toml|ini|log|py|js|ts|c|h|cpp|rs|go|java|sh|sql|css|diff)$/i;

export class Files {
  #place = byId("files");
  #drop = byId("drop");
  #actions;
  /** @type {Attached[]} */
  #files = [];
  #window = 4096;
  #room = 4096;

  /**
   * @param {{write: (text: string) => void, store: (file: File) => Promise<void>,
   *   search: (tool: import("./options.js").Tool) => void, changed: () => void}} actions
   */
  constructor(actions) {
    this.#actions = actions;
    byId("question").addEventListener("paste", (event) => this.#paste(/** @type {ClipboardEvent} */ (event)));
    addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.#drop.hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) this.#drop.hidden = true;
    });
    addEventListener("drop", (event) => {
      this.#drop.hidden = true;
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  /**
   * @param {number} size of the model's window, tokens; 0 when it is not known
   * @param {number} tools what the tools take of it
   */
  fits(size, tools) {
    this.#window = size || this.#window;
    this.#room = this.#window - tools;
    this.#show();
  }

  /** The part of the context window that they need. */
  get tokens() {
    return this.#files.reduce((sum, { tokens, problem }) => sum + (problem ? 0 : tokens), 0);
  }

  get isReading() {
    return this.#files.some(({ isReading }) => isReading);
  }

  /**
   * The question with its files and resources in front of it.
   *
   * @param {string} message
   */
  with(message) {
    const parts = this.#files.filter(({ problem }) => !problem).map(({ name, text, reference }) =>
      text ? `${name}:\n\`\`\`\`\n${text.trim()}\n\`\`\`\`` : reference,
    );
    return [...parts.filter(Boolean), message].join("\n\n");
  }

  /** They went with a question. */
  spent() {
    this.#files = [];
    this.#show();
  }

  /** @param {File[]} files */
  add(files) {
    for (const file of files) void this.#fill(this.#begin({ name: file.name, file }), () => this.#read(file));
  }

  /** @param {import("../dialogs/offers.js").Resource} resource */
  addResource({ server, uri, name }) {
    const entry = this.#begin({ name, reference: `@${server}:${/^[!-~]*[\w/]$/.test(uri) ? uri : `<${uri}>`}` });
    void this.#fill(entry, async () => {
      const { tokens, contents } = await api.get("/v1/resources/read", { server, uri });
      return { tokens: tokens ?? estimate(JSON.stringify(contents)) };
    });
  }

  /**
   * @param {Partial<Attached>} given
   * @returns {Attached}
   */
  #begin(given) {
    const blank = { name: "", text: "", pages: [], reference: "", tokens: 0, isPaste: false, note: "", problem: "" };
    const entry = { ...blank, isReading: true, file: null, ...given };
    this.#files.push(entry);
    this.#show();
    return entry;
  }

  /**
   * Update an entry; it shows its own error.
   *
   * @param {Attached} entry
   * @param {() => Promise<Partial<Attached>>} work
   */
  async #fill(entry, work) {
    entry.isReading = true;
    this.#show();
    try {
      Object.assign(entry, { note: "" }, await work());
    } catch (error) {
      const isReaderless = error instanceof Refusal && error.code === "no_knowledge_server";
      const said = isReaderless ? t("file.no_reader") : sentenceOf(error);
      // The earlier files are still valid.
      if (entry.text) entry.note = said;
      else entry.problem = said;
    }
    entry.isReading = false;
    if (!this.#files.includes(entry)) return;
    announce(entry.problem || entry.note || t("file.read", { name: entry.name, count: entry.tokens }));
    this.#show();
  }

  /**
   * @param {File} file
   * @returns {Promise<Partial<Attached>>}
   */
  async #read(file) {
    if (file.type.startsWith("image/")) return { problem: t("file.image") };
    if (file.size > LARGEST) return { problem: t("file.large") };
    if (PLAIN.test(file.type) || PLAIN_NAMES.test(file.name)) return this.#counted(await file.text());
    const { text, pages = [], tokens } = await api.upload("/v1/attachments", file);
    return { text, pages, tokens: tokens ?? estimate(text) };
  }

  /** @param {string} text */
  async #counted(text) {
    const { tokens } = await api.post("/v1/tokens", { texts: [text] }).catch(() => ({ tokens: null }));
    return { text, tokens: tokens ?? estimate(text) };
  }

  /** @param {ClipboardEvent} event */
  #paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (files.length > 0 && !text) {
      event.preventDefault();
      this.add(files);
    } else if (text.length > this.#window * PASTE_SHARE * CHARS_PER_TOKEN) {
      event.preventDefault();
      announce(t("file.pasted"));
      void this.#fill(this.#begin({ name: t("file.paste"), text, isPaste: true }), () => this.#counted(text));
    }
  }

  #show() {
    const over = this.tokens - this.#room;
    this.#actions.changed();
    const counted = this.#files.filter(({ isReading, problem }) => !isReading && !problem);
    const large = counted.sort((one, other) => other.tokens - one.tokens)[0];
    fill(
      this.#place,
      this.#files.map((entry) => this.#chip(entry)),
      over > 0 && h("p", { class: "error", role: "alert" }, say("file.too_many", { n: over })),
      over > 0 && large && this.#choices(large, large.tokens - over),
    );
  }

  /**
   * What can be done about the largest one when all together do not fit.
   *
   * @param {Attached} entry
   * @param {number} room for it, tokens
   */
  #choices(entry, room) {
    const { name, text, pages, tokens } = entry;
    const part = Math.floor(((text.length * room) / tokens) * MARGIN);
    const whole = pages.filter((_, place) => (pages[place + 1] ?? text.length) <= part).length;
    const end = whole > 0 ? (pages[whole] ?? text.length) : Math.max(text.lastIndexOf("\n", part), Math.floor(part / 2));
    const shorten = async () => {
      const phrase = whole > 0 ? "file.name_pages" : "file.name_beginning";
      const short = await this.#counted(text.slice(0, end).trim());
      return { ...short, name: t(phrase, { name, n: whole }), pages: pages.slice(0, whole) };
    };
    return h(
      "div",
      { class: "choices file-choices", role: "group", ...labelled("file.choices") },
      text && button("file.index", () => this.#fill(entry, () => this.#stored(entry))),
      text && end > 0 && button(whole > 0 ? "file.pages" : "file.beginning", () => this.#fill(entry, shorten), {}, { n: whole }),
      button("file.leave", () => this.#remove(entry), {}, { name }),
    );
  }

  /**
   * Put a file into the documents; the answer then begins with a search in them.
   *
   * @param {Attached} entry
   */
  async #stored({ name, text, file }) {
    await this.#actions.store(file ?? new File([text], `${name}.txt`, { type: "text/plain" }));
    const { tools } = await api.get("/v1/tools");
    const tool = tools.find((/** @type {any} */ each) => each.enabled && each.name.endsWith("search_documents"));
    if (tool) this.#actions.search({ name: tool.qualified_name, shown: tool.name });
    return { text: "", tokens: 0, reference: t("file.stored", { name }), note: t("file.searched") };
  }

  /** @param {Attached} entry */
  #chip(entry) {
    const tokens = t("tools.tokens", { count: entry.tokens });
    const said = entry.problem || (entry.isReading ? t("loading") : entry.note || tokens);
    const asText = () => {
      this.#remove(entry);
      this.#actions.write(entry.text);
    };
    return h(
      "div",
      { class: entry.problem ? "chosen-option file refused" : "chosen-option file" },
      icon(entry.problem ? "warning" : entry.reference ? "clip" : "file"),
      h("span", { class: "file-words" }, h("span", { class: "one-line", dir: "auto" }, entry.name), h("span", { class: "muted small" }, said)),
      entry.isPaste && button("file.as_text", asText, { class: "quiet" }),
      iconButton("close", "file.remove", () => this.#remove(entry)),
    );
  }

  /** @param {Attached} entry */
  #remove(entry) {
    this.#files = this.#files.filter((other) => other !== entry);
    this.#show();
    byId("question").focus();
  }
}

/** @param {string} text */
function estimate(text) {
  return Math.ceil(text.length / CHARS_PER_TOKEN);
}
