/** The page's small controls: buttons with a symbol, switches, tabs, the button that copies, and a passage to open. */
import { announce } from "./chat/announcer.js";
import { h, icon } from "./dom.js";
import { figure, named, say, t } from "./i18n.js";

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
 * @param {import("./i18n.js").Values} [values] the values in the phrase
 */
export function button(phrase, click, more = {}, values = undefined) {
  return h("button", { type: "button", click, ...more }, say(phrase, values));
}

/**
 * The button that sends a form.
 *
 * @param {string} phrase
 * @param {import("./dom.js").Attributes} [more]
 */
export function submitButton(phrase, more = { class: "primary" }) {
  return h("button", { type: "submit", ...more }, say(phrase));
}

/**
 * Controls side by side.
 *
 * @param {...(import("./dom.js").Child | import("./dom.js").Child[])} controls
 */
export function choices(...controls) {
  return h("div", { class: "choices" }, ...controls);
}

/**
 * A form that stays on the page; the browser's own bubbles speak the browser's language.
 *
 * @param {() => void} submit
 * @param {import("./dom.js").Attributes} more
 * @param {...(import("./dom.js").Child | import("./dom.js").Child[])} content
 */
export function form(submit, more, ...content) {
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    submit();
  };
  return h("form", { novalidate: true, submit: send, ...more }, ...content);
}

/**
 * A switch; it shows the new state when `change` says it holds.
 *
 * @param {boolean} isOn
 * @param {string} label the name of the switch
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
    // Reachable while it works: a disabled button would lose the focus.
    if (control.getAttribute("aria-busy") === "true") return;
    control.setAttribute("aria-busy", "true");
    await change(control.getAttribute("aria-checked") !== "true");
    control.removeAttribute("aria-busy");
  });
  return control;
}

/**
 * Go from one control to another with the arrow keys, from the last one to the first.
 *
 * @template {HTMLElement} T
 * @param {T[]} controls one of which has the focus
 * @param {KeyboardEvent} event
 * @param {Record<string, number>} steps by key
 * @returns {T | undefined} the one that has the focus now; none if it is another key
 */
export function steppedTo(controls, event, steps) {
  const step = steps[event.key];
  if (!step) return undefined;
  event.preventDefault();
  const place = controls.findIndex((control) => control === document.activeElement);
  const next = controls[(place + step + controls.length) % controls.length];
  next?.focus();
  return next;
}

/**
 * Tabs over one pane; the arrow keys go from one to the next.
 *
 * @param {HTMLElement} list
 * @param {Record<string, string>} phrases by the names of the tabs
 * @param {HTMLElement} pane the pane of the tabs
 * @param {(name: string) => void} show
 * @returns {(name: string) => HTMLElement | undefined} marks the one that is shown, none for an empty name; returns it
 */
export function tabs(list, phrases, pane, show) {
  const names = Object.keys(phrases);
  const made = names.map((name) =>
    h(
      "button",
      { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": pane.id, click: () => show(name) },
      say(phrases[name] ?? ""),
    ),
  );
  list.append(...made);
  list.addEventListener("keydown", (event) => {
    const next = steppedTo(made, event, { ArrowRight: 1, ArrowLeft: -1 });
    if (next) show(names[made.indexOf(next)] ?? "");
  });
  return (shown) => {
    for (const [place, control] of made.entries()) {
      control.setAttribute("aria-selected", String(names[place] === shown));
      control.tabIndex = names[place] === shown ? 0 : -1;
    }
    if (shown) pane.setAttribute("aria-labelledby", `tab-${shown}`);
    return made[names.indexOf(shown)];
  };
}

/** @param {() => string} text returns the text to copy */
export function copyButton(text) {
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

/**
 * A command to type in a terminal of the board.
 *
 * @param {string} command
 */
export function typed(command) {
  return h("div", { class: "command" }, h("code", {}, command), copyButton(() => command));
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page over plain HTTP from another machine has no clipboard of its own; the old way still works there.
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const field = h("textarea", { class: "visually-hidden", readonly: true }, text);
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    before?.focus();
    return isDone;
  }
}

/**
 * A passage that was found, to open in its document.
 *
 * @param {import("./panels/passage.js").Source} source
 * @param {(event: Event) => void} open
 */
export function sourceButton({ document: title, passage, page, score }, open) {
  return h(
    "button",
    { type: "button", class: "quiet source", click: open },
    score !== null && h("span", { class: "score" }, figure(score, 2)),
    h("span", { class: "one-line", dir: "auto" }, title),
    page !== null && h("span", { class: "muted" }, say("documents.page", { n: page })),
    h("span", { class: "muted one-line passage-start", dir: "auto" }, passage.trim()),
  );
}
