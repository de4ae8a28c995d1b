/**
 * One conversation on the page: its messages, and the answer under way. The visible past is the part that the board has
 * stored; a question that did not get through stays until it is asked again.
 *
 * @typedef {import("./past.js").Message} Message
 * @typedef {import("./answer_view.js").AnswerView} AnswerView
 * @typedef {import("./pictures.js").Picture} Picture
 * @typedef {import("./unanswered.js").Options} Options
 * @typedef {import("./unanswered.js").Wish} Wish
 * @typedef {import("./unanswered.js").Said} Said
 * @typedef {import("./unanswered.js").Kept} Kept
 * @typedef {import("./unanswered.js").Unanswered} Unanswered
 * @typedef {{changed: (thread: Thread) => void, ask: (wish: Wish) => boolean,
 *   models: () => import("../models.js").Model[]}} Told called when the thread gets its id and when an
 *   answer begins and ends; and the way to ask
 */
import { access, api } from "../access.js";
import { ConnectionLost, Refusal } from "../api.js";
import { button, choices } from "../buttons.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { costsOf } from "./answer.js";
import { announce } from "./announcer.js";
import { openMenu } from "../menu.js";
import { pastAnswer } from "./answer_view.js";
import { lastOf, notice } from "./past.js";
import { dataOf, storedPictures } from "./pictures.js";
import { QuestionView } from "./question_view.js";
import { Reading } from "./reading.js";
import { hasReached, isTriedAgain, newOnce, whenBackButton } from "./unanswered.js";

// How long the board may take to end an answer by itself before the connection is cut, which ends it as well.
const STOPPING_MS = 4000;
const NOT_FOUND = 404;
const LOADING_MS = 5000;

export class Thread {
  node = h("div", { class: "thread" });
  title = "";
  /** @type {import("../dialogs/settings.js").Settings} what a new conversation begins with */
  begin = { settings: {}, system: null };
  /** @type {import("./queue.js").Waiting[]} questions that wait for the answer under way */
  queued = [];
  /** whether the last answer was stopped or has failed, and whether the next question goes all the same */
  isStopped = false;
  isGoingOn = false;
  /** @type {import("./answer.js").Costs | null} the figures of its last answer; null when they are not known */
  costs = null;
  /** @type {Said[]} the visible messages of both sides */
  #said = [];
  /** whether the browser has stored the question that waits for the board */
  isKept = false;
  /**
   * the unanswered question, its position and number of versions, its elements, what offers to ask it again, and whether
   * the board has it
   *
   * @type {Unanswered | null}
   */
  #unanswered = null;
  /** @type {HTMLElement | null} the question under way, unless the board has stored it before */
  #asked = null;
  /** @type {Map<number, QuestionView>} the questions that are shown, by their positions */
  #questions = new Map();
  /** @type {Reading | null} the answer under way */
  #reading = null;
  #told;

  /**
   * @param {string} id empty until the board has given it one
   * @param {Told} told
   */
  constructor(id, told) {
    this.#told = told;
    this.id = id;
  }

  get isRunning() {
    return this.#reading !== null;
  }

  get isEmpty() {
    return this.node.childElementCount === 0;
  }

