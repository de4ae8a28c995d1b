/**
 * Files of the next question: chosen, dropped or pasted, read by the board, and shown with what they cost before anything
 * is sent. A long paste becomes a file, one tap makes it text again.
 *
 * @typedef {{name: string, text: string, tokens: number, isPaste: boolean, problem: string, isReading: boolean,
 *   file: File | null}} Attached
 */
import { Refusal } from "../api.js";
import { button, iconButton } from "../buttons.js";
import { byId, fill, h, icon } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { announce } from "./announcer.js";

// A paste that would take this part of the window becomes a file; the characters are what a token has at the least.
const PASTE_SHARE = 0.15;
const CHARS_PER_TOKEN = 2;
const LARGEST = 50_000_000;
// The browser reads these by itself.
const PLAIN = /^text\/|\/(json|xml|x-yaml|yaml|toml|javascript|x-sh)$|\+(json|xml)$/;
const PLAIN_NAMES = /\.(txt|md|csv|tsv|json|ya?ml|toml|ini|log|py|js|ts|c|h|cpp|rs|go|java|sh|sql|css|diff)$/i;

export class Files {
  #place = byId("files");
  #drop = byId("drop");
  #api;
  #actions;
  /** @type {Attached[]} */
  #files = [];
  #window = 4096;

  /**
   * @param {import("../api.js").Api} api
   * @param {{write: (text: string) => void, index: (file: File) => void, changed: () => void}} actions
   */
  constructor(api, actions) {
    this.#api = api;
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

  /** @param {number} size of the model's window, tokens; 0 when it is not known */
  fits(size) {
    this.#window = size || this.#window;
  }

  /** What they take of the window. */
  get tokens() {
    return this.#files.reduce((sum, { tokens, problem }) => sum + (problem ? 0 : tokens), 0);
  }

  get isReading() {
    return this.#files.some(({ isReading }) => isReading);
  }

  /**
   * The question with its files in front of it.
   *
   * @param {string} message
   */
  with(message) {
    const read = this.#files.filter(({ text, problem }) => text && !problem);
    const parts = read.map(({ name, text }) => `${name}:\n\`\`\`\`\n${text.trim()}\n\`\`\`\``);
    return [...parts, message].join("\n\n");
  }

  /** They went with a question. */
  spent() {
    this.#files = [];
    this.#show();
  }

  /** @param {File[]} files */
  add(files) {
    for (const file of files) void this.#take(file);
  }

  /** @param {File} file */
  async #take(file) {
    const entry = { name: file.name, text: "", tokens: 0, isPaste: false, problem: "", isReading: true, file };
    this.#files.push(entry);
    this.#show();
    try {
      if (file.type.startsWith("image/")) entry.problem = t("file.image");
      else if (file.size > LARGEST) entry.problem = t("file.large");
      else if (PLAIN.test(file.type) || PLAIN_NAMES.test(file.name)) await this.#count(entry, await file.text());
      else {
        const { text, tokens } = await this.#api.upload("/v1/attachments", file);
        Object.assign(entry, { text, tokens: tokens ?? text.length / CHARS_PER_TOKEN });
      }
    } catch (error) {
      entry.problem =
        error instanceof Refusal && error.code === "no_knowledge_server" ? t("file.no_reader") : sentenceOf(error);
    }
    entry.isReading = false;
    if (!this.#files.includes(entry)) return;
    announce(entry.problem || t("file.read", { name: entry.name, count: entry.tokens }));
    this.#show();
  }

  /**
   * @param {Attached} entry
   * @param {string} text
   */
  async #count(entry, text) {
    const { tokens } = await this.#api.post("/v1/tokens", { texts: [text] });
    Object.assign(entry, { text, tokens: tokens ?? Math.ceil(text.length / CHARS_PER_TOKEN) });
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
      const entry = { name: t("file.paste"), text, tokens: 0, isPaste: true, problem: "", isReading: true, file: null };
      this.#files.push(entry);
      announce(t("file.pasted"));
      this.#show();
      void this.#count(entry, text)
        .catch(() => Object.assign(entry, { tokens: Math.ceil(text.length / CHARS_PER_TOKEN) }))
        .then(() => {
          entry.isReading = false;
          this.#show();
        });
    }
  }

  #show() {
    const over = this.tokens - this.#window;
    this.#actions.changed();
    const large = this.#files.find(({ file, problem }) => file && !problem);
    fill(
      this.#place,
      this.#files.map((entry) => this.#chip(entry)),
      over > 0 && h("p", { class: "error", role: "alert" }, say("file.too_many", { n: over })),
      over > 0 &&
        large?.file &&
        button("file.index", () => {
          this.#actions.index(/** @type {File} */ (large.file));
          this.#remove(large);
        }),
    );
  }

  /** @param {Attached} entry */
  #chip(entry) {
    const said = entry.problem || (entry.isReading ? t("loading") : t("tools.tokens", { count: entry.tokens }));
    const asText = () => {
      this.#remove(entry);
      this.#actions.write(entry.text);
    };
    return h(
      "div",
      { class: entry.problem ? "chosen-option file refused" : "chosen-option file" },
      icon(entry.problem ? "warning" : "file"),
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
