/**
 * What the board remembers of its user: found, added, changed, always known or recalled, removed; kept as a file and read
 * from one.
 *
 * @typedef {{id: string, text: string, always: boolean, state: string, conversation: string}} Row
 */
import { api } from "../access.js";
import { button, choices, form, iconButton, submitButton } from "../buttons.js";
import { saveAs } from "../conversations.js";
import { written } from "../dialogs/small.js";
import { fill, h, tell } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { holds } from "../words.js";

// As many letters as the board takes.
const LONGEST_ROW = 160;
// As many can be looked through.
const FEW = 8;

export class MemorySection {
  node = h("section", { class: "field memory", id: "memory", hidden: true });
  #note = h("p", { class: "muted small", role: "status" });
  #list = h("ul", { class: "memories" });
  #sure = h("div", { class: "outcome", role: "status" });
  #field = h("input", { id: "memory-new", maxlength: LONGEST_ROW, autocomplete: "off", dir: "auto" });
  #search = h("input", { type: "search", id: "memory-search", autocomplete: "off", input: () => this.#show() });
  #searched = h("div", { class: "field", hidden: true }, h("label", { for: "memory-search" }, say("memory.search")), this.#search);
  #propose = h("input", { type: "checkbox", "aria-describedby": "memory-propose-help", change: () => void this.#choose() });
  #proposals = h(
    "div",
    { class: "field", hidden: true },
    h("label", { class: "option" }, this.#propose, " ", say("memory.propose")),
    h("p", { class: "muted small", id: "memory-propose-help" }, say("memory.propose_help")),
  );
  #file = h("input", { type: "file", accept: ".json,application/json", hidden: true, change: () => void this.#read() });
  /** @type {Row[]} */
  #rows = [];

  constructor() {
    const add = form(
      () => void this.#attempt(() => this.#add()),
      { class: "form" },
      h("label", { for: "memory-new" }, say("memory.new")),
      this.#field,
      choices(submitButton("memory.add", {})),
    );
    fill(
      this.node,
      h("h3", {}, say("memory.title")),
      h("p", { class: "muted small" }, say("memory.help")),
      add,
      this.#searched,
      this.#list,
      this.#note,
      this.#proposals,
      choices(
        button("memory.export", () => this.#attempt(async () => saveAs(await api.blob("/v1/memory/export"), "memory.json"))),
        button("memory.import", () => this.#file.click()),
        button("memory.clear", () => this.#askToClear(), { class: "danger" }),
      ),
      this.#file,
      this.#sure,
    );
  }

  /** Show it to a key that may see it. */
  async load() {
    const found = await api.get("/v1/memory").catch(() => null);
    this.node.hidden = found === null;
    if (found === null) return;
    this.#rows = found.memories;
    this.#proposals.hidden = found.proposes === null;
    this.#propose.checked = found.proposes === true;
    this.#searched.hidden = this.#rows.length <= FEW;
    tell(this.#note, found.enabled ? say("memory.count", { count: found.count, limit: found.limit }) : say("memory.off"));
    this.#show();
  }

  #show() {
    const rows = this.#rows.filter(({ text }) => holds(text, this.#search.value));
    fill(this.#list, rows.map((row) => this.#item(row)));
  }

  /** @param {Row} row */
  #item(row) {
    const path = `/v1/memory/${encodeURIComponent(row.id)}`;
    const change = (/** @type {object} */ values) => this.#attempt(() => api.patch(path, values));
    const always = h("input", { type: "checkbox", checked: row.always });
    always.addEventListener("change", () => void change({ always: always.checked }));
    const edit = async () => {
      const text = await written("memory.edit", "memory.new", row.text);
      if (text && text !== row.text) await change({ text: text.slice(0, LONGEST_ROW) });
    };
    return h(
      "li",
      { class: "memory-row" },
      h("p", { dir: "auto" }, row.text),
      h(
        "div",
        { class: "memory-tools" },
        row.state === "proposed"
          ? button("memory.keep", () => change({ keep: true }), { class: "primary" })
          : h("label", { class: "option" }, always, " ", say("memory.always")),
        row.conversation && h("a", { href: `#/c/${row.conversation}`, class: "small" }, say("memory.source")),
        iconButton("edit", "memory.edit", () => void edit()),
        iconButton("close", "memory.remove", () => void this.#attempt(() => api.delete(path))),
      ),
    );
  }

  /** Let the model propose, or not. */
  #choose() {
    return this.#attempt(() => api.put("/v1/me/settings", { proposals: this.#propose.checked ? "on" : "off" }));
  }

  async #add() {
    await api.post("/v1/memory", { text: this.#field.value });
    this.#field.value = "";
  }

  #askToClear() {
    const yes = button("memory.clear_all", () => this.#attempt(() => api.delete("/v1/memory")), { class: "danger" });
    fill(this.#sure, h("p", {}, say("memory.sure")), choices(yes, button("cancel", () => fill(this.#sure))));
    yes.focus();
  }

  async #read() {
    const [file] = this.#file.files ?? [];
    if (!file) return;
    this.#file.value = "";
    await this.#attempt(async () => {
      const content = JSON.parse(await file.text());
      const { added, known } = await api.post("/v1/memory:import", content);
      fill(this.#sure, h("p", {}, say("memory.imported", { added, known })));
    });
  }

  /** @param {() => Promise<unknown>} work what may fail; the list is read again after it */
  async #attempt(work) {
    fill(this.#sure);
    try {
      await work();
      await this.load();
    } catch (error) {
      const message = error instanceof SyntaxError ? t("memory.no_export") : sentenceOf(error);
      fill(this.#sure, h("p", { class: "error" }, message));
    }
  }
}
