/**
 * Streamed Markdown becomes sentences for a screen reader: each is announced once, when it is complete, and never letter by
 * letter. Code is named, not read.
 */

// A full stop counts when a space follows, so that 3.14 is no end; Japanese ends need none.
const ENDING = /[。！？]|[.!?:](?=\s)|\n/g;

export class Sentences {
  #rest = "";
  #isCode = false;

  /**
   * @param {string} text the next piece
   * @returns {string[]} the sentences that it completes
   */
  feed(text) {
    this.#rest += text;
    /** @type {string[]} */
    const found = [];
    let start = 0;
    for (const { index, 0: sign } of this.#rest.matchAll(ENDING)) {
      this.#add(this.#rest.slice(start, index + sign.length), found);
      start = index + sign.length;
    }
    this.#rest = this.#rest.slice(start);
    return found;
  }

  /** @returns {string[]} the remaining sentences */
  finish() {
    /** @type {string[]} */
    const found = [];
    this.#add(this.#rest, found);
    this.#rest = "";
    return found;
  }

  /**
   * @param {string} sentence
   * @param {string[]} found
   */
  #add(sentence, found) {
    if (/^\s*(```|~~~)/.test(sentence)) this.#isCode = !this.#isCode;
    else if (!this.#isCode && /[\p{L}\p{N}]/u.test(sentence)) found.push(spoken(sentence));
  }
}

/**
 * A sentence without the signs of Markdown.
 *
 * @param {string} sentence
 */
function spoken(sentence) {
  const words = sentence
    .replace(/\[([^[\]]{0,500})\]\([^()\s]{0,2000}\)/g, "$1")
    .replace(/^\s*(?:#{1,6}|>|[-*+])\s+/, "");
  return words
    .replaceAll(/[*`]|~~|__/g, "")
    .replaceAll("|", " ")
    .replaceAll(/\s{1,200}/g, " ")
    .trim();
}
