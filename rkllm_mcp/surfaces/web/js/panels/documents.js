/**
 * Documents: the knowledge bases, their files, adding some, a search, and a passage in its document, which Back closes.
 *
 * @typedef {import("./passage.js").Source} Source
 */
import { api } from "../access.js";
import { Refusal } from "../api.js";
import { button, choices, form, iconButton, sourceButton, submitButton, typed } from "../buttons.js";
import { announce } from "../chat/announcer.js";
import { fill, h, icon, tell } from "../dom.js";
import { figure, named, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";

const SHOWN = 8;
const KNOWLEDGE = "knowledge";
/** The installer of the service gives up after half an hour. */
const FETCHING_MS = 1_800_000;

export class DocumentsPanel {
  node = h("div", { class: "panel-body" });
  #note = h("div", { class: "muted said", role: "status" }, say("loading"));
  #base = h("select", { id: "document-base", change: () => this.#list() });
  #uploads = h("div", { class: "uploads" });
  #files = h("ul", { class: "documents" });
  #words = h("input", { type: "search", id: "document-search", autocomplete: "off" });
  #found = h("div", { role: "status" });
  #body = h("div", { hidden: true });
  #cursor = "";
  #isOff = false;
  /** @type {File[]} those that wait for the documents to be turned on */
  #pending = [];
  #told;
  /** @type {(() => void) | null} the action of Back in addition to closing the open passage; null for none */
  #goBack = null;

  /** @param {{ask: (document: {name: string, id: string, passages: number}) => void}} told called to ask about a document */
  constructor(told) {
    this.#told = told;
    const picker = h("input", { type: "file", multiple: true, hidden: true });
    picker.addEventListener("change", () => {
      void this.add([...(picker.files ?? [])]);
      picker.value = "";
    });
    const label = h("label", { for: "document-search" }, say("documents.try"));
    const search = () => void this.#search();
    this.#body.append(
      h("div", { class: "filters" }, h("label", { for: "document-base" }, say("documents.base")), this.#base),
      choices(button("documents.add", () => picker.click(), { class: "primary" }), picker),
      this.#uploads,
      this.#files,
      form(search, { class: "filters" }, label, this.#words, submitButton("search", {})),
      this.#found,
    );
    this.node.append(this.#note, this.#body);
    addEventListener("popstate", () => {
      if (history.state?.passage) return;
      const goBack = this.#goBack;
      this.#closePassage();
      goBack?.();
    });
  }

  /** The tab is left: what Back would have closed is gone. */
  leave() {
    if (this.#goBack && history.state?.passage) history.back();
    this.#closePassage();
  }

  #closePassage() {
    if (this.#goBack) fill(this.node, this.#note, this.#body);
    this.#goBack = null;
  }

  async load() {
    try {
      const { knowledge_bases: bases } = await this.#ask("list_knowledge_bases", {});
      this.#isOff = false;
      const before = this.#base.value;
      fill(
        this.#base,
        bases.map((/** @type {any} */ base) =>
          h("option", { value: base.knowledge_base_id }, `${base.name} (${figure(base.total_documents)})`),
        ),
      );
      if (bases.some((/** @type {any} */ base) => base.knowledge_base_id === before)) this.#base.value = before;
      this.#body.hidden = bases.length === 0;
      tell(this.#note, bases.length === 0 ? say("documents.no_bases") : "");
      if (bases.length === 0) this.#note.append(" ", button("documents.make", () => this.#make().catch((error) => tell(this.#note, sentenceOf(error)))));
      else await this.#list();
    } catch (error) {
      const isNone = error instanceof Refusal && error.code === "no_knowledge_server";
      this.#isOff = isNone;
      this.#body.hidden = true;
      tell(this.#note, isNone ? say("documents.off") : sentenceOf(error));
      if (isNone) await this.#offer();
    }
  }

  /** Offer to turn documents on: with one button, or where this key may not, with the command for a terminal. */
  async #offer() {
    const { servers, embedder, can_add: canAdd } = await api.get("/v1/servers/gallery");
    const knowledge = servers.find((/** @type {any} */ server) => server.name === KNOWLEDGE);
    if (!canAdd || !knowledge) {
      this.#note.append(h("p", {}, say("documents.elsewhere")), typed("rkllm-mcp servers install knowledge"));
      return;
    }
    const shown = h("pre", { tabindex: 0 }, knowledge.command.join(" "));
    const byMeaning = h("input", { type: "checkbox", id: "documents-by-meaning", checked: !embedder.installed });
    const turnOn = button("documents.turn_on", () => this.#turnOn(knowledge, byMeaning.checked ? embedder.name : ""), { class: "primary" });
    const sizes = { name: embedder.name, megabytes: figure(embedder.download_mb), memory: figure(embedder.memory_mb) };
    this.#note.append(
      h("p", {}, say("documents.what")),
      h("p", { hidden: embedder.installed }, h("label", {}, byMeaning, " ", say("documents.by_meaning", sizes))),
      choices(turnOn),
      h("details", { class: "fold" }, h("summary", {}, say("servers.runs")), h("div", { class: "fold-body" }, shown)),
    );
  }

  /**
   * @param {{command: string[]}} knowledge
   * @param {string} embedder the model to fetch before, empty for none
   */
  async #turnOn({ command }, embedder) {
    tell(this.#note, say(embedder ? "documents.fetching" : "documents.turning_on"));
    try {
      const { STARTING_MS } = await import("./server_actions.js");
      const server = { gallery: KNOWLEDGE, command, embedder: embedder !== "" };
      const patience = STARTING_MS + (embedder ? FETCHING_MS : 0);
      const { is_in_force: isInForce, embedder_problem: problem } = await api.post("/v1/servers", server, patience);
      if (problem) this.node.prepend(this.#withoutMeaning(embedder, problem));
      if (!isInForce) {
        tell(this.#note, say("servers.added_later", { name: KNOWLEDGE }));
        return;
      }
      const { knowledge_bases: bases } = await this.#ask("list_knowledge_bases", {});
      if (bases.length === 0) await this.#ask("create_knowledge_base", { name: t("panel.documents") });
      await this.load();
      await this.add(this.#pending.splice(0));
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }

  /**
   * Return the notice that documents are found by their words alone, and what is missing.
   *
   * @param {string} embedder
   * @param {string} problem
   */
  #withoutMeaning(embedder, problem) {
    return h(
      "div",
      { class: "muted said", role: "status" },
      h("p", {}, say("documents.words_only")),
      typed(`rkllm-mcp knowledge model ${embedder}`),
      h("p", { class: "small", dir: "auto" }, problem),
    );
  }

  /**
   * Add files to the base that is shown, one after the other.
   *
   * @param {File[]} files
   */
  async add(files) {
    if (files.length > 0 && !this.#base.value) await this.load();
    if (files.length > 0 && this.#isOff) {
      this.#pending.push(...files);
      this.#note.prepend(h("p", {}, say("documents.pending", { count: this.#pending.length })));
      return;
    }
    const rows = files.map((file) => {
      const state = h("span", { class: "muted small", role: "status" }, say("documents.waiting"));
      const words = h("span", { class: "file-words" }, h("span", { class: "one-line", dir: "auto", title: file.name }, file.name), state);
      const row = h("div", { class: "upload" }, icon("file"), words);
      this.#uploads.append(row);
      return { file, row, state };
    });
    for (const { file, row, state } of rows) {
      fill(state, say("documents.reading"));
      try {
        const isNew = await this.store(file);
        if (isNew) row.remove();
        else this.#leave(row, state, t("documents.there", { name: file.name }));
      } catch (error) {
        row.classList.add("refused");
        this.#leave(row, state, sentenceOf(error));
      }
    }
    await this.load();
  }

  /**
   * Say what became of a file that was not added; the row can be dismissed.
   *
   * @param {HTMLElement} row
   * @param {HTMLElement} state
   * @param {string} words
   */
  #leave(row, state, words) {
    fill(state, words);
    row.append(iconButton("close", "close", () => row.remove()));
    announce(words);
  }

  /**
   * Add a file to the base that is shown; the first one is made for it.
   *
   * @param {File} file
   * @returns {Promise<boolean>} false if the same content was there already
   */
  async store(file) {
    if (!this.#base.value) await this.load();
    if (!this.#base.value) await this.#make();
    const { documents } = await api.upload("/v1/documents", file, { knowledge_base: this.#base.value });
    const isNew = documents[0]?.is_new !== false;
    if (isNew) announce(t("documents.added", { name: file.name, count: documents[0]?.chunks ?? 0 }));
    return isNew;
  }

  /**
   * Passages of a document in order.
   *
   * @param {{document_id: string, chunk_index: number, limit: number}} given
   * @returns {Promise<{chunks: number, results: {content: string}[]}>}
   */
  passages(given) {
    return this.#ask("read_passages", given);
  }

  /**
   * Show a passage in its document.
   *
   * @param {Source} source
   * @param {HTMLElement} opener gets the focus back
   * @param {() => void} [closed] what Back does in addition to closing it
   */
  async show(source, opener, closed = () => undefined) {
    const { PassageView } = await import("./passage.js");
    if (!history.state?.passage) history.pushState({ passage: true }, "");
    const view = new PassageView(source, (given) => this.#ask("read_passages", given), () => history.back());
    this.#goBack = () => {
      closed();
      opener.focus();
    };
    fill(this.node, view.node);
    await view.load();
  }

  /** @param {Source} source */
  #opens(source) {
    return (/** @type {Event} */ event) => void this.show(source, /** @type {HTMLElement} */ (event.currentTarget));
  }

  async #make() {
    await this.#ask("create_knowledge_base", { name: t("panel.documents") });
    await this.load();
  }

  /** @param {string} [cursor] of a further page */
  async #list(cursor = "") {
    const given = { knowledge_base_id: this.#base.value, ...(cursor && { cursor }) };
    const { documents = [], next_cursor: next = "" } = await this.#ask("list_knowledge_bases", given);
    this.#cursor = next;
    const rows = documents.map((/** @type {any} */ document) => this.#row(document));
    if (cursor) this.#files.lastElementChild?.remove();
    else fill(this.#files, documents.length === 0 && h("li", { class: "muted" }, say("documents.none")));
    this.#files.append(...rows);
    if (next) this.#files.append(h("li", {}, button("documents.more", () => this.#list(this.#cursor), { class: "quiet" })));
  }

  /** @param {any} document */
  #row(document) {
    const name = document.title || document.uri;
    const remove = async () => {
      await this.#ask("remove_document", { document_id: document.document_id });
      announce(t("conversations.deleted"));
      await this.load();
    };
    const sure = () => fill(row, h("p", {}, say("documents.sure", { name })), button("documents.remove", remove, { class: "danger" }), button("cancel", () => this.#list()));
    const first = { document: name, passage: "", page: null, score: null, document_id: document.document_id };
    const row = h(
      "li",
      {},
      h(
        "button",
        { type: "button", class: "quiet names", click: this.#opens(first) },
        icon("file"),
        h("span", { class: "one-line", dir: "auto" }, name),
        h(
          "span",
          { class: "muted small" },
          say("documents.passages", { count: document.chunks }),
          document.places?.length > 0 && [" · ", say("documents.places", { count: document.places.length + 1 })],
        ),
      ),
      iconButton("prompt", "documents.ask", () => this.#told.ask({ name, id: document.document_id, passages: document.chunks }), named("documents.ask", { name })),
      iconButton("close", "documents.remove", sure),
    );
    return row;
  }

  async #search() {
    const query = this.#words.value.trim();
    if (!query) return;
    fill(this.#found, say("loading"));
    try {
      const given = { query, knowledge_base_id: this.#base.value, max_results: SHOWN };
      const { results } = await this.#ask("search_documents", given);
      fill(
        this.#found,
        results.length === 0 && h("p", { class: "muted" }, say("documents.nothing")),
        results.map((/** @type {any} */ { content, score, metadata }) => {
          const source = { ...metadata, document: metadata.title, passage: content, score };
          return sourceButton(source, this.#opens(source));
        }),
      );
    } catch (error) {
      fill(this.#found, h("p", { class: "error" }, sentenceOf(error)));
    }
  }

  /**
   * @param {string} tool
   * @param {object} given
   */
  #ask(tool, given) {
    return api.post(`/v1/knowledge/${tool}`, { arguments: given });
  }
}
