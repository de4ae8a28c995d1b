/**
 * What keys do outside of the fields. No single letter does anything except on a message that has the focus.
 *
 * @typedef {{escape: () => void, search: () => void, begin: () => void, list: () => void, write: () => void,
 *   help: () => void, editLast: () => boolean, turn: (message: HTMLElement, step: number) => void}} Actions
 */

/** @type {Record<string, string>} what a letter presses on a message */
const BUTTONS = { c: ".copy", e: ".edit", r: ".again", s: ".aloud" };

/**
 * @param {KeyboardEvent} event
 * @param {Actions} actions
 */
export function onKey(event, actions) {
  // The browser closes dialogs and menus by itself.
  if (document.querySelector("dialog[open], .popover") || event.isComposing) return;
  if (taken(event, actions)) event.preventDefault();
}

/**
 * @param {KeyboardEvent} event
 * @param {Actions} actions
 * @returns {boolean} whether the key was for the page
 */
function taken(event, actions) {
  const target = event.target instanceof HTMLElement ? event.target : document.body;
  const isCommand = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (event.key === "Escape") return emptied(target) || folded(target) || did(actions.escape);
  if (isCommand && event.altKey && (key === "enter" || key === "backspace"))
    return pressed(document.body, key === "enter" ? "[data-decision=once]" : "[data-decision=deny]");
  if (isCommand && !event.altKey && key === "k") return did(actions.search);
  if (isCommand && event.shiftKey && key === "o") return did(actions.begin);
  if (isCommand && !event.altKey && !event.shiftKey && key === "b") return did(actions.list);
  if (isCommand || event.altKey) return false;
  if (target.id === "question" && event.key === "ArrowUp")
    return /** @type {HTMLTextAreaElement} */ (target).value === "" && actions.editLast();
  if (target.matches("input, textarea, select")) return false;
  if (event.key === "/") return did(actions.write);
  if (event.key === "?") return did(actions.help);
  return onMessage(target, event.key, actions);
}

/**
 * @param {HTMLElement} target
 * @param {string} key
 * @param {Actions} actions
 */
function onMessage(target, key, actions) {
  const messages = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#thread .message")]);
  const place = messages.indexOf(target);
  if (target.id === "messages" && key === "ArrowUp" && messages.length > 0) return did(() => messages.at(-1)?.focus());
  if (place < 0) return false;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const next = messages[place + (key === "ArrowUp" ? -1 : 1)];
    return next ? did(() => next.focus()) : false;
  }
  if (key === "ArrowLeft" || key === "ArrowRight") return did(() => actions.turn(target, key === "ArrowLeft" ? -1 : 1));
  const wanted = BUTTONS[key.toLowerCase()];
  return wanted ? pressed(target, wanted) : false;
}

/**
 * Empty a search field; not every browser does it.
 *
 * @param {HTMLElement} target
 */
function emptied(target) {
  if (!(target instanceof HTMLInputElement) || target.type !== "search" || target.value === "") return false;
  target.value = "";
  target.dispatchEvent(new Event("input", { bubbles: true }));
  return true;
}

/**
 * Fold the part of the conversation that has the focus, or else the choices of an approval that are open in it.
 *
 * @param {HTMLElement} target
 */
function folded(target) {
  const own = target.closest("#messages details[open]");
  const open = own ?? [...document.querySelectorAll("#messages .more-choices[open]")].at(-1);
  if (!(open instanceof HTMLDetailsElement)) return false;
  open.open = false;
  if (own) open.querySelector("summary")?.focus();
  return true;
}

/** @param {() => void} act */
function did(act) {
  act();
  return true;
}

/**
 * @param {HTMLElement} where
 * @param {string} wanted
 */
function pressed(where, wanted) {
  const buttons = where.querySelectorAll(wanted);
  const control = /** @type {HTMLElement | undefined} */ (buttons[buttons.length - 1]);
  control?.click();
  return control !== undefined;
}