  /** An unanswered question that exists on this page only; empty without one, and if it is sent by itself. */
  get unsent() {
    if (!this.#unanswered || this.#unanswered.isStored) return "";
    return this.isKept ? "" : this.#unanswered.wish.message;
  }

  /**
   * The question that is to be asked when the board is back.
   *
   * @returns {Kept | null}
   */
  get waiting() {
    if (!this.#unanswered?.wish.whenBack) return null;
    const { wish, position, versions } = this.#unanswered;
    return { id: this.id, wish, position, versions, begin: this.begin };
  }

  /** Whether something of it would be gone if it were fetched again: an answer under way, a question in vain. */
  get isUnsettled() {
    return this.isRunning || this.#unanswered !== null;
  }

  /**
   * Show what the board has stored.
   *
   * @throws {Refusal} for an unknown conversation, or another user's
   */
  async load() {
    const stored = await this.#stored();
    if (!this.isRunning) this.#draw(stored);
  }

  /**
   * Go on with a question that the page was to ask when it was left.
   *
   * @param {Kept} kept
   */
  takeUp({ wish, position, versions, begin }) {
    this.begin = begin;
    this.title = wish.message || (wish.prompt?.name ?? "");
    this.#putUnanswered(wish, position, versions);
  }

  /** The board is back: ask what was to be asked then, unless it has got through. */
  async sendWaiting() {
    if (!this.waiting) return;
    try {
      await this.refresh();
    } catch (error) {
      if (error instanceof ConnectionLost) return;
    }
    if (!this.#unanswered?.wish.whenBack || this.isRunning) return;
    const { wish, offer } = this.#unanswered;
    this.#retry({ ...wish, tries: (wish.tries ?? 0) + 1 }, offer);
  }

  /** Read on an answer that has lost its connection. */
  comeBack() {
    this.#reading?.comeBack();
  }

  /**
   * Add the messages of other windows, and the outcome of a question while the connection was gone.
   *
   * @returns {Promise<boolean>} whether there was anything
   */
  async refresh() {
    this.comeBack();
    if (this.isRunning || !this.id) return false;
    const known = this.#said.length;
    const stored = await this.#stored();
    // A question may have been asked since, and even answered.
    if (this.isRunning || this.#said.length !== known) return false;
    const isOther = this.#said.some(({ role, text }, place) => role === "user" && text !== stored.messages[place]?.text);
    if (isOther) this.#draw(stored);
    else if (stored.messages.length > this.#said.length) this.#add(stored);
    else return false;
    return true;
  }

  /** @returns {Promise<{title: string, messages: Message[]}>} */
  #stored() {
    return api.get(`/v1/conversations/${encodeURIComponent(this.id)}`);
  }

  /** @param {{title: string, messages: Message[]}} stored */
  #draw(stored) {
    this.#said = [];
    this.#questions.clear();
    this.#add(stored);
  }

  /**
   * Visible messages stay: they have more than the stored ones, such as the forms that were filled in.
   *
   * @param {{title: string, messages: Message[]}} stored
   */
  #add({ title, messages }) {
    const ending = messages.at(-1)?.ending;
    const question = /** @type {Message} */ (messages.at(-2) ?? { role: "user", text: "" });
    const pictures = this.#picturesOf(question);
    const asked = { message: question.text, pictures };
    const over = ending === "running" ? messages.slice(0, -2) : messages;
    const known = this.#said.length;
    const news = over.slice(known);
    const unanswered = this.#unanswered;
    for (const node of unanswered?.nodes ?? []) node.remove();
    if (known === 0) this.node.replaceChildren();
    if (news.length > 0) this.#takeBackOffers();
    const last = news.length - 1;
    const makers = news.map(
      (message, place) => () => this.#past(message, known + place, over[known + place - 1], place === last),
    );
    this.node.append(...lastOf(makers));
    this.title = title ?? "";
    this.costs = costsOf(messages.at(-1)?.events ?? []);
    this.#said = over.map((message) => ({
      role: message.role,
      text: message.text,
      pictures: this.#picturesOf(message),
    }));
    this.isStopped = ending !== undefined && ending !== "answered" && ending !== "running";
    const waiting = unanswered?.wish.whenBack ? unanswered : null;
    const isNew = waiting !== null && !hasReached(messages, waiting);
    if (ending === "running") {
      this.#unanswered = null;
      if (isNew) this.queued.push({ message: waiting.wish.message, pictures: waiting.wish.pictures });
      this.#asked = this.#past(question, over.length);
      this.node.append(this.#asked);
      void this.#answer(asked, true);
    } else if (!isNew && ending === "interrupted" && messages.at(-2)?.role === "user") {
      this.#unanswered = null;
      this.#offerAgain(asked, waiting?.wish);
    } else if (unanswered) this.#settle(unanswered, messages);
  }

