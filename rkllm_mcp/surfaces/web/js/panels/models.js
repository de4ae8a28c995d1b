/**
 * Models: those that are here and those that the board could have, with what fits it first; search, download, switch and
 * removal. A download goes on in the service while this panel, or the page, is closed.
 *
 * @typedef {{name: string, description: string, task: string, state: string, fits: string, reason: string,
 *   tokens_per_second: number | null, memory_mb: number | null, context_tokens: number, recommended: boolean,
 *   loaded: boolean, removable: boolean, partial_bytes: number}} KnownModel
 * @typedef {{name: string, folder: string, state: string, received: number, total: number, problem: string}} Download
 */
import { api } from "../access.js";
import { button, choices, form, submitButton, typed } from "../buttons.js";
import { announce } from "../chat/announcer.js";
import { fill, h, joined, redraw, tell } from "../dom.js";
import { figure, say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { holds } from "../words.js";
import { whileVisible } from "./polling.js";

const PAUSE_MS = 1000;
const TYPING_MS = 150;
const MEGABYTE = 1_000_000;
const USABLE = new Set(["here", "emulated", "on the CPU"]);
const UNFIT = new Set(["no"]);
const UNDER_WAY = new Set(["waiting", "running", "stopping"]);
// A repository of the hub, perhaps with one of its files.
const REPOSITORY = /^[\w.-]+\/[\w.-]+(:.+)?$/;

export class ModelsPanel {
  node = h("div", { class: "panel-body" });
  #note = h("p", { class: "muted", role: "status" }, say("loading"));
  #words = h("input", { type: "search", id: "model-search", autocomplete: "off" });
  #hub = h("div", { class: "fold-body", role: "status" });
  #body = h("div", { hidden: true });
  #list = h("div", { class: "downloads" });
  /** @type {KnownModel[]} */
  #models = [];
  /** @type {Download[]} */
  #downloads = [];
  /** @type {Map<string, HTMLElement>} by the name of the download: drawn anew a button would lose the focus */
  #bars = new Map();
  #loading = "";
  /** The list as it was drawn, as JSON. */
  #state = "";
  #polling = whileVisible(() => this.#look(), PAUSE_MS);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;
  #told;

  /** @param {{use: (name: string) => Promise<void>, changed: () => void}} told called to load a model, and when the list is another */
  constructor(told) {
    this.#told = told;
    this.#words.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#draw(), TYPING_MS);
    });
    const search = () => void this.#searchHub();
    const label = h("label", { for: "model-search" }, say("models.search"));
    const field = form(search, { class: "search-row" }, label, this.#words, submitButton("models.hub", {}));
    this.#body.append(field, this.#hub, this.#list);
    this.node.append(this.#note, this.#body);
  }

  async load() {
    try {
      const { models, downloads } = await api.get("/v1/models/catalogue");
      const state = JSON.stringify([models, downloads]);
      this.#models = models;
      this.#downloads = downloads;
      this.#body.hidden = false;
      tell(this.#note, "");
      // What is about to be pressed stays where it is.
      if (state !== this.#state) this.#draw();
      this.#state = state;
      this.#watch();
    } catch (error) {
      this.#body.hidden = true;
      tell(this.#note, sentenceOf(error));
    }
  }

  leave() {
    this.#polling.stop();
  }

  #watch() {
    if (this.#downloads.some(({ state }) => UNDER_WAY.has(state))) this.#polling.start();
    else this.#polling.stop();
  }

  /** See how far the downloads are; when one is over the list is another. */
  async #look() {
    try {
      const { downloads } = await api.get("/v1/models/downloads");
      const before = this.#downloads.map(({ name, state }) => `${name} ${state}`).join();
      this.#downloads = downloads;
      if (downloads.map((/** @type {Download} */ { name, state }) => `${name} ${state}`).join() === before) {
        for (const each of this.#downloads) this.#progress(each);
        return;
      }
      for (const { name, state } of downloads) if (state === "ready") announce(t("models.arrived", { name }));
      await this.load();
      this.#told.changed();
    } catch {
      // The line over the field says that the board is away; the download goes on without the page.
    }
  }

  #draw() {
    redraw(this.#list, () => this.#fillList(), this.#words);
  }

  #fillList() {
    const isUnfolded = this.#list.querySelector("details")?.open === true;
    const words = this.#words.value.trim();
    const wanted = this.#models.filter((model) => holds(`${model.name} ${model.description} ${model.task}`, words));
    const here = wanted.filter(({ state }) => USABLE.has(state));
    const others = wanted.filter(({ state }) => !USABLE.has(state));
    const isFit = (/** @type {KnownModel} */ model) => !UNFIT.has(model.fits) && model.state === "to pull";
    const unfit = others.filter((model) => !isFit(model));
    const isNamed = (/** @type {string} */ name) => wanted.some((model) => model.name === name);
    this.#bars.clear();
    fill(
      this.#list,
      // Above the names of models, also where none of the headings below is shown.
      h("h3", { class: "visually-hidden" }, say("panel.models")),
      REPOSITORY.test(words) && this.#repository(words),
      this.#downloads.filter(({ name, state }) => !isNamed(name) && state !== "ready").map((each) => this.#foreign(each)),
      wanted.length === 0 && h("p", { class: "muted" }, say("models.none")),
      here.length > 0 && h("h3", {}, say("models.here")),
      here.map((model) => this.#card(model)),
      others.some(isFit) && h("h3", {}, say("models.fitting")),
      others.filter(isFit).map((model) => this.#card(model)),
      unfit.length > 0 &&
        h(
          "details",
          { class: "fold", open: isUnfolded || words !== "" || !others.some(isFit) },
          h("summary", {}, say("models.unfit", { count: unfit.length })),
          h("div", { class: "fold-body" }, unfit.some(({ fits }) => UNFIT.has(fits)) && this.#elsewhere(), unfit.map((model) => this.#card(model))),
        ),
    );
  }

  /** How a model that does not fit is had nevertheless: said once, without a button at each. */
  #elsewhere() {
    return [h("p", { class: "muted small" }, say("models.elsewhere")), typed("rkllm-mcp models pull NAME")];
  }

  /** @param {KnownModel} model */
  #card(model) {
    const { name, description, fits, reason, state, memory_mb: memory, tokens_per_second: speed } = model;
    const isHere = USABLE.has(state);
    const facts = joined([
      speed !== null && say("models.speed", { rate: speed }),
      memory !== null && say("models.memory", { mb: memory }),
      say("models.window", { count: model.context_tokens }),
    ]);
    const fit = h("span", { class: fits === "yes" ? "badge" : "badge caution", title: reason }, say(`models.fits.${fits}`));
    return h(
      "section",
      { class: "server", "data-model": name, "data-entry": name },
      h(
        "div",
        { class: "names" },
        h("h4", {}, name),
        model.loaded && h("span", { class: "badge" }, say("models.loaded")),
        model.recommended && h("span", { class: "badge" }, say("models.recommended")),
        state === "emulated" ? h("span", { class: "badge caution" }, say("emulated")) : fit,
      ),
      description && h("p", {}, description),
      h("p", { class: "muted small" }, facts),
      reason && fits !== "yes" && h("p", { class: "muted small" }, reason),
      this.#actions(model, isHere),
    );
  }

  /**
   * @param {KnownModel} model
   * @param {boolean} isHere
   */
  #actions(model, isHere) {
    const { name, partial_bytes: partial } = model;
    const outcome = h("div", { class: "outcome", role: "status" });
    const download = this.#downloads.find((each) => each.name === name);
    // One that is done says nothing of a model that was removed since.
    const isOpen = download && (UNDER_WAY.has(download.state) || (!isHere && download.state !== "ready"));
    if (isOpen) return this.#bar(download);
    const marked = (/** @type {string} */ action) => ({ "data-control": `${action} ${name}` });
    if (!isHere) {
      if (model.state === "to convert") return h("p", { class: "muted small" }, say("models.convert"));
      // Of a model that is looked for by its whole name the download is wanted, for instance for another board.
      if (UNFIT.has(model.fits) && partial === 0 && this.#words.value.trim() !== name) return outcome;
      const phrase = partial > 0 ? "models.continue" : "models.pull";
      const pull = button(phrase, () => this.#pull(name, outcome), { ...(model.recommended && { class: "primary" }), ...marked("pull") });
      const rest = partial > 0 && h("span", { class: "muted small" }, say("models.partial", { mb: partial / MEGABYTE }));
      return h("div", {}, choices(pull, rest), outcome);
    }
    const isLoading = this.#loading === name;
    const use = button("models.use", () => this.#use(name), { disabled: isLoading, ...marked("use") });
    const sure = () => {
      const remove = button("models.remove", () => this.#remove(name, outcome), { class: "danger" });
      fill(outcome, h("p", {}, say("models.sure", { name })), choices(remove, button("cancel", () => this.#draw())));
      remove.focus();
    };
    return h(
      "div",
      {},
      choices(
        !model.loaded && model.task === "chat" && use,
        model.removable && !model.loaded && button("models.remove", sure, { class: "quiet", ...marked("remove") }),
      ),
      outcome,
    );
  }

  /**
   * A download with its progress, and what can be done about it.
   *
   * @param {Download} download
   */
  #bar(download) {
    const { name, state, problem } = download;
    const isOver = !UNDER_WAY.has(state);
    const outcome = h("div", { class: "outcome", role: "status" });
    const marked = (/** @type {string} */ action) => ({ "data-control": `${action} ${name}` });
    const status = h("p", { class: "small" });
    const bar = h("progress", { "aria-label": t("models.progress", { name }) });
    const node = h(
      "div",
      { class: "download" },
      !isOver && bar,
      status,
      problem && h("p", { class: "error", lang: "en" }, problem),
      choices(
        isOver
          ? button("models.continue", () => this.#pull(name, outcome), marked("pull"))
          : button("models.stop", () => this.#stop(name, outcome), { disabled: state === "stopping", ...marked("pull") }),
      ),
      outcome,
    );
    this.#bars.set(name, node);
    this.#progress(download);
    return node;
  }

  /** @param {Download} download */
  #progress({ name, state, received, total }) {
    const node = this.#bars.get(name);
    const bar = node?.querySelector("progress");
    const status = node?.querySelector("p.small");
    if (!status) return;
    const isRunning = state === "running" && total > 0;
    if (bar && isRunning) {
      bar.max = total;
      bar.value = received;
    }
    const values = { received: figure(received / MEGABYTE), total: figure(total / MEGABYTE), p: total ? Math.floor((received / total) * 100) : 0 };
    tell(status, say(isRunning ? "models.received" : `models.state.${state}`, values));
  }

  /**
   * A download of a repository that the catalogue does not have.
   *
   * @param {Download} download
   */
  #foreign(download) {
    const forget = button("models.forget", () => this.#stop(download.name), { class: "quiet" });
    return h(
      "section",
      { class: "server", "data-model": download.name, "data-entry": download.name },
      h("h4", {}, download.name),
      this.#bar(download),
      !UNDER_WAY.has(download.state) && choices(forget),
    );
  }

  /** @param {string} name a repository of the hub */
  #repository(name) {
    const outcome = h("div", { class: "outcome", role: "status" });
    if (this.#downloads.some((each) => each.name === name && each.state !== "ready")) return false;
    const pull = button("models.pull", () => this.#pull(name, outcome), { "data-control": `pull ${name}` });
    return h("section", { class: "server" }, h("h4", {}, name), h("p", { class: "muted small" }, say("models.foreign")), choices(pull), outcome);
  }

  async #searchHub() {
    const search = this.#words.value.trim();
    if (!search) return;
    fill(this.#hub, say("loading"));
    try {
      const { hub, repositories } = await api.get("/v1/models/hub", { search });
      const pick = (/** @type {string} */ name) => {
        this.#words.value = name;
        fill(this.#hub);
        this.#draw();
        this.#words.focus();
      };
      fill(
        this.#hub,
        h("p", { class: "muted small" }, say(repositories.length > 0 ? "models.found" : "models.not_found", { hub })),
        repositories.map((/** @type {string} */ name) => button("model.name", () => pick(name), { class: "quiet" }, { name })),
      );
    } catch (error) {
      fill(this.#hub, h("p", { class: "error" }, sentenceOf(error)));
    }
  }

  /**
   * @param {string} model
   * @param {HTMLElement} outcome
   */
  async #pull(model, outcome) {
    await this.#attempt(outcome, () => api.post("/v1/models:pull", { model }));
  }

  /**
   * @param {string} model
   * @param {HTMLElement} [outcome]
   */
  async #stop(model, outcome = this.#note) {
    await this.#attempt(outcome, () => api.post("/v1/models:stop", { model }));
  }

  /**
   * @param {string} name
   * @param {HTMLElement} outcome
   */
  async #remove(name, outcome) {
    const isDone = await this.#attempt(outcome, () => api.delete(`/v1/models/${encodeURIComponent(name)}`));
    if (!isDone) return;
    announce(t("models.removed", { name }));
    this.#told.changed();
  }

  /** @param {string} name */
  async #use(name) {
    this.#loading = name;
    this.#draw();
    await this.#told.use(name);
    this.#loading = this.#state = "";
    await this.load();
  }

  /**
   * @param {HTMLElement} outcome says why it failed
   * @param {() => Promise<unknown>} work
   * @returns {Promise<boolean>}
   */
  async #attempt(outcome, work) {
    try {
      await work();
      await this.load();
      return true;
    } catch (error) {
      fill(outcome, h("p", { class: "error" }, sentenceOf(error)));
      return false;
    }
  }
}
