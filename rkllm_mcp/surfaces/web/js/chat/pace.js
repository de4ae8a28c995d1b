/** When what has changed is drawn: in the next frame, or more seldom where frames take long, so that a key gets its turn. */

// Of the time that drawing takes, a rest this many times as long follows, which has a limit.
const RESTS = 3;
const LONGEST_REST_MS = 500;
// How much the last of the times counts.
const SHARE = 0.1;

export class Pace {
  #isDue = false;
  #mean_ms = 0;
  #rests_until_ms = 0;
  #draw;

  /** @param {() => void} draw */
  constructor(draw) {
    this.#draw = draw;
  }

  /** Something has changed. */
  later() {
    if (this.#isDue) return;
    this.#isDue = true;
    const rest_ms = this.#rests_until_ms - performance.now();
    const next = () => requestAnimationFrame(() => this.#frame());
    if (rest_ms > 0) setTimeout(next, rest_ms);
    else next();
  }

  /** What has changed is drawn otherwise. */
  cancel() {
    this.#isDue = false;
  }

  #frame() {
    if (!this.#isDue) return;
    this.#isDue = false;
    const begun_ms = performance.now();
    this.#draw();
    // The next task comes when style, layout and paint are done as well.
    setTimeout(() => {
      const now_ms = performance.now();
      this.#mean_ms += SHARE * (now_ms - begun_ms - this.#mean_ms);
      this.#rests_until_ms = now_ms + Math.min(LONGEST_REST_MS, RESTS * this.#mean_ms);
    });
  }
}
