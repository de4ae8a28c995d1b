/** Short dialogs: what something is to be called, and which key. */
import { button, choices, form, submitButton } from "../buttons.js";
import { h } from "../dom.js";
import { say, t } from "../i18n.js";
import { openDialog } from "./dialog.js";

// What a header can hold; anything else is a slip of the hand, such as wide letters.
const SENDABLE = /^[\x21-\x7e]+$/;

/**
 * @param {string} title
 * @param {string} label
 * @param {string} before the first value of the field
 * @returns {Promise<string>} empty when nothing is to be changed
 */
export function written(title, label, before) {
  return openDialog(title, {}, (close) => {
    const field = h("input", { id: "written", value: before, maxlength: 200, autocomplete: "off", autofocus: true });
    return [oneField(label, field, [], () => close(field.value.trim()), "save")];
  });
}

/**
 * Ask for the key until one is accepted.
 *
 * @param {string} problem the message of the board
 * @param {(key: string) => Promise<string>} tried empty when the key is good, else its problem
 * @returns {Promise<boolean>} true with a good key
 */
export async function keyGiven(problem, tried) {
  const answer = await openDialog("key.title", {}, (close) => {
    const field = h("input", {
      id: "key",
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
      autofocus: true,
      "aria-describedby": "key-error key-help",
    });
    const error = h("p", { class: "error", id: "key-error", role: "alert" }, problem);
    const help = h("p", { class: "muted", id: "key-help" }, say("key.help"));
    const submit = async () => {
      const key = field.value.trim();
      error.textContent = SENDABLE.test(key) ? await tried(key) : t("key.characters");
      if (error.textContent) field.select();
      else close("yes");
    };
    return [oneField("key.label", field, [error, help], submit, "key.use")];
  });
  return answer === "yes";
}

/**
 * Ask for the place to store the key of this device.
 *
 * @returns {Promise<boolean>} whether it outlasts this window
 */
export async function isKeyToLast() {
  const answer = await openDialog("device.title", {}, (close) => [
    h("p", {}, say("device.question")),
    choices(
      button("device.window", () => close()),
      button("device.keep", () => close("yes"), { class: "primary", autofocus: true }),
    ),
  ]);
  return answer === "yes";
}

/**
 * @param {string} label
 * @param {HTMLInputElement} field
 * @param {HTMLElement[]} below
 * @param {() => void} submit
 * @param {string} action
 */
function oneField(label, field, below, submit, action) {
  const labelled = h("div", { class: "field" }, h("label", { for: field.id }, say(label)), field, below);
  return form(submit, { class: "form" }, labelled, choices(submitButton(action)));
}
