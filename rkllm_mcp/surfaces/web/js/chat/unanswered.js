/**
 * Questions that have no answer yet, because the board was away or refused them.
 *
 * @typedef {import("./past.js").Message} Message
 * @typedef {{force_tool?: string, allowed_tools?: string[], model?: string, tokens?: Record<string, string>}} Options
 * @typedef {{role: string, text: string, pictures?: Picture[]}} Said
 * @typedef {{message: string, pictures?: Picture[], goOn?: HTMLElement,
 *   prompt?: {name: string, arguments: Record<string, string>}, options?: Options, history?: Said[], again?: boolean,
 *   replaces?: number, whenBack?: boolean, tries?: number, once?: string}} Wish `once` is sent with it each time, so that the
 *   board stores it once; `replaces` is the position of the question of which this
 *   is another version, `goOn` the visible part of the answer to continue, `whenBack` asks it by itself when the board is
 *   back, and `tries` is how often that was done
 * @typedef {{id: string, wish: Wish, position: number, versions: number,
 *   begin: import("../dialogs/settings.js").Settings}} Kept a question that waits for the board, for a page that is loaded again
 * @typedef {{wish: Wish, position: number, versions: number, nodes: HTMLElement[], offer: HTMLElement, isStored: boolean}} Unanswered
 * @typedef {import("./pictures.js").Picture} Picture
 */
import { ConnectionLost, Refusal } from "../api.js";
import { h } from "../dom.js";
import { say } from "../i18n.js";

const LOADING = 503;
// A question is sent by itself as often; one that always breaks the connection is left to the user.
const MOST_TRIES = 5;

/**
 * The switch that has a question asked by itself as soon as the board is back.
 *
 * @param {Wish} wish
 * @param {() => void} changed
 */
export function whenBackButton(wish, changed) {
  const control = h("button", { type: "button" });
  const show = () => {
    control.setAttribute("aria-pressed", String(wish.whenBack === true));
    control.replaceChildren(say(wish.whenBack ? "chat.goes_back" : "chat.when_back"));
  };
  control.addEventListener("click", () => {
    wish.whenBack = !wish.whenBack;
    wish.tries = 0;
    show();
    changed();
  });
  show();
  return control;
}

/** A text by which the board knows a question that it gets again. */
export function newOnce() {
  // Pages of a plain http:// address have no crypto.randomUUID.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Whether a question that is sent by itself is sent once more: the board was away again, or its model loads.
 *
 * @param {Wish} wish
 * @param {unknown} error
 */
export function isTriedAgain({ tries = 0 }, error) {
  const isLoading = error instanceof Refusal && error.status === LOADING;
  return (error instanceof ConnectionLost || isLoading) && tries < MOST_TRIES;
}

/**
 * Whether the board has stored a question.
 *
 * @param {Message[]} messages the stored ones
 * @param {{wish: Wish, position: number, versions: number}} question
 */
export function hasReached(messages, { wish, position, versions }) {
  const there = messages[position];
  if (there?.role !== "user" || (there.versions ?? 1) < versions) return false;
  return wish.prompt !== undefined || there.text === wish.message;
}
