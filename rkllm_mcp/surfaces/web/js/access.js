/**
 * The connection with its key: when the board wants one, it is asked for once, however many requests need it, and they
 * are sent again with it. Knows the dialog, not what the requests are for.
 */
import { Api, ConnectionLost, Refusal } from "./api.js";
import { keyGiven } from "./dialogs/small.js";
import { t } from "./i18n.js";
import { Keyring } from "./preferences.js";
import { sentenceOf } from "./problems.js";

const UNAUTHORIZED = 401;

export class Access {
  #keyring = new Keyring();
  /** @type {Promise<boolean> | null} */
  #asking = null;
  /** the interface that everything uses */
  api = new Api(
    () => this.#keyring.key,
    (input, init) => this.#fetch(input, init),
  );

  /** @param {() => void} changed told when there is another key */
  constructor(changed) {
    this.changed = changed;
  }

  get isKeySet() {
    return this.#keyring.key !== "";
  }

  forget() {
    this.#keyring.keep("");
    this.changed();
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
    // Another request may have got a good key while this one was under way.
    const isNew = this.#keyring.key !== key || (await this.#ask(t(key ? "key.wrong" : "key.missing")));
    if (!isNew) return response;
    const headers = new Headers(init?.headers);
    headers.set("Authorization", `Bearer ${this.#keyring.key}`);
    return fetch(input, { ...init, headers });
  }

  /** @param {string} problem */
  #ask(problem) {
    this.#asking ??= keyGiven(problem, (key) => this.#tried(key)).finally(() => {
      this.#asking = null;
    });
    return this.#asking;
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