  /** @param {Message} message */
  #picturesOf({ pictures = [] }) {
    return storedPictures(this.id, pictures);
  }

  /**
   * The last answer was broken off with the board: its question can be asked again in its place.
   *
   * @param {Wish} asked
   * @param {Wish} [waiting] the same question, if it is to be asked by itself
   */
  #offerAgain(asked, waiting) {
    const broken = [...this.node.querySelectorAll("article.assistant")].at(-1);
    const line = notice("chat.broken_off");
    const again = () => {
      if (this.isRunning) return;
      broken?.remove();
      this.#said.splice(-2);
      this.#retry({ ...asked, again: true, whenBack: waiting?.whenBack, tries: (waiting?.tries ?? 0) + 1 }, line);
    };
    line.append(button("retry", again));
    this.node.append(line);
    if (waiting) again();
  }

  /**
   * Ask, and show the answer as it comes.
   *
   * @param {Wish} wish
   */
  async ask(wish) {
    if (wish.goOn) {
      while (wish.goOn.nextSibling) wish.goOn.nextSibling.remove();
      await this.#answer(wish);
      return;
    }
    // Until the board has given it a title, or for good where it keeps nothing.
    this.title ||= wish.message || (wish.prompt?.name ?? "");
    const position = wish.replaces ?? this.#said.length;
    const before = this.#questions.get(position);
    const versions = wish.replaces === undefined ? 1 : (before?.versions ?? 0) + 1;
    if (before && wish.replaces !== undefined) this.#dropFrom(before.node, position);
    this.#asked = this.#question({ ...wish, version: versions, versions }, position);
    this.node.append(this.#asked);
    await this.#answer(wish);
  }

  /** Write the last question in other words. */
  editLast() {
    const last = [...this.#questions].sort(([one], [other]) => one - other).at(-1)?.[1];
    last?.edit();
    return last !== undefined;
  }

  /** @param {HTMLElement} node of a message on the page */
  questionAt(node) {
    return [...this.#questions.values()].find((view) => view.node === node);
  }

  /**
   * @param {import("./question_view.js").Asked} asked
   * @param {number} position
   */
  #question(asked, position) {
    const view = new QuestionView(asked, {
      ask: (text) => this.#told.ask({ message: text, pictures: asked.pictures, replaces: position }),
      show: (version) => void this.#showVersion(position, version),
      cost: (text) => this.#cost(text, asked.pictures?.length ?? 0),
    });
    this.#questions.set(position, view);
    return view.node;
  }

  /**
   * @param {Message} message
   * @param {number} position
   * @param {Message} [before]
   * @param {boolean} [isLast]
   */
  #past(message, position, before, isLast = false) {
    if (message.role === "user")
      return this.#question({ ...message, message: message.text, pictures: this.#picturesOf(message) }, position);
    const asked = { message: before?.text ?? "", pictures: before && this.#picturesOf(before) };
    const { goOn, ...around } = this.#around(asked, position - 1);
    return pastAnswer(message, isLast ? { ...around, goOn } : around);
  }

  /** Only the last answer can be continued. */
  #takeBackOffers() {
    for (const offer of this.node.querySelectorAll(".go-on")) offer.remove();
  }

  /**
   * @param {Wish} wish
   * @param {number} position of the question
   */
  #around(wish, position) {
    const { message, pictures, prompt } = wish;
    const ask = (/** @type {Options} */ options) =>
      this.#told.ask({ message, pictures, prompt, replaces: position, options });
    const again = (/** @type {HTMLElement} */ from) =>
      openMenu(from, [
        { phrase: "chat.again_same", act: () => ask({}) },
        { phrase: "chat.again_bare", act: () => ask({ allowed_tools: [] }) },
        ...this.#told
          .models()
          .filter(({ loaded }) => !loaded)
          .map(({ id }) => ({ phrase: "chat.again_with", values: { name: id }, act: () => ask({ model: id }) })),
        ...(this.id ? [{ phrase: "chat.sent", act: () => this.#showSent() }] : []),
      ]);
    const goOn = (/** @type {HTMLElement} */ node) => this.#told.ask({ message, goOn: node });
    return { again, goOn };
  }

  async #showSent() {
    const { showSent } = await import("../dialogs/sent.js");
    await showSent(this.id);
  }

  /**
   * @param {HTMLElement} node the first that goes; all after it go as well
   * @param {number} position
   */
  #dropFrom(node, position) {
    while (node.nextSibling) node.nextSibling.remove();
    node.remove();
    this.#said.length = Math.min(position, this.#said.length);
    for (const place of [...this.#questions.keys()]) if (place >= position) this.#questions.delete(place);
  }

  /**
   * @param {number} position
   * @param {number} version
   */
  async #showVersion(position, version) {
    if (this.isRunning) return;
    const path = `/v1/conversations/${encodeURIComponent(this.id)}/versions`;
    try {
      this.#draw(await api.post(path, { position, version }));
      const node = this.#questions.get(position)?.node;
      node?.scrollIntoView({ block: "nearest" });
      node?.focus({ preventScroll: true });
      announce(t("chat.version", { n: version, m: this.#questions.get(position)?.versions ?? version }));
    } catch (error) {
      announce(sentenceOf(error));
    }
  }

  /**
   * What asking this costs: all in front of it has been read.
   *
   * @param {string} text
   * @param {number} pictures how many go with it
   */
  async #cost(text, pictures) {
    const [counted, board, me] = await Promise.all([
      api.post("/v1/tokens", { texts: [text] }),
      api.get("/v1/board"),
      pictures ? api.get("/v1/me") : null,
    ]);
    const tokens = counted.tokens + pictures * (me?.picture_tokens ?? 0);
    return { tokens, seconds: board.prefill_tps ? Math.max(1, Math.round(tokens / board.prefill_tps)) : 0 };
  }

  /** End the answer under way. */
  async stop() {
    if (!this.#reading) return;
    const { run, view } = this.#reading;
    view.stopping();
    // The board ends the answer properly; the connection is cut when it does not, or when it is too early to name it.
    const limit = setTimeout(() => run.abort(), this.id ? STOPPING_MS : 0);
    run.signal.addEventListener("abort", () => clearTimeout(limit));
    if (!this.id) return;
    await api.post(`/v1/conversations/${encodeURIComponent(this.id)}/cancel`).catch(() => run.abort());
  }

  /**
   * @param {Wish} wish
   * @param {boolean} isUnderWay whether the board has been asked before
   */
  async #answer(wish, isUnderWay = false) {
    const position = wish.replaces ?? this.#said.length - (wish.goOn ? 2 : 0);
    const reading = new Reading(this.#around(wish, position));
    let isStored = isUnderWay;
    const named = (/** @type {string} */ id) => {
      isStored = true;
      this.#named(id, wish);
    };
    this.#takeBackOffers();
    this.node.append(reading.view.node);
    if (wish.goOn) {
      reading.begun = wish.goOn;
      reading.known = this.#said.at(-1)?.text.length ?? 0;
    }
    this.#reading = reading;
    this.isStopped = false;
    this.#unanswered = null;
    this.#told.changed(this);
    try {
      if (isUnderWay) await reading.follow(this.id);
      else await reading.ask(await this.#request(wish), this.id, named, (wish.once ??= newOnce()));
      this.#note({ ...wish, replaces: position }, reading.view);
      const { reason, error } = reading.view.answer.ending ?? {};
      const why = error ? t("end.failed_why", { error }) : t("end.failed");
      if (reason === "interrupted") this.#offerAgain({ ...wish, replaces: undefined, goOn: undefined, once: undefined });
      if (reason === "failed") reading.view.fail(why, [this.#again({ ...wish, replaces: position, once: undefined }, reading.view)]);
    } catch (error) {
      if (reading.run.signal.aborted) {
        // The person has ended it, and the board did not say so in time.
        reading.view.take({ kind: "end", reason: "cancelled", error: null });
        if (this.id) this.#note({ ...wish, replaces: position }, reading.view);
      } else if (wish.goOn) this.#notContinued(reading, error);
      else this.#failed(wish, reading.view, error, isStored);
    } finally {
      this.#reading = null;
      reading.run.abort();
      const reason = reading.view.answer.ending?.reason ?? "failed";
      this.isStopped = ["cancelled", "failed", "interrupted"].includes(reason) && !this.isGoingOn;
      this.isGoingOn = false;
      this.#told.changed(this);
      // An answer that was read on in vain: the board has something else of it by now.
      if (this.#unanswered && reading.after > 0) void this.refresh().catch(() => false);
    }
  }

  /** @param {Wish} wish */
  async #request({ message, pictures = [], prompt, options, history, again, goOn, replaces }) {
    if (goOn) return { continue: true, ...options, force_tool: undefined, approvals: "ask", conversation: this.id };
    const shown = pictures.length > 0 && { pictures: await Promise.all(pictures.map(dataOf)) };
    const asked = again ? { again } : prompt ? { prompt } : { message, ...shown };
    const { settings, system } = this.begin;
    const begin = {
      ...(Object.keys(settings).length > 0 && { settings }),
      ...(system && { system }),
    };
    // Pictures that were not fetched went with the conversation.
    const said = history?.map(({ role, text, pictures: [...seen] = [] }) => {
      const data = seen.map((picture) => picture.data).filter(Boolean);
      return { role, text, ...(data.length > 0 && { pictures: data }) };
    });
    const rest = { history: said, replaces, approvals: "ask", ...(this.begin.isTemporary && { store: false, memory: false }) };
    return { ...asked, ...options, ...rest, ...(this.id ? { conversation: this.id } : begin) };
  }

  /**
   * The board has the question now: after a failure it is asked like any other.
   *
   * @param {string} id
   * @param {Wish} wish
   */
  #named(id, wish) {
    if (wish.again) wish.once = undefined;
    wish.again = undefined;
    if (!id || id === this.id) return;
    this.id = id;
    this.#told.changed(this);
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #note(wish, view) {
    const question = wish.message || (wish.prompt?.name ?? "");
    this.#said.length = wish.replaces ?? this.#said.length;
    this.#said.push({ role: "user", text: question, pictures: wish.pictures }, { role: "assistant", text: view.answer.text });
    this.costs = view.answer.costs ?? this.costs;
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   * @param {unknown} error
   * @param {boolean} isStored the board has the question
   */
  #failed(wish, view, error, isStored) {
    const isLost = error instanceof ConnectionLost;
    if (wish.whenBack) wish = { ...wish, whenBack: isTriedAgain(wish, error) };
    const position = wish.replaces ?? this.#said.length;
    const versions = this.#questions.get(position)?.versions ?? 1;
    const nodes = [view.node, ...(this.#asked ? [this.#asked] : [])];
    this.#unanswered = { wish, position, versions, nodes, offer: view.node, isStored };
    const isUnknown = error instanceof Refusal && error.status === NOT_FOUND && error.param === "conversation";
    if (isStored && error instanceof Refusal) {
      // It goes on, but for its own window alone, or it is over by now.
      view.fail(t("problem.under_way"), [button("chat.look", () => void this.load().catch(() => undefined))]);
      return;
    }
    const isAway = (isLost && access.connection.isLost) || wish.whenBack;
    const offer = isUnknown ? [this.#onward(wish, view)] : [this.#again(wish, view), isAway === true && whenBackButton(wish, () => this.#told.changed(this))];
    // The present connection is shown elsewhere; this stays when it is back.
    view.fail(isLost ? t("chat.lost") : sentenceOf(error), offer);
    if (wish.whenBack && error instanceof Refusal)
      setTimeout(() => void this.sendWaiting(), error.retryAfter_s * 1000 || LOADING_MS);
  }

  /**
   * The answer stays as it was, with the reason.
   *
   * @param {Reading} reading
   * @param {unknown} error
   */
  #notContinued({ view, begun, after }, error) {
    view.leave();
    if (begun || after === 0) view.node.remove();
    const line = h("div", { class: "notice error-notice", role: "alert" }, h("p", {}, sentenceOf(error)));
    line.append(button("retry", () => void this.load().catch(() => undefined)));
    this.node.append(line);
  }

  /**
   * What became of a question that did not get through.
   *
   * @param {Unanswered} unanswered
   * @param {Message[]} messages the stored ones
   */
  #settle({ wish, position, versions }, messages) {
    this.#unanswered = null;
    const last = messages.at(-1)?.role;
    const isThere = hasReached(messages, { wish, position, versions });
    if (isThere && last === "assistant") {
      this.node.append(notice("chat.reloaded"));
      return;
    }
    this.#putUnanswered(wish, wish.replaces ?? this.#said.length, versions, isThere);
  }

  /**
   * Show a question that has not been answered, unless it is there, and offer to ask it again.
   *
   * @param {Wish} wish
   * @param {number} position
   * @param {number} versions
   * @param {boolean} [isThere] as a stored message
   */
  #putUnanswered(wish, position, versions, isThere = false) {
    const before = this.#questions.get(position);
    if (before && wish.replaces !== undefined && !isThere) this.#dropFrom(before.node, position);
    this.#asked = isThere ? null : this.#question({ ...wish, version: versions, versions }, position);
    const line = notice("chat.unanswered");
    const nodes = this.#asked ? [this.#asked, line] : [line];
    this.#unanswered = { wish, position, versions, nodes, offer: line, isStored: false };
    line.append(choices(button("retry", () => this.#retry(wish, line)), wish.whenBack && whenBackButton(wish, () => this.#told.changed(this))));
    this.node.append(...nodes);
  }

  /**
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #again(wish, view) {
    return button("retry", () => this.#retry(wish, view.node));
  }

  /**
   * The board does not know this conversation any more: it goes on as a new one, with its visible messages.
   *
   * @param {Wish} wish
   * @param {AnswerView} view
   */
  #onward(wish, view) {
    return button("chat.onward", () => {
      this.id = "";
      this.#retry({ ...wish, history: [...this.#said], once: undefined }, view.node);
    });
  }

  /**
   * @param {Wish} wish
   * @param {HTMLElement} gone what offered it; the focus of its button stays in the conversation
   */
  #retry(wish, gone) {
    if (this.isRunning) return;
    /** @type {HTMLElement | null} */ (gone.closest(".messages"))?.focus({ preventScroll: true });
    gone.remove();
    void this.#answer(wish);
  }
}
