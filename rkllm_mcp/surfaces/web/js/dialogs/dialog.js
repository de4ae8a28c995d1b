/** A window over the page: the browser keeps the focus inside, closes it on Escape, and gives the focus back. */
import { iconButton } from "../buttons.js";
import { h } from "../dom.js";
import { say } from "../i18n.js";

const counter = { last: 0 };

/**
 * @param {string} title a phrase
 * @param {import("../i18n.js").Values} values the values in its text
 * @param {(close: (value?: string) => void) => import("../dom.js").Child[]} content
 * @returns {Promise<string>} the value of the button that closed it; empty when it was dismissed
 */
export function openDialog(title, values, content) {
  counter.last += 1;
  const id = `dialog-${counter.last}`;
  const dialog = h("dialog", { "aria-labelledby": id });
  const close = (value = "") => dialog.close(value);
  const head = h(
    "div",
    { class: "dialog-head" },
    h("h2", { id }, say(title, values)),
    iconButton("close", "close", () => close()),
  );
  dialog.append(head, h("div", { class: "dialog-body" }, ...content(close)));
  // A click on the backdrop dismisses it, as Escape does.
  dialog.addEventListener("pointerdown", (event) => event.target === dialog && close());
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}
