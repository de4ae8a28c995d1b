/** The settings of this browser: language, colours, the key; and which keys do what. */
import { api } from "../access.js";
import { button, choices, toggle } from "../buttons.js";
import { byId, fill, h } from "../dom.js";
import { canNotify } from "../home.js";
import { bestLanguage, say, speak, t } from "../i18n.js";
import { prefer, preference } from "../preferences.js";

const SHORTCUTS = /** @type {const} */ ([
  ["Enter", "keys.send"],
  ["Shift + Enter", "keys.line"],
  ["Esc", "keys.stop"],
  ["/", "keys.focus"],
  ["Ctrl + K", "keys.search"],
  ["Ctrl + Shift + O", "keys.new"],
  ["Ctrl + B", "keys.list"],
  ["↑", "keys.edit_last"],
  ["↑ ↓", "keys.messages"],
  ["C / E / R", "keys.message"],
  ["← →", "keys.versions"],
  ["Ctrl + Alt + Enter", "keys.allow"],
  ["Ctrl + Alt + ⌫", "keys.deny"],
]);

/** @type {Record<string, string>} when the style sheet with the dark colours holds */
const DARK = { light: "not all", dark: "all" };

export class SettingsPanel {
  node = h("div", { class: "panel-body" });
  #key = h("p", { class: "muted" });
  #keys;
  #forget;

  /** @param {{isSet: () => boolean, change: () => Promise<void>, forget: () => void}} keys what can be done about the key */
  constructor(keys) {
    this.#keys = keys;
    const change = button("key.change", () => keys.change().then(() => this.load()));
    this.#forget = button("key.forget", () => {
      keys.forget();
      this.load();
      // The button itself is gone then.
      change.focus();
    });
    fill(
      this.node,
      choice(
        "language",
        "settings.language",
        [
          ["", "settings.automatic"],
          ["en", "settings.english"],
          ["ja", "settings.japanese"],
        ],
        applyLanguage,
      ),
      choice(
        "theme",
        "settings.theme",
        [
          ["", "settings.automatic"],
          ["light", "settings.light"],
          ["dark", "settings.dark"],
        ],
        applyTheme,
      ),
      canNotify() &&
        h(
          "section",
          { class: "server-head" },
          h("h3", {}, say("settings.notices")),
          toggle(preference("notices") === "on" && Notification.permission === "granted", t("settings.notices"), notices),
        ),
      h("section", {}, h("h3", {}, say("key.label")), this.#key, choices(change, this.#forget)),
      h("section", {}, h("h3", {}, say("connect.title")), choices(button("connect.open", () => void openConnections()))),
      h(
        "section",
        {},
        h("h3", {}, say("keys.title")),
        h(
          "dl",
          { class: "facts" },
          SHORTCUTS.flatMap(([key, phrase]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, say(phrase))]),
        ),
      ),
    );
  }

  load() {
    this.#key.replaceChildren(say(this.#keys.isSet() ? "key.is_set" : "key.is_not_set"));
    this.#forget.hidden = !this.#keys.isSet();
  }
}

/** Show what another program needs to ask the board. */
async function openConnections() {
  const { openConnect } = await import("../dialogs/connect.js");
  await openConnect(await api.get("/v1/me"));
}

/**
 * Say when an answer is ready while the page was hidden, if the browser is allowed to.
 *
 * @param {boolean} isOn
 */
async function notices(isOn) {
  const isAllowed = isOn && (await Notification.requestPermission()) === "granted";
  prefer("notices", isAllowed ? "on" : "");
  document.querySelector("#panel-content [role=switch]")?.setAttribute("aria-checked", String(isAllowed));
}

/** Speak the language that was chosen, or the one that the browser prefers. */
export async function applyLanguage() {
  const chosen = preference("language");
  await speak(chosen === "en" || chosen === "ja" ? chosen : bestLanguage(navigator.languages));
}

/** Show the colours that were chosen; without a choice those that the system wants. */
export function applyTheme() {
  const dark = /** @type {HTMLLinkElement} */ (byId("dark"));
  dark.media = DARK[preference("theme")] ?? "(prefers-color-scheme: dark)";
}

/**
 * @param {"language" | "theme"} name
 * @param {string} title
 * @param {[string, string][]} options values and phrases
 * @param {() => void} apply
 */
function choice(name, title, options, apply) {
  const now = preference(name);
  const radios = options.map(([value, phrase]) => {
    const input = h("input", { type: "radio", name, value, checked: value === now });
    input.addEventListener("change", () => {
      prefer(name, value);
      apply();
    });
    return h("label", { class: "option" }, input, " ", say(phrase));
  });
  return h("fieldset", { class: "field" }, h("legend", {}, say(title)), h("div", { class: "options" }, radios));
}
