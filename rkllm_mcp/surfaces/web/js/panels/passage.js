/**
 * A passage in its document: marked between the passages around it, with the way to the one before and the one after it.
 *
 * @typedef {{document: string, passage: string, page: number | null, score: number | null, document_id?: string,
 *   chunk_index?: number}} Source the last two are present if the search returns the position of the passage
 */
import { button, iconButton } from "../buttons.js";
import { fill, h, joined, tell } from "../dom.js";
import { figure, say } from "../i18n.js";
import { sentenceOf } from "../problems.js";

// Enough to know a passage by; a search shows it cut, and without letters that cannot be seen.
const KNOWN_BY = 40;

export class PassageView {
  #title = h("h3", { tabindex: -1, dir: "auto" });
  #where = h("p", { class: "muted small", role: "status" });
  #text = h("div", { class: "passage-text" });
  #before = button("passage.before", () => this.#step(-1));
  #behind = button("passage.behind", () => this.#step(1));
  #steps = h("div", { class: "passage-steps" }, this.#before, this.#behind);
  node = h("section", { class: "passage" });
  #read;
  #source;
  #index = 0;
  #count = 0;

  /**
   * @param {Source} source
   * @param {(given: object) => Promise<any>} read asks the knowledge server for passages of a document
   * @param {() => void} back
   */
  constructor(source, read, back) {
    this.#source = source;
    this.#read = read;
    this.#index = source.chunk_index ?? 0;
    const head = h("div", { class: "passage-head" }, iconButton("left", "back", back), h("div", {}, this.#title, this.#where));
    this.node.append(head, this.#text, this.#steps);
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      back();
    });
    this.#show(source.document, [{ content: source.passage, chunk_index: this.#index, page: source.page, headings: [] }]);
  }

  /** Fetch the text around it. */
  async load() {
    this.#title.focus();
    if (this.#source.document_id) await this.#step(0);
  }

  /** @param {number} step */
  async #step(step) {
    const index = this.#index + step;
    if (step !== 0 && (index < 0 || index >= this.#count)) return;
    const first = Math.max(0, index - 1);
    try {
      const given = { document_id: this.#source.document_id, chunk_index: first, limit: index + 2 - first };
      const { title, chunks, results } = await this.#read(given);
      this.#index = index;
      this.#count = chunks;
      this.#show(title, results);
    } catch (error) {
      tell(this.#where, sentenceOf(error));
    }
  }

  /**
   * @param {string} title
   * @param {{content: string, chunk_index: number, page: number | null, headings: string[]}[]} passages
   */
  #show(title, passages) {
    const shown = passages.find(({ chunk_index: index }) => index === this.#index);
    const isFound = this.#index === (this.#source.chunk_index ?? 0);
    const isOther = this.#source.passage && isFound && known(shown?.content ?? "") !== known(this.#source.passage);
    const { score } = this.#source;
    const facts = [
      this.#count > 0 && say("passage.place", { n: this.#index + 1, m: this.#count }),
      shown && shown.page !== null && say("documents.page", { n: shown.page }),
      isFound && score !== null && say("passage.score", { score: figure(score, 2) }),
    ];
    fill(this.#title, title);
    fill(this.#where, joined(facts));
    if (isOther) this.#where.append(h("br"), say("passage.changed"));
    fill(
      this.#text,
      shown && shown.headings.length > 0 && h("p", { class: "muted small", dir: "auto" }, shown.headings.join(" › ")),
      passages.map((each) =>
        h("p", { class: "as-written", dir: "auto" }, each === shown ? h("mark", {}, each.content.trim()) : each.content.trim()),
      ),
    );
    this.#steps.hidden = this.#count < 2;
    this.#before.setAttribute("aria-disabled", String(this.#index <= 0));
    this.#behind.setAttribute("aria-disabled", String(this.#index >= this.#count - 1));
    this.#text.querySelector("mark")?.scrollIntoView?.({ block: "nearest" });
  }
}

/** @param {string} text */
function known(text) {
  return text.replaceAll(/[^\p{L}\p{N}]/gu, "").slice(0, KNOWN_BY);
}
