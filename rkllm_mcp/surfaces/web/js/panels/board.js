/**
 * How the board is, measured anew every two seconds while it is shown. What a board does not tell is a dash, never a
 * nought.
 */
import { api } from "../access.js";
import { sparkline } from "../charts/drawing.js";
import { ceiling, Series } from "../charts/series.js";
import { h, tell } from "../dom.js";
import { figure, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";

const PAUSE_MS = 2000;
const KEPT = 90;
// A line through fewer numbers says nothing.
const FEWEST = 5;
const HOTTEST_C = 100;
// What stands between two things that no line may part.
const TOGETHER = "\u00a0";

export class BoardPanel {
  node = h("div", { class: "panel-body" });
  #note = h("p", { class: "muted", role: "status" }, say("loading"));
  #facts = h("dl", { class: "facts" });
  #charts = h("div", { class: "charts" });
  /** @type {Map<string, Series>} */
  #series = new Map();
  #polling = whileVisible(() => this.#measure(), PAUSE_MS);

  constructor() {
    this.node.append(this.#note, this.#charts, this.#facts);
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
    } catch (error) {
      tell(this.#note, sentenceOf(error));
      this.#note.className = "muted";
    }
  }

  /** @param {any} board */
  #show(board) {
    const memory = board.memory ?? {};
    const used = memory.total_mb ? memory.total_mb - memory.available_mb : null;
    const cores = (board.npu_load ?? []).map((/** @type {number} */ load, /** @type {number} */ core) =>
      this.#add(`npu ${core}`, load),
    );
    const load = board.npu_load?.length
      ? board.npu_load.map((/** @type {number} */ percent) => `${figure(percent)}${TOGETHER}%`).join(" · ")
      : "–";
    const temperature = this.#add("temperature", board.temperature_c);
    const memories = this.#add("memory", used);
    const prefill = this.#add("prefill", board.prefill_tps);
    const decode = this.#add("decode", board.decode_tps);
    const queue = this.#add("queue", board.queue?.waiting);
    this.#charts.replaceChildren(
      card("board.npu", load, cores, 100),
      card("board.temperature", unit(board.temperature_c, "°C", 1), [temperature], HOTTEST_C),
      card(
        "board.memory",
        used === null ? "–" : `${unit(used / 1024, "GB", 1)} / ${unit(memory.total_mb / 1024, "GB", 1)}`,
        [memories],
        memory.total_mb || 1,
      ),
      card("board.prefill", unit(board.prefill_tps, t("board.tps"), 1), [prefill], ceiling(numbers(prefill))),
      card("board.decode", unit(board.decode_tps, t("board.tps"), 1), [decode], ceiling(numbers(decode))),
      card(
        "board.queue",
        t("board.queue_now", { waiting: board.queue?.waiting ?? 0, running: board.queue?.running ?? 0 }),
        [queue],
        ceiling(numbers(queue)),
      ),
      reuse(board),
    );
    this.#facts.replaceChildren(...facts(board));
  }

  /**
   * @param {string} name
   * @param {number | null | undefined} value
   */
  #add(name, value) {
    const series = this.#series.get(name) ?? new Series(KEPT);
    this.#series.set(name, series);
    series.add(value);
    return series;
  }
}

/**
 * @param {string} phrase
 * @param {string} value
 * @param {Series[]} series
 * @param {number} most
 */
function card(phrase, value, series, most) {
  const isDrawn = series.some((one) => numbers(one).length >= FEWEST);
  const chart = isDrawn && sparkline(series, 0, most, `${t(phrase)}: ${value}`);
  return h("section", { class: "measure" }, h("h3", {}, say(phrase)), h("p", { class: "value" }, value), chart);
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

/** @param {Series} series */
function numbers(series) {
  return series.values.filter((value) => value !== null);
}

/**
 * Repeat work only while the page is shown.
 *
 * @param {() => Promise<void>} work
 * @param {number} pause_ms between the end of one and the beginning of the next
 * @returns {{start: () => void, stop: () => void}}
 */
function whileVisible(work, pause_ms) {
  let isWanted = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isBusy = false;
  const round = async () => {
    if (!isWanted || isBusy || document.visibilityState !== "visible") return;
    isBusy = true;
    await work();
    isBusy = false;
    clearTimeout(timer);
    timer = setTimeout(round, pause_ms);
  };
  document.addEventListener("visibilitychange", round);
  return {
    start: () => {
      isWanted = true;
      void round();
    },
    stop: () => {
      isWanted = false;
      clearTimeout(timer);
    },
  };
}
