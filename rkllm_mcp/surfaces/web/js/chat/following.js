/** The view follows an answer that grows, as long as its reader is at its end; who reads further up stays there. */
import { byId, hide } from "../dom.js";

const NEAR_PX = 80;
const MARGIN_PX = 12;
const ROUNDING_PX = 2;

export class Following {
  #pane = byId("messages");
  #button = byId("to-end");
  #before = { scrollTop: 0, end: 0 };

  constructor() {
    this.#isAtEnd = true;
    this.#pane.addEventListener("scroll", () => this.#look(), { passive: true });
    this.#button.addEventListener("click", () => this.toEnd());
    // Called when the layout is done: reading the heights earlier would have it made once more. A folded part that is
    // opened, or a keyboard that slides in, changes heights, too.
    const resized = new ResizeObserver(() => this.follow());
    for (const part of [this.#pane, byId("thread"), byId("waiting")]) resized.observe(part);
  }

  get #isAtEnd() {
    return this.#pane.classList.contains("at-end");
  }

  set #isAtEnd(isAtEnd) {
    this.#pane.classList.toggle("at-end", isAtEnd);
  }

  follow() {
    const end = this.#end();
    if (this.#isUp(end)) this.#isAtEnd = false;
    if (!this.#isAtEnd) hide(this.#button, false);
    else if (end > this.#pane.scrollTop) this.toEnd();
    // An answer that is replaced is shorter for a moment: when it has grown again, its reader has not scrolled up.
    else this.#before = { scrollTop: this.#pane.scrollTop, end };
  }

  /** Follow from now on, also if the reader is further up: the answer begins below. */
  begin() {
    this.#isAtEnd = true;
  }

  toEnd() {
    const end = this.#end();
    this.#pane.scrollTop = end;
    this.#before = { scrollTop: end, end };
    this.#isAtEnd = true;
    hide(this.#button, true);
  }

  /** The end of the conversation, or the top of a question that is taller than the screen: it is read from there. */
  #end() {
    const end = this.#pane.scrollHeight - this.#pane.clientHeight;
    const question = /** @type {HTMLElement | null} */ (this.#pane.querySelector(".question:not([data-state=over])"));
    const top = question ? question.getBoundingClientRect().top - this.#pane.getBoundingClientRect().top : end;
    return question ? Math.min(end, this.#pane.scrollTop + top - MARGIN_PX) : end;
  }

  #look() {
    const { scrollTop } = this.#pane;
    const end = this.#end();
    const gap = end - scrollTop;
    if (this.#isUp(end)) this.#isAtEnd = false;
    if (gap < ROUNDING_PX) this.#isAtEnd = true;
    else if (scrollTop > this.#before.scrollTop) this.#isAtEnd = gap < NEAR_PX;
    this.#before = { scrollTop, end };
    hide(this.#button, this.#isAtEnd);
  }

  /**
   * Whether the reader has begun to scroll up, by however little: not if the end itself came nearer.
   *
   * @param {number} end
   */
  #isUp(end) {
    return this.#pane.scrollTop < this.#before.scrollTop - ROUNDING_PX && end >= this.#before.end;
  }
}
