/**
 * The way to the board: whether it is there, and with which key. When the board wants a key, it is asked for once, however
 * many requests need it, and they are sent again with it. Knows the dialog, not what the requests are for. When something
 * did not come through, the board is looked for until it answers again: after pauses that grow, at once when the network
 * comes back or the page is shown, and never while it is hidden.
 */
import { Api, ConnectionLost, Refusal } from "./api.js";
import { isKeyToLast, keyGiven } from "./dialogs/small.js";
import { t } from "./i18n.js";
import { Keyring } from "./preferences.js";
import { sentenceOf } from "./problems.js";

const UNAUTHORIZED = 401;
const PAUSES_MS = [1000, 2000, 4000, 8000, 15_000];
const LONGEST_MS = 30_000;
// After these requests a question has other tools, or the documents are others.
const TOOLS = /^\/v1\/(servers|tools|documents|knowledge\/(create|add|remove))/;
const BROWSERS = /** @type {const} */ ([
  [/Edg/, "Edge"],
  [/SamsungBrowser/, "Samsung Internet"],
  [/Firefox|FxiOS/, "Firefox"],
  [/Chrome|CriOS/, "Chrome"],
  [/Safari/, "Safari"],
]);

class Access {
  #keyring = new Keyring();
  /** @type {Promise<boolean> | null} */
  #asking = null;
  #isDeclined = false;
  // What the first question for a key begins with: why a code gave none.
  #problem = "";
  /** the interface that everything uses */
  api = new Api(
    () => this.#keyring.key,
    (input, init) => this.#fetch(input, init),
    () => this.connection.lost(),
    (path) => TOOLS.test(path) && this.told.tools(),
  );

  /** the reactions of the page to a new key, to other tools or documents, and to the board being lost and back */
  told = { changed: () => {}, tools: () => {}, lost: () => {}, back: () => {} };
  connection = new Connection(() => this.#isThere(), { lost: () => this.told.lost(), back: () => this.told.back() });

  get isKeySet() {
    return this.#keyring.key !== "";
  }

  forget() {
    this.#keyring.keep("");
    this.told.changed();
  }

  /**
   * Exchange the code of an address for a key of this device.
   *
   * @param {string} code
   */
  async link(code) {
    const browser = BROWSERS.find(([mark]) => mark.test(navigator.userAgent))?.[1];
    const system = /iPhone|iPad|Android|Windows|Macintosh|Linux/.exec(navigator.userAgent)?.[0];
    const name = [browser, system?.replace("Macintosh", "Mac")].filter(Boolean).join(", ");
    try {
      const device = await new Api(() => "").post("/v1/devices:exchange", { code, name });
      this.#keyring.keep(device.key);
      if (await isKeyToLast()) this.#keyring.keep(device.key, true);
    } catch (error) {
      this.#problem = error instanceof Refusal ? t("device.refused") : sentenceOf(error);
    }
  }

  /** Ask for another key. */
  async change() {
    if (await this.#ask("")) this.told.changed();
  }

  /**
   * @param {RequestInfo | URL} input
   * @param {RequestInit} [init]
   */
  async #fetch(input, init) {
    const key = this.#keyring.key;
    const response = await fetch(input, init);
    if (response.status !== UNAUTHORIZED) return response;
    // Who gave none is asked again when something is to be done, not whenever the page looks something up.
    if (this.#isDeclined && init?.method === "GET") return response;
    // Another request may have got a good key while this one was under way.
    const isNew = this.#keyring.key !== key || (await this.#ask(key ? t("key.wrong") : this.#problem));
    if (!isNew) return response;
    const headers = new Headers(init?.headers);
    headers.set("Authorization", `Bearer ${this.#keyring.key}`);
    return fetch(input, { ...init, headers });
  }

  /** @param {string} problem */
  #ask(problem) {
    this.#asking ??= keyGiven(problem, (key) => this.#tried(key)).then((isGiven) => {
      this.#asking = null;
      this.#isDeclined = !isGiven;
      return isGiven;
    });
    return this.#asking;
  }

  /** Whether the board answers, with any status. */
  async #isThere() {
    try {
      await new Api(() => this.#keyring.key).get("/v1/me");
      return true;
    } catch (error) {
      return !(error instanceof ConnectionLost);
    }
  }

  /**
   * The problem of a key; empty when the board accepts it, and then it is stored.
   *
   * @param {string} key
   */
  async #tried(key) {
    try {
      await new Api(() => key).get("/v1/me");
      this.#keyring.keep(key);
      return "";
    } catch (error) {
      if (error instanceof Refusal && error.status === UNAUTHORIZED) return t("key.wrong");
      return error instanceof ConnectionLost ? t("problem.connection") : sentenceOf(error);
    }
  }
}

class Connection {
  #isLost = false;
  // When it is looked for again; in the past while that goes on.
  #next_ms = 0;
  #probe;
  #told;
  /** Ends the pause before the next try; outside a pause it does nothing. */
  #wake = () => {};

  /**
   * @param {() => Promise<boolean>} probe asks the board for something small; whether there was any answer
   * @param {{lost: () => void, back: () => void}} told called once each, in turn
   */
  constructor(probe, told) {
    this.#probe = probe;
    this.#told = told;
  }

  get isLost() {
    return this.#isLost;
  }

  /** Seconds until the board is looked for again. */
  get left_s() {
    return Math.max(0, Math.ceil((this.#next_ms - performance.now()) / 1000));
  }

  /** Something did not come through. */
  lost() {
    if (this.#isLost) return;
    this.#isLost = true;
    this.#told.lost();
    void this.#seek();
  }

  /** Try now. */
  retry() {
    this.#wake();
  }

  async #seek() {
    for (let tries = 0; ; tries += 1) {
      await this.#pause(PAUSES_MS[tries] ?? LONGEST_MS);
      if (await this.#probe()) break;
    }
    this.#isLost = false;
    this.#told.back();
  }

  /** @param {number} pause_ms */
  #pause(pause_ms) {
    this.#next_ms = performance.now() + pause_ms;
    return new Promise((resolve) => {
      const listening = new AbortController();
      const { signal } = listening;
      const go = () => {
        if (document.visibilityState !== "visible") return;
        clearTimeout(timer);
        this.#next_ms = 0;
        listening.abort();
        resolve(undefined);
      };
      const timer = setTimeout(go, pause_ms);
      this.#wake = go;
      addEventListener("online", go, { signal });
      document.addEventListener("visibilitychange", go, { signal });
    });
  }
}

/** The page has one board, and so one way to it. */
export const access = new Access();
export const { api } = access;
