/**
 * Bytes of a `text/event-stream` become records. A record ends at an empty line; lines that begin with a colon are
 * signs of life and become `{heartbeat: true}`. Knows nothing of what a record says. A record has the id of its own.
 *
 * @typedef {{data: string, id?: string} | {heartbeat: true}} Sign
 */

/** Accepts text in pieces of any size and returns the complete records. */
export class RecordReader {
  #rest = "";
  /** @type {string[]} */
  #data = [];
  /** @type {{id?: string}} */
  #name = {};

  /**
   * @param {string} text the next piece
   * @returns {Sign[]} the records and signs of life that it completes
   */
  feed(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    /** @type {Sign[]} */
    const signs = [];
    for (const line of lines) this.#take(line.endsWith("\r") ? line.slice(0, -1) : line, signs);
    return signs;
  }

  /**
   * @param {string} line
   * @param {Sign[]} signs
   */
  #take(line, signs) {
    if (line === "") {
      if (this.#data.length > 0) signs.push({ data: this.#data.join("\n"), ...this.#name });
      this.#data = [];
      this.#name = {};
    } else if (line.startsWith(":")) {
      signs.push({ heartbeat: true });
    } else if (line.startsWith("id:")) {
      this.#name = { id: line.slice(3).trim() };
    } else if (line.startsWith("data:")) {
      this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}

/**
 * The records of a response's body, in order.
 *
 * @param {ReadableStream<Uint8Array>} body
 * @param {number} silence_ms how long nothing at all may come
 * @returns {AsyncGenerator<Sign>}
 * @throws {Error} when the body breaks off or falls silent
 */
export async function* records(body, silence_ms) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new RecordReader();
  try {
    for (;;) {
      const { done, value } = await within(reader.read(), silence_ms);
      if (done) return;
      yield* parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    // A body that has broken off already cannot be cancelled; nothing is left to do then.
    await reader.cancel().catch(() => undefined);
  }
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {number} limit_ms
 * @returns {Promise<T>}
 */
function within(promise, limit_ms) {
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${limit_ms} ms`)), limit_ms);
  });
  return Promise.race([promise, /** @type {Promise<never>} */ (limit)]).finally(() => clearTimeout(timer));
}
