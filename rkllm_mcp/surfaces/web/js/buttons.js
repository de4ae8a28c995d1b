/** The page's small controls: buttons with a symbol, switches, and the button that copies. */
import { h, icon } from "./dom.js";
import { named, say, t } from "./i18n.js";

const SHOWN_MS = 1500;

/**
 * @param {string} symbol
 * @param {string} phrase what a screen reader says
 * @param {(event: Event) => void} click
 * @param {import("./dom.js").Attributes} [more]
 */
export function iconButton(symbol, phrase, click, more = {}) {
  return h("button", { type: "button", class: "icon-button", click, ...named(phrase), ...more }, icon(symbol));
}

/**
 * @param {string} phrase
 * @param {(event: Event) => void} click
 * @param {import("./dom.js").Attributes} [more]
 */
export function button(phrase, click, more = {}) {
  return h("button", { type: "button", click, ...more }, say(phrase));
}

/**
 * A switch; it shows the new state when `change` says it holds.
 *
 * @param {boolean} isOn
 * @param {string} label what is switched
 * @param {(isOn: boolean) => Promise<void>} change
 */
export function toggle(isOn, label, change) {
  const control = h("button", {
    type: "button",
    role: "switch",
    class: "switch",
    "aria-checked": isOn,
    "aria-label": label,
  });
  control.addEventListener("click", async () => {
    // Kept reachable while it works: a disabled button would lose the focus.
    if (control.getAttribute("aria-busy") === "true") return;
    control.setAttribute("aria-busy", "true");
    await change(control.getAttribute("aria-checked") !== "true");
    control.removeAttribute("aria-busy");
  });
  return control;
}

/**
 * @param {() => string} text gives what is copied
 * @param {(phrase: string) => void} announce
 */
export function copyButton(text, announce) {
  const label = say("copy");
  const control = h("button", { type: "button", class: "copy" }, icon("copy"), label);
  control.addEventListener("click", async () => {
    const phrase = (await copied(text())) ? "copied" : "copy_failed";
    label.textContent = t(phrase);
    announce(t(phrase));
    setTimeout(() => {
      label.textContent = t("copy");
    }, SHOWN_MS);
  });
  return control;
}

/** @param {string} text */
async function copied(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  // A page over plain HTTP from another machine has no clipboard of its own; the old way still works there.
  const field = h("textarea", { class: "visually-hidden", readonly: true }, text);
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  return isDone;
}
