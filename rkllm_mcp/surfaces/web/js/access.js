/**
 * The way to the board: whether it is there, and with which key. When the board wants a key, it is asked for once, however
 * many requests need it, and they are sent again with it. Knows the dialog, not what the requests are for.
 */
import { Api, ConnectionLost, Refusal } from "./api.js";
import { Connection } from "./connection.js";
import { isKeyToLast, keyGiven } from "./dialogs/small.js";
import { t } from "./i18n.js";
import { Keyring } from "./preferences.js";
import { sentenceOf } from "./problems.js";

const UNAUTHORIZED = 401;

export class Access {
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
  );

  /** @param {{changed: () => void, lost: () => void, back: () => void}} told when there is another key, and of the board */
  constructor(told) {
    this.changed = told.changed;
    this.connection = new Connection(() => this.#isThere(), told);
  }

  get isKeySet() {
    return this.#keyring.key !== "";
  }

  forget() {
    this.#keyring.keep("");
    this.changed();
  }

  /**
   * Exchange the code of an address for a key of this device.
   *
   * @param {string} code
   */
  async link(code) {
    const name = /iPhone|iPad|Android|Windows|Macintosh|Linux/.exec(navigator.userAgent)?.[0] ?? "";
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
    if (await this.#ask("")) this.changed();
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

  /** Whether the board answers, whatever it says. */
  async #isThere() {
    try {
      await new Api(() => this.#keyring.key).get("/v1/me");
      return true;
    } catch (error) {
      return !(error instanceof ConnectionLost);
    }
  }

  /**
   * What is wrong with a key; empty when the board takes it, and then it is kept.
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
