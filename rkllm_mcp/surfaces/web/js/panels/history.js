/** What tools were called, when, for how long and with what result: a timeline to see it, a table to read it. */
import { api } from "../access.js";
import { timelineChart } from "../charts/drawing.js";
import { h, icon, joined, tell } from "../dom.js";
import { figure, labelled, language, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { secondsOf } from "../time.js";

const MOST = 100;
// How a call came to be allowed or refused, where it was not simply made.
const RULINGS = new Set("remembered granted once conversation always deny never refused off stopped".split(" "));

export class HistoryPanel {
  node = h("div", { class: "panel-body" });
  #note = h("p", { class: "muted", role: "status" }, say("loading"));
  #chart = h("div", { class: "chart-box" });
  #table = h("div", { class: "table", tabindex: 0, role: "group", ...labelled("history.title") });
  #server = h(
    "select",
    { id: "history-server", change: () => this.load() },
    h("option", { value: "" }, say("history.all")),
  );
  #errors = h("input", { type: "checkbox", id: "history-errors", change: () => this.load() });

  constructor() {
    const filters = h(
      "div",
      { class: "filters" },
      h("label", { for: "history-server" }, say("history.server")),
      this.#server,
      h("label", { class: "option" }, this.#errors, " ", say("history.errors")),
    );
    this.node.append(filters, this.#note, this.#chart, this.#table);
  }

  async load() {
    try {
      const query = { limit: MOST, server: this.#server.value || undefined, errors: this.#errors.checked || undefined };
      const { calls } = await api.get("/v1/tools/history", query);
      this.#offer(calls);
      this.#show(calls);
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }

  /** @param {any[]} calls whose servers can be chosen from now on */
  #offer(calls) {
    const known = new Set([...this.#server.options].map((option) => option.value));
    for (const name of new Set(calls.map((call) => call.server))) {
      if (name && !known.has(name)) this.#server.append(h("option", { value: name }, name));
    }
  }

  /** @param {any[]} calls the newest first */
  #show(calls) {
    const failed = calls.filter((call) => call.is_error).length;
    tell(this.#note, calls.length === 0 ? say("history.none") : say("history.count", { count: calls.length, failed }));
    this.#chart.replaceChildren();
    this.#table.replaceChildren();
    if (calls.length === 0) return;
    const bars = calls.map((call) => ({
      started: secondsOf(call.started),
      seconds: call.seconds ?? 0,
      lane: call.server || call.name,
      isError: Boolean(call.is_error),
      title: `${call.name} · ${clock(secondsOf(call.started))} · ${figure(call.seconds ?? 0, 2)} s${call.error ? ` · ${call.error}` : ""}`,
    }));
    const width = Math.max(280, Math.min(520, this.#chart.clientWidth || 340));
    this.#chart.append(timelineChart(bars, t("history.chart", { count: calls.length, failed }), clock, width));
    this.#table.append(tableOf(calls));
  }
}

/** @param {any[]} calls */
function tableOf(calls) {
  const columns = ["history.when", "history.tool", "history.took", "history.outcome"];
  const head = h(
    "tr",
    {},
    columns.map((phrase) => h("th", { scope: "col" }, say(phrase))),
  );
  return h(
    "table",
    {},
    h("caption", { class: "visually-hidden" }, say("history.title")),
    h("thead", {}, head),
    h("tbody", {}, calls.flatMap(rowsOf)),
  );
}

/**
 * A call's row, and below it in full width why it failed.
 *
 * @param {any} call
 */
function rowsOf(call) {
  const [symbol, phrase] = call.is_error ? ["warning", "history.failed"] : ["check", "history.worked"];
  const outcome = h("span", { class: "nowrap" }, icon(symbol), " ", say(phrase));
  const ruling = RULINGS.has(call.ruling) && h("div", { class: "muted" }, say(`ruling.${call.ruling}`));
  const row = h(
    "tr",
    { class: call.is_error && "failed" },
    h("td", {}, pieces(clock(secondsOf(call.started)))),
    h("td", { class: "roomy" }, h("strong", {}, breakable(call.name)), " ", h("span", { class: "muted" }, call.server)),
    h("td", { class: "nowrap align-end" }, say("tool.seconds", { seconds: figure(call.seconds ?? 0, 2) })),
    h("td", {}, outcome, ruling),
  );
  return call.error ? [row, h("tr", { class: "reason" }, h("td", { colspan: 4 }, call.error))] : [row];
}

/**
 * A name that may go on in the next line after each of its words.
 *
 * @param {string} name
 */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((word, place) => (place > 0 ? [h("wbr"), word] : [word]));
}

/**
 * A date and a time, one above the other in a narrow column; neither is broken.
 *
 * @param {string} moment
 */
function pieces(moment) {
  return joined(moment.split(" ").map((piece) => h("span", { class: "nowrap" }, piece)), " ");
}

/** @param {number} seconds since 1970 */
function clock(seconds) {
  const at = new Date(seconds * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const style = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  return new Intl.DateTimeFormat(language(), isToday ? style : { month: "numeric", day: "numeric", ...style }).format(
    at,
  );
}
