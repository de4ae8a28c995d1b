/**
 * The board's HTTP interface. Every failure is one of two errors: the board said no (`Refusal`, with its status and its
 * words), or nothing came through (`ConnectionLost`). The key travels in a header only, never in an address.
 *
 * @typedef {import("./sse.js").Sign} Sign
 * @typedef {{kind: string, [field: string]: any}} BoardEvent
 */
import { language } from "./i18n.js";
import { records } from "./sse.js";

// The board writes a comment every five seconds while it has nothing to say; after this long it is not there any more.
const SILENCE_MS = 30_000;
// A response that is not a stream arrives in a moment, or the board is unreachable.
const PATIENCE_MS = 30_000;
// A large file is read page by page.
const UPLOAD_MS = 300_000;
// What a proxy says of a board that it does not reach.
const AWAY = new Set([502, 503, 504]);

/** The board answered, and the answer is no. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} message what the board says
   * @param {{code?: string, param?: string, retryAfter_s?: number}} [details]
   */
  constructor(status, message, details = {}) {
    super(message);
    this.name = "Refusal";
    this.status = status;
    this.code = details.code ?? "";
    this.param = details.param ?? "";
    this.retryAfter_s = details.retryAfter_s ?? 0;
  }
}

/** The board could not be reached, or the connection broke. */
export class ConnectionLost extends Error {
  constructor() {
    super("the connection to the board was lost");
    this.name = "ConnectionLost";
  }
}

export class Api {
  #key;
  #fetch;
  #told;
  #changed;

  /**
   * @param {() => string} key gives the key to send; empty for none
   * @param {typeof fetch} [fetcher]
   * @param {() => void} [lost] called for every request without a response
   * @param {(path: string) => void} [changed] called after every request that may have changed something on the board
   */
  constructor(key, fetcher = (input, init) => fetch(input, init), lost = () => undefined, changed = () => undefined) {
    this.#key = key;
    this.#fetch = fetcher;
    this.#told = lost;
    this.#changed = changed;
  }

  /**
   * Ask for a document.
   *
   * @param {string} path
   * @param {Record<string, string | number | boolean | undefined>} [query] undefined values are left out
   * @returns {Promise<any>}
   */
  get(path, query = {}) {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.#json("GET", search ? `${path}?${search}` : path);
  }

  /**
   * @param {string} path
   * @param {unknown} [body]
   * @param {number} [patience_ms] the longest wait for the answer
   * @returns {Promise<any>}
   */
  post(path, body = {}, patience_ms = PATIENCE_MS) {
    return this.#json("POST", path, body, patience_ms);
  }

  /**
   * @param {string} path
   * @param {unknown} body
   * @returns {Promise<any>}
   */
  patch(path, body) {
    return this.#json("PATCH", path, body);
  }

  /**
   * @param {string} path
   * @param {unknown} body
   * @returns {Promise<any>}
   */
  put(path, body) {
    return this.#json("PUT", path, body);
  }

  /** @param {string} path */
  async delete(path) {
    // It goes through although the page is left.
    await this.#send("DELETE", path, undefined, AbortSignal.timeout(PATIENCE_MS), true);
  }

