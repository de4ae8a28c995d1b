/**
 * What goes with the next question: files and pictures that are chosen, dropped or pasted, and resources of servers. Each
 * file is read by the board and shown with its cost before anything is sent; one that does not fit has choices. A long
 * paste becomes a file, one tap makes it text again.
 *
 * @typedef {{name: string, text: string, pages: number[], reference: string, tokens: number, isPaste: boolean,
 *   note: string, problem: string, isReading: boolean, isStored: boolean, file: File | null, picture: Picture | null}} Attached
 *   `text` goes with the question, or else `reference`, or else `picture`; `pages` has the position of each in the text;
 *   `note` replaces the tokens; `isStored` if it is one of the documents
 * @typedef {import("./pictures.js").Picture} Picture
 */
import { api } from "../access.js";
import { Refusal } from "../api.js";
import { button, iconButton } from "../buttons.js";
import { byId, fill, h, icon } from "../dom.js";
import { labelled, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { announce } from "./announcer.js";
import { isPicture } from "./picture_size.js";
import { image, MOST_PICTURES, PictureRefused } from "./pictures.js";

// A paste that would take this part of the window becomes a file; the characters are what a token has at the least.
const PASTE_SHARE = 0.15;
const CHARS_PER_TOKEN = 2;
const LARGEST = 50_000_000;
// Passages of a document that are fetched at once, and the most that are read into a question.
const PASSAGES = 50;
const MOST_PASSAGES = 400;
const MOST_FILES = 500;
// Tokens are not spread evenly over a text, so a part that is to fit is chosen a little shorter.
const MARGIN = 0.97;
// The browser reads these by itself, in UTF-8 and without markup or escapes (ISO-2022-JP, colours of terminals), as a terminal does.
const PLAIN = /^text\/|\/(json|xml|x-yaml|yaml|toml|javascript|x-sh)$|\+(json|xml)$/;
const HEAD_BYTES = 262_144;
const PLAIN_NAMES = /\.(txt|md|csv|tsv|json|ya?ml|toml|ini|log|py|js|ts|c|h|cpp|rs|go|java|sh|sql|css|diff)$/i;
const MARKED_UP = /\.(eml|html?|mhtml?|rtf|xhtml)$/i;
const ESCAPE = "\u001b";

export class Files {
  #place = byId("files");
  #drop = byId("drop");
  #actions;
  /** @type {Attached[]} */
  #files = [];
  #window = 4096;
  #room = 4096;
  #pictureTokens = 0;
  // A question was not sent, because one of them cannot go with it.
  #isBlocking = false;
  // A question was sent while one of them was read; it goes when all are.
  #isAwaited = false;

  /**
   * @param {{write: (text: string) => void, send: () => void, store: (file: File) => Promise<unknown>, folder: (files: File[]) => void,
   *   passages: (given: {document_id: string, chunk_index: number, limit: number}) => Promise<{results: {content: string}[]}>,
   *   search: (tool: import("./options.js").Tool) => void, changed: () => void,
   *   eyes: () => {sees: boolean, other: string, board: string, isHere?: boolean}, choose: (model: string) => void}} actions `eyes` says whether the model
   *   sees pictures, and which other one does
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
      // Both are empty once this listener has returned.
      const dropped = [...event.dataTransfer.files];
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
      if (!entries.some((entry) => entry?.isDirectory)) return this.add(dropped);
      void filesOf(entries).then((found) => this.#actions.folder(found.slice(0, MOST_FILES)));
    });
  }

  /**
   * @param {number} size of the model's window, tokens; 0 when it is not known
   * @param {number} tools what the tools take of it
   * @param {number} pictureTokens what a picture takes; 0 when that is not known
   */
  fits(size, tools, pictureTokens) {
    this.#window = size || this.#window;
    this.#room = this.#window - tools;
    this.#pictureTokens = pictureTokens;
    this.#show();
  }

  /** The part of the context window that they need. */
  get tokens() {
    return this.#files.reduce((sum, entry) => sum + (this.#problemOf(entry) ? 0 : this.#cost(entry)), 0);
  }

  /** The pictures of the next question, which a model that does not see is not shown. */
  get pictures() {
    const shown = this.#files.filter((entry) => !this.#problemOf(entry));
    return shown.flatMap(({ picture }) => (picture ? [picture] : []));
  }

  /** @param {Attached} entry */
  #cost({ picture, tokens }) {
    return picture ? this.#pictureTokens : tokens;
  }

  /**
   * Why it does not go with the question; empty if it does.
   *
   * @param {Attached} entry
   */
  #problemOf({ picture, problem }) {
    return problem || (picture && !this.#actions.eyes().sees ? t("file.image") : "");
  }

  get #isReading() {
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

  /**
   * Keep a question back while one of them is read, or when one cannot go with it, and say so: it may be about that one.
   *
   * @returns {boolean} whether it is kept back
   */
  block() {
    this.#isAwaited = this.#isReading;
    this.#isBlocking = !this.#isAwaited;
    this.#show();
    return this.#isAwaited || this.#isBlocking;
  }

  /** Do not send the question that waits for them: it is written on, or another conversation is open. */
  hold() {
    if (!this.#isAwaited) return;
    this.#isAwaited = false;
    this.#show();
  }

  /** Send the question that waited for them. */
  #release() {
    if (!this.#isAwaited || this.#isReading) return;
    this.#isAwaited = false;
    this.#actions.send();
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

  /**
   * Take pictures back that were to go with another question.
   *
   * @param {Picture[]} pictures
   */
  restore(pictures) {
    for (const picture of pictures) this.#files.push({ ...blank(), name: t("picture.name"), picture });
    this.#show();
  }

  /** The model may be another one. */
  look() {
    this.#show();
  }

  /**
   * A document to ask about: its text, or where that is too long a search in the documents.
   *
   * @param {{name: string, id: string, passages: number}} document
   */
  addDocument({ name, id, passages }) {
    const entry = this.#begin({ name, isStored: true });
    void this.#fill(entry, async () => {
      if (passages > MOST_PASSAGES) return this.#stored(entry);
      const parts = [];
      for (let first = 0; first < passages; first += PASSAGES) {
        const { results } = await this.#actions.passages({ document_id: id, chunk_index: first, limit: PASSAGES });
        parts.push(...results.map(({ content }) => content));
      }
      return this.#counted(parts.join("\n\n"));
    });
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
    const entry = { ...blank(), isReading: true, ...given };
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
      const isRefused = error instanceof PictureRefused;
      const said = isReaderless(error) ? t("file.no_reader") : isRefused ? error.message : sentenceOf(error);
      // The earlier files are still valid.
      if (entry.text) entry.note = said;
      else entry.problem = said;
    }
    entry.isReading = false;
    // It was left out meanwhile.
    if (!this.#files.includes(entry)) return;
    const read = entry.picture
      ? t("picture.added", { name: entry.name })
      : t("file.read", { name: entry.name, count: entry.tokens });
    announce(this.#problemOf(entry) || entry.note || read);
    this.#show();
    this.#release();
  }

  /**
   * @param {File} file
   * @returns {Promise<Partial<Attached>>}
   */
  async #read(file) {
    if (file.size > LARGEST) return { problem: t("file.large") };
    // The type of a photo is not known to every system (HEIC, MPO).
    const head = new DataView(await file.slice(0, HEAD_BYTES).arrayBuffer());
    if (file.type.startsWith("image/") || isPicture(head)) {
      const { readPicture } = await import("./photo.js");
      const picture = await readPicture(file, head);
      const isOneMore = this.#files.filter((entry) => entry.picture).length >= MOST_PICTURES;
      return isOneMore ? { problem: t("picture.many", { n: MOST_PICTURES }) } : { picture };
    }
    const isPlain = PLAIN.test(file.type) || PLAIN_NAMES.test(file.name);
    const written = isPlain ? utf8(await file.arrayBuffer()) : null;
    if (written?.trim() === "") return { problem: t("file.empty") };
    if (written !== null && !MARKED_UP.test(file.name) && !written.includes(ESCAPE)) return this.#counted(written);
    try {
      const { text, pages = [], tokens } = await api.upload("/v1/attachments", file);
      return { text, pages, tokens: tokens ?? estimate(text) };
    } catch (error) {
      if (written === null || !isReaderless(error)) throw error;
      return this.#counted(written);
    }
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
    const counted = this.#files.filter((entry) => !entry.isReading && !this.#problemOf(entry));
    const large = counted.sort((one, other) => this.#cost(other) - this.#cost(one))[0];
    const { sees, other, board, isHere } = this.#actions.eyes();
    const values = { name: other, board };
    const isBlind = !sees && this.#files.some(({ picture }) => picture);
    const refused = this.#files.find((entry) => this.#problemOf(entry));
    this.#isBlocking &&= refused !== undefined;
    fill(
      this.#place,
      this.#files.map((entry) => this.#chip(entry)),
      this.#isAwaited && h("p", { class: "muted small", role: "status" }, say("file.awaited")),
      this.#isBlocking && h("p", { class: "error", role: "alert" }, say("file.blocks", { name: refused?.name ?? "" })),
      isBlind &&
        other &&
        isHere &&
        button(board ? "picture.model_at" : "picture.model", () => this.#actions.choose(other), { class: "primary" }, values),
      isBlind && other && !isHere && h("p", { class: "muted small" }, say("picture.elsewhere", values)),
      isBlind && !other && h("p", { class: "muted small" }, say("picture.no_model")),
      over > 0 && h("p", { class: "error", role: "alert" }, this.#tooLong(over, large)),
      over > 0 && large && this.#choices(large, this.#cost(large) - over),
    );
  }

  /**
   * Why it does not fit: in pages where there are some, because readers count those.
   *
   * @param {number} over tokens too many
   * @param {Attached} [large] the largest one
   */
  #tooLong(over, large) {
    if (!large || large.pages.length < 2) return say("file.too_many", { n: over });
    const { name, pages, tokens } = large;
    const fitting = Math.max(0, Math.floor((pages.length * (tokens - over)) / tokens));
    return say("file.too_long", { name, pages: pages.length, fitting });
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
      text && button(entry.isStored ? "file.search" : "file.index", () => this.#fill(entry, () => this.#stored(entry))),
      text && end > 0 && button(whole > 0 ? "file.pages" : "file.beginning", () => this.#fill(entry, shorten), {}, { n: whole }),
      button("file.leave", () => this.#remove(entry), {}, { name }),
    );
  }

  /**
   * Put a file into the documents; the answer then begins with a search in them.
   *
   * @param {Attached} entry
   */
  async #stored({ name, text, file, isStored }) {
    if (!isStored) await this.#actions.store(file ?? new File([text], `${name}.txt`, { type: "text/plain" }));
    const { tools } = await api.get("/v1/tools");
    const tool = tools.find((/** @type {any} */ each) => each.enabled && each.name.endsWith("search_documents"));
    if (tool) this.#actions.search({ name: tool.qualified_name, shown: tool.name });
    return { text: "", tokens: 0, reference: t("file.stored", { name }), note: t("file.searched") };
  }

  /** @param {Attached} entry */
  #chip(entry) {
    const count = this.#cost(entry);
    const tokens = count || !entry.picture ? t("tools.tokens", { count }) : "";
    const problem = this.#problemOf(entry);
    const said = problem || (entry.isReading ? t("loading") : entry.note || tokens);
    const asText = () => {
      this.#remove(entry);
      this.#actions.write(entry.text);
    };
    return h(
      "div",
      { class: problem ? "chosen-option file refused" : "chosen-option file" },
      entry.picture && image(entry.picture, "thumbnail-image"),
      (problem || !entry.picture) && icon(problem ? "warning" : entry.reference ? "clip" : "file"),
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
    this.#release();
  }
}

/**
 * @param {ArrayBuffer} bytes
 * @returns {string | null} null when they are not UTF-8, whose encoding the board finds out
 */
function utf8(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/** @param {unknown} error */
function isReaderless(error) {
  return error instanceof Refusal && error.code === "no_knowledge_server";
}

/** @returns {Attached} */
function blank() {
  const words = { name: "", text: "", reference: "", note: "", problem: "" };
  return { ...words, pages: [], tokens: 0, isPaste: false, isReading: false, isStored: false, file: null, picture: null };
}

/** @param {string} text */
function estimate(text) {
  return Math.ceil(text.length / CHARS_PER_TOKEN);
}

/**
 * The files of what was dropped, those of folders included; hidden ones are left out.
 *
 * @param {(FileSystemEntry | null | undefined)[]} entries
 * @returns {Promise<File[]>}
 */
async function filesOf(entries) {
  /** @type {File[]} */
  const found = [];
  for (const entry of entries) {
    if (!entry || entry.name.startsWith(".") || found.length >= MOST_FILES) continue;
    if (entry.isFile) found.push(await new Promise((done, failed) => /** @type {FileSystemFileEntry} */ (entry).file(done, failed)));
    else found.push(...(await filesOf(await childrenOf(/** @type {FileSystemDirectoryEntry} */ (entry)))));
  }
  return found;
}

/**
 * @param {FileSystemDirectoryEntry} folder
 * @returns {Promise<FileSystemEntry[]>}
 */
async function childrenOf(folder) {
  const reader = folder.createReader();
  /** @type {FileSystemEntry[]} */
  const all = [];
  for (;;) {
    // A browser gives a hundred of them at a time.
    const some = /** @type {FileSystemEntry[]} */ (await new Promise((done, failed) => reader.readEntries(done, failed)));
    if (some.length === 0) return all.sort((one, other) => one.name.localeCompare(other.name));
    all.push(...some);
  }
}
