/**
 * Where a question is written. Enter sends and Shift+Enter begins a line; on a phone, whose keyboard has no Shift+Enter,
 * Enter begins a line and the button sends. While an input method is composing Enter belongs to it: in Japanese it
 * confirms a word.
 */
import { byId, hasNoKeys, hide } from "../dom.js";
import { t } from "../i18n.js";
import { keepTyped, typed } from "../preferences.js";

export class Composer {
  #field = /** @type {HTMLTextAreaElement} */ (byId("question"));
  #send = byId("send");
  #stop = byId("stop");
  #isRunning = false;
  #take;
  #changed;
  #wordless;

  /**
   * @param {{send: (text: string) => boolean, stop: () => void, changed: () => void, wordless: () => string}} actions
   *   `send` says whether it took the text; `wordless` is sent in place of no text, unless it is empty
   */
  constructor({ send, stop, changed, wordless }) {
    this.#take = send;
    this.#changed = changed;
    this.#wordless = wordless;
    this.#field.value = (typed("draft") ?? "");
    this.#field.addEventListener("input", () => {
      this.#fit();
      this.show(this.#isRunning);
    });
    this.#field.addEventListener("keydown", (event) => {
      if (!isSending(event)) return;
      event.preventDefault();
      this.submit();
    });
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.#stop.addEventListener("click", stop);
    this.#fit();
  }

  get text() {
    return this.#field.value;
  }

  focus() {
    this.#field.focus();
  }

  /**
   * Store the draft, or else the unanswered question, for a page that is loaded again.
   *
   * @param {string} unsent
   */
  leave(unsent) {
    keepTyped("draft", this.#field.value || unsent);
  }

  /**
   * Restore the unanswered question, unless the user is writing another.
   *
   * @param {string} unsent
   */
  restore(unsent) {
    if (unsent && !this.#field.value) this.write(unsent);
  }

  /**
   * Put this in the field.
   *
   * @param {string} text
   */
  write(text) {
    this.#field.value = text;
    this.#fit();
    this.show(this.#isRunning);
    this.focus();
  }

  /** @param {boolean} isRunning an answer is under way, which can be stopped */
  show(isRunning) {
    const hadFocus = document.activeElement === this.#send || document.activeElement === this.#stop;
    this.#isRunning = isRunning;
    const isEmpty = this.#field.value.trim() === "" && this.#wordless() === "";
    const isQueueing = isRunning && !isEmpty;
    // It can be reached all the same: a disabled button would lose the focus.
    this.#send.setAttribute("aria-disabled", String(isEmpty));
    hide(this.#send, isRunning && !isQueueing);
    hide(this.#stop, !isRunning);
    const name = isQueueing ? "chat.send_after" : "chat.send";
    if (this.#send.dataset["name"] !== name) {
      this.#send.dataset["name"] = name;
      for (const place of ["aria-label", "title"]) this.#send.setAttribute(place, t(name));
    }
    if (hadFocus) this.focus();
  }

  /**
   * Put text where the cursor is, with spaces around it.
   *
   * @param {string} text
   */
  insert(text) {
    const { value, selectionStart, selectionEnd } = this.#field;
    const before = /\S$/.test(value.slice(0, selectionStart)) ? " " : "";
    this.#field.setRangeText(`${before}${text} `, selectionStart, selectionEnd, "end");
    this.#fit();
    this.focus();
  }

  /**
   * Take text out that was put there, if it is still as it was.
   *
   * @param {string} text
   */
  remove(text) {
    const { value } = this.#field;
    const at = value.lastIndexOf(`${text} `);
    if (at < 0) return;
    this.#field.setRangeText("", at, at + text.length + 1, "end");
    this.#fit();
    this.show(this.#isRunning);
  }

  /**
   * Send what is in the field, as Enter does.
   *
   * @returns {boolean} whether it was taken; otherwise it stays
   */
  submit() {
    const text = this.#field.value.trim() || this.#wordless();
    if (!text || !this.#take(text)) return false;
    this.#field.value = "";
    this.#fit();
    this.show(this.#isRunning);
    return true;
  }

  /** As tall as the draft, up to the limit of the style sheet; the draft survives a reload. */
  #fit() {
    // Most browsers do it by the style sheet; measuring costs a layout for each key.
    if (!CSS.supports("field-sizing", "content")) {
      this.#field.style.height = "auto";
      this.#field.style.height = `${this.#field.scrollHeight + 2}px`;
    }
    keepTyped("draft", this.#field.value);
    this.#changed();
  }
}

/**
 * @param {KeyboardEvent} event
 * @param {boolean} [isPhone] the keyboard is on the screen
 * @returns {boolean}
 */
export function isSending(event, isPhone = hasNoKeys()) {
  // 229: what Safari sends for the Enter that ends a composition, when it says no longer that there was one.
  if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return false;
  return event.ctrlKey || event.metaKey || !(event.shiftKey || isPhone);
}