  /**
   * Send a file.
   *
   * @param {string} path
   * @param {File} file
   * @param {Record<string, string>} [fields] what goes with it
   * @returns {Promise<any>}
   */
  async upload(path, file, fields = {}) {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    form.set("file", file);
    return (await this.#send("POST", path, form, AbortSignal.timeout(UPLOAD_MS))).json();
  }

  /**
   * A file to save, as it is.
   *
   * @param {string} path
   * @returns {Promise<Blob>}
   */
  async blob(path) {
    const response = await this.#send("GET", path, undefined, AbortSignal.timeout(PATIENCE_MS));
    return response.blob().catch(() => {
      throw this.#lost();
    });
  }

  /**
   * The sound that the board makes of a text.
   *
   * @param {string} path
   * @param {object} body
   * @param {AbortSignal} signal ends it
   * @returns {Promise<ArrayBuffer>}
   */
  async sound(path, body, signal) {
    const response = await this.#send("POST", path, body, signal);
    return response.arrayBuffer().catch(() => {
      throw this.#lost(signal);
    });
  }

  /**
   * Ask the assistant. The events come as they happen; the last one is of the kind `end`.
   *
   * @param {object} request the body of `/v1/execute`
   * @param {AbortSignal} signal ends it
   * @param {string} [once] the same when it is sent again, so that it is stored once
   * @returns {Promise<{conversation: string, events: AsyncGenerator<BoardEvent>}>}
   */
  async execute(request, signal, once = "") {
    const response = await this.#send("POST", "/v1/execute", request, signal, false, once);
    const conversation = response.headers.get("X-Conversation-Id") ?? "";
    return { conversation, events: events(response, () => this.#lost(signal)) };
  }

  /**
   * Go on reading a detached answer.
   *
   * @param {string} conversation
   * @param {number} after the number of the last event that came
   * @param {AbortSignal} signal ends the reading, not the answer
   * @returns {Promise<AsyncGenerator<BoardEvent>>}
   */
  async follow(conversation, after, signal) {
    const path = `/v1/conversations/${encodeURIComponent(conversation)}/stream?after=${after}`;
    return events(await this.#send("GET", path, undefined, signal), () => this.#lost(signal));
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @param {number} [patience_ms]
   */
  async #json(method, path, body, patience_ms = PATIENCE_MS) {
    const response = await this.#send(method, path, body, AbortSignal.timeout(patience_ms));
    if (response.status === 204) return null;
    return response.json().catch(() => {
      throw this.#lost();
    });
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} body
   * @param {AbortSignal} signal
   * @param {boolean} [keepalive]
   * @param {string} [once] its Idempotency-Key
   */
  async #send(method, path, body, signal, keepalive = false, once = "") {
    const headers = new Headers({ Accept: "application/json, text/event-stream", "Accept-Language": language() });
    const key = this.#key();
    if (key) headers.set("Authorization", `Bearer ${key}`);
    if (once) headers.set("Idempotency-Key", once);
    const isForm = body instanceof FormData;
    if (body !== undefined && !isForm) headers.set("Content-Type", "application/json");
    const content = body === undefined ? undefined : isForm ? body : JSON.stringify(body);
    let response;
    try {
      response = await this.#fetch(path, { method, headers, body: content, signal, cache: "no-store", keepalive });
    } catch {
      throw this.#lost(signal);
    }
    if (response.ok) {
      if (method !== "GET") this.#changed(path);
      return response;
    }
    const said = await response.json().catch(() => null);
    // The board's own refusals have an error of a known shape.
    if (AWAY.has(response.status) && !said?.error) throw this.#lost(signal);
    throw refusal(response, said);
  }

  /** @param {AbortSignal} [signal] what ended the request, perhaps: a person who stops it has lost nothing */
  #lost(signal) {
    if (signal?.reason?.name !== "AbortError") this.#told();
    return new ConnectionLost();
  }
}

/**
 * @param {Response} response
 * @param {() => ConnectionLost} lost
 * @returns {AsyncGenerator<BoardEvent>}
 */
async function* events(response, lost) {
  let hasEnded = false;
  try {
    for await (const sign of records(/** @type {ReadableStream<Uint8Array>} */ (response.body), SILENCE_MS)) {
      if (!("data" in sign) || sign.data === "[DONE]") continue;
      const event = JSON.parse(sign.data);
      if (event.error && !event.kind) throw new Refusal(0, event.error.message ?? "", event.error);
      hasEnded ||= event.kind === "end";
      yield sign.id ? { ...event, number: Number(sign.id) } : event;
    }
  } catch (error) {
    throw error instanceof Refusal ? error : lost();
  }
  if (!hasEnded) throw lost();
}

/**
 * What a response that is not a success says, whichever of the usual shapes it has.
 *
 * @param {Response} response
 * @param {any} body its JSON; null when it has none
 */
function refusal(response, body) {
  const error = typeof body?.error === "object" && body.error !== null ? body.error : { message: body?.error };
  const wait = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new Refusal(response.status, String(error.message ?? response.statusText ?? ""), {
    code: String(error.code ?? error.type ?? ""),
    param: String(error.param ?? ""),
    retryAfter_s: Number.isFinite(wait) ? wait : 0,
  });
}
