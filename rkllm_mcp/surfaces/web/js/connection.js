/**
 * Whether the board is there. When something did not come through, it is looked for until it answers again: after pauses
 * that grow, at once when the network comes back or the page is shown, and never while it is hidden.
 */

const PAUSES_MS = [1000, 2000, 4000, 8000, 15_000];
const LONGEST_MS = 30_000;

export class Connection {
  #isLost = false;
  // When it is looked for again; in the past while that goes on.
  #next_ms = 0;
  #probe;
  #told;
  /** Ends the pause before the next try; between two pauses there is nothing to end. */
  #wake = () => {};

  /**
   * @param {() => Promise<boolean>} probe asks the board for something small; whether there was any answer
   * @param {{lost: () => void, back: () => void}} told each once, in turn
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
