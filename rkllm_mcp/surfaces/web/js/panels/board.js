/**
 * How the board is, measured anew every two seconds while it is shown. What a board does not tell is a dash, never a
 * nought.
 */
import { api } from "../access.js";
import { h, tell } from "../dom.js";
import { figure, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { whileVisible } from "./polling.js";

const PAUSE_MS = 2000;
// The separator between two words that stay on one line.
const TOGETHER = "\u00a0";

export class BoardPanel {
  node = h("div", { class: "panel-body" });
  #note = h("p", { class: "muted", role: "status" }, say("loading"));
  #facts = h("dl", { class: "facts" });
  #measures = h("div", { class: "measures" });
  #others = h("div", {});
  #polling = whileVisible(() => this.#measure(), PAUSE_MS);

  constructor() {
    this.node.append(this.#note, this.#measures, this.#facts, this.#others);
  }

  load() {
    this.#polling.start();
  }

  leave() {
    this.#polling.stop();
  }

  async #measure() {
    try {
      const board = await api.get("/v1/board");
      tell(this.#note, board.emulated ? say("board.emulated") : "");
      this.#note.className = board.emulated ? "notice" : "muted";
      this.#show(board);
      // A tenant's key shows its own board alone.
      const { boards } = await api.get("/v1/boards").catch(() => ({ boards: [] }));
      this.#others.replaceChildren(...fleet(boards));
    } catch (error) {
      tell(this.#note, sentenceOf(error));
      this.#note.className = "muted";
    }
  }

  /** @param {any} board */
  #show(board) {
    const memory = board.memory ?? {};
    const used = memory.total_mb ? memory.total_mb - memory.available_mb : null;
    const load = board.npu_load?.length
      ? board.npu_load.map((/** @type {number} */ percent) => `${figure(percent)}${TOGETHER}%`).join(" · ")
      : "–";
    const gigabytes = used === null ? "–" : `${unit(used / 1024, "GB", 1)} / ${unit(memory.total_mb / 1024, "GB", 1)}`;
    const queue = { waiting: board.queue?.waiting ?? 0, running: board.queue?.running ?? 0 };
    this.#measures.replaceChildren(
      card("board.npu", load),
      card("board.temperature", unit(board.temperature_c, "°C", 1)),
      card("board.memory", gigabytes),
      card("board.prefill", unit(board.prefill_tps, t("board.tps"), 1)),
      card("board.decode", unit(board.decode_tps, t("board.tps"), 1)),
      card("board.queue", t("board.queue_now", queue)),
      reuse(board),
    );
    this.#facts.replaceChildren(...facts(board));
  }
}

/**
 * @param {string} phrase
 * @param {string} value
 */
function card(phrase, value) {
  return h("section", { class: "measure" }, h("h3", {}, say(phrase)), h("p", { class: "value" }, value));
}

/**
 * How many tokens the NPU read, and how many it did not have to.
 *
 * @param {any} board
 */
function reuse(board) {
  const prefilled = board.prefilled_tokens ?? 0;
  const reused = board.reused_tokens ?? 0;
  const share = prefilled + reused > 0 ? reused / (prefilled + reused) : 0;
  const words = say("board.reuse_now", { prefilled, reused, share: figure(share * 100) });
  const meter = h("meter", { min: 0, max: 1, value: share, "aria-label": t("board.reuse") });
  return h(
    "section",
    { class: "measure" },
    h("h3", {}, say("board.reuse")),
    h("p", { class: "value small" }, words),
    meter,
  );
}

/** @param {any} board */
function facts(board) {
  const rows = [
    ["board.model", board.model],
    ["board.runtime", board.runtime],
    ["board.window", board.context_tokens ? say("board.tokens", { count: board.context_tokens }) : null],
    ["board.uptime", board.uptime_s ? duration(board.uptime_s) : null],
  ];
  return rows.flatMap(([phrase, value]) => (value ? [h("dt", {}, say(phrase)), h("dd", {}, value)] : []));
}

/**
 * Every board of several behind one address; nothing where there is one.
 *
 * @param {any[]} boards
 */
function fleet(boards) {
  if (!boards.length) return [];
  const rows = boards.flatMap((each) => {
    const isAway = each.state.startsWith("not reachable");
    const state = each.state === "ready" ? t("board.ready") : isAway ? t("board.unreachable") : each.state;
    const queue = each.running === null ? [] : [t("board.queue_now", { running: each.running, waiting: each.waiting })];
    const heat = each.temperature_c === null ? [] : [unit(each.temperature_c, "°C", 0)];
    const says = [state, ...(each.model ? [each.model] : []), ...queue, ...heat].join(" · ");
    return [h("dt", { title: each.address }, each.name), h("dd", {}, says)];
  });
  return [h("h3", {}, say("board.all")), h("dl", { class: "facts" }, ...rows)];
}

/** @param {number} seconds */
function duration(seconds) {
  const hours = Math.floor(seconds / 3600);
  return say("board.duration", { hours, minutes: Math.floor((seconds % 3600) / 60) });
}

/**
 * @param {number | null | undefined} value
 * @param {string} name a short one stays with its number, a word may go to the next line
 * @param {number} digits
 */
function unit(value, name, digits) {
  return typeof value === "number" ? `${figure(value, digits)}${name.length > 2 ? " " : TOGETHER}${name}` : "–";
}
