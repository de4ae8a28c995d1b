/** The empty page: who answers, what can be done here, and four questions that work with the tools that are on. */
import { api } from "../access.js";
import { button, typed } from "../buttons.js";
import { byId, fill, h, tell } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { hasTitles, showTitles, switchedOn } from "../tools.js";

const SHOWN = 4;
const TOOL_SHARE = 1 / 3;
const DOCUMENTS = "suggest.documents";
/** @type {[RegExp | null, string][]} what a tool is called, and a question for it; without one any model can answer. One
 * about the documents names one that is there. */
const QUESTIONS = [
  [/weather|forecast|天気/i, "suggest.weather"],
  [/search_documents/i, DOCUMENTS],
  [/current_time|get_time|convert_time|clock/i, "suggest.time"],
  [/write_file|create_file/i, "suggest.note"],
  [/list_(directory|files|folder)|read_file/i, "suggest.files"],
  [/calculat|evaluate/i, "suggest.sum"],
  [/convert_unit|units?$/i, "suggest.unit"],
  [/fetch|browse/i, "suggest.web"],
  [null, "suggest.explain"],
  [null, "suggest.translate"],
  [null, "suggest.letter"],
  [null, "suggest.plan"],
];

export class Welcome {
  /** tokens that the tools take of a question; of more than a third of the window it gets those that suit it */
  tokens = 0;
  #actions;

  /**
   * @param {{ask: (message: string) => void, open: (panel: string, part?: string) => void,
   *   begin: () => import("../dialogs/settings.js").Settings}} actions `begin` returns what the new conversation begins with
   */
  constructor(actions) {
    this.#actions = actions;
  }

  /** @param {{model: string, emulated: boolean, has_weights: boolean, context_tokens: number}} me */
  async show(me) {
    const note = !me.emulated ? "welcome.real" : me.has_weights ? "welcome.emulated" : "welcome.script";
    tell(byId("welcome-note"), say(note, { model: me.model }));
    // After each answer this is called: what a conversation shows of the tools is fetched once.
    if (byId("welcome").hidden && hasTitles()) return;
    try {
      const { tools, tokens } = await api.get("/v1/tools");
      showTitles(tools);
      if (byId("welcome").hidden) return;
      const { servers } = await api.get("/v1/servers");
      this.tokens = Math.min(tokens, me.context_tokens * TOOL_SHARE);
      const on = switchedOn(tools);
      this.#offer(on, await someTitle(on));
      this.#tell(servers.length, on.length, tokens, me.context_tokens);
    } catch (error) {
      tell(byId("welcome-cost"), sentenceOf(error));
    }
  }

  /**
   * @param {any[]} tools
   * @param {string} name of a document; empty for none
   */
  #offer(tools, name) {
    const works = (/** @type {RegExp | null} */ mark) => !mark || tools.some((tool) => mark.test(tool.name));
    const wanted = QUESTIONS.filter(([mark, phrase]) => works(mark) && (name || phrase !== DOCUMENTS)).slice(0, SHOWN);
    fill(
      byId("suggestions"),
      wanted.map(([, phrase]) =>
        h("li", {}, button(phrase, () => this.#actions.ask(t(phrase, { name })), { class: "suggestion" }, { name })),
      ),
    );
  }

  /** The choice of a conversation that is not stored. */
  #temporary() {
    const begin = this.#actions.begin();
    const input = h("input", { type: "checkbox", checked: begin.isTemporary === true });
    input.addEventListener("change", () => {
      this.#actions.begin().isTemporary = input.checked;
    });
    return h("label", { class: "option" }, input, " ", say("welcome.temporary"));
  }

  /**
   * @param {number} servers
   * @param {number} tools
   * @param {number} tokens
   * @param {number} size
   */
  #tell(servers, tools, tokens, size) {
    const first = h("div", { class: "notice" }, h("p", {}, say("welcome.first")), typed("rkllm-mcp setup"));
    fill(
      byId("welcome-cost"),
      servers === 0 && tools === 0
        ? first
        : h("p", { class: "muted small" }, say("welcome.tools", { servers, tools, tokens, size })),
    );
    fill(
      byId("welcome-more"),
      button("servers.add", () => this.#actions.open("servers", "add"), { class: "quiet" }),
      button("documents.add", () => this.#actions.open("documents"), { class: "quiet" }),
      this.#temporary(),
    );
  }
}

/**
 * The title of a document that can be asked about; empty where there is none.
 *
 * @param {any[]} tools
 */
async function someTitle(tools) {
  if (!tools.some(({ name }) => QUESTIONS.some(([mark, phrase]) => phrase === DOCUMENTS && mark?.test(name)))) return "";
  const list = (/** @type {object} */ given) => api.post("/v1/knowledge/list_knowledge_bases", { arguments: given });
  try {
    const { knowledge_bases: bases } = await list({});
    const base = bases.find((/** @type {any} */ { total_documents: count }) => count > 0);
    if (!base) return "";
    const { documents } = await list({ knowledge_base_id: base.knowledge_base_id, limit: 1 });
    return documents[0]?.title ?? "";
  } catch {
    // A key may have the tools and not the documents.
    return "";
  }
}
