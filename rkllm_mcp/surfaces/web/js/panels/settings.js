/**
 * The settings of this browser: language, colours, size, the key; what the board knows of its user; and which keys do
 * what.
 */
import { api } from "../access.js";
import { applyLanguage, applyTextSize, applyTheme } from "../appearance.js";
import { button, choices, form, submitButton, toggle } from "../buttons.js";
import { saveAs } from "../conversations.js";
import { fill, h, tell } from "../dom.js";
import { canNotify } from "../home.js";
import { say, t } from "../i18n.js";
import { prefer, preference } from "../preferences.js";
import { sentenceOf } from "../problems.js";
import { speaker } from "../speech/speaker.js";
import { MemorySection } from "./memory.js";
import { SchedulesSection } from "./schedules.js";

// As many letters as the board takes.
const LONGEST_ABOUT = 2000;

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
  ["C / E / R / S", "keys.message"],
  ["← →", "keys.versions"],
  ["Ctrl + Alt + Enter", "keys.allow"],
  ["Ctrl + Alt + ⌫", "keys.deny"],
]);

export class SettingsPanel {
  node = h("div", { class: "panel-body" });
  #key = h("p", { class: "muted" });
  #person = h("section", { class: "field", hidden: true });
  #memory = new MemorySection();
  #speech = h("div", { class: "field" });
  #data = h("section", { class: "field", hidden: true });
  #about = h("dl", { class: "facts" });
  #schedules = new SchedulesSection();
  #keys;
  #told;
  #forget;

  /**
   * @param {{isSet: () => boolean, change: () => Promise<void>, forget: () => void}} keys what can be done about the key
   * @param {{deleted: () => void}} told called when everything was deleted
   */
  constructor(keys, told) {
    this.#keys = keys;
    this.#told = told;
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
      choice(
        "size",
        "settings.size",
        [
          ["", "settings.size.usual"],
          ["large", "settings.size.large"],
          ["larger", "settings.size.larger"],
          ["largest", "settings.size.largest"],
        ],
        applyTextSize,
      ),
      h("section", {}, h("h3", {}, say("key.label")), this.#key, choices(change, this.#forget)),
      this.#speech,
      this.#person,
      this.#memory.node,
      canNotify() &&
        h(
          "section",
          { class: "server-head", id: "notices" },
          h("h3", {}, say("settings.notices")),
          toggle(preference("notices") === "on" && Notification.permission === "granted", t("settings.notices"), notices),
        ),
      this.#schedules.node,
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
      this.#data,
      h("section", {}, h("h3", {}, say("about.title")), this.#about),
    );
  }

  load() {
    this.#key.replaceChildren(say(this.#keys.isSet() ? "key.is_set" : "key.is_not_set"));
    this.#forget.hidden = !this.#keys.isSet();
    this.#showSpeech();
    void this.#showPerson();
    void this.#memory.load();
    void this.#schedules.load();
    void this.#showAbout();
  }

  /** How answers are read aloud; another voice than the browser's is offered where the board has one. */
  #showSpeech() {
    if (this.#speech.contains(document.activeElement)) return;
    /** @type {[string, string][]} */
    const voices = [
      ["", "speech.browser"],
      ["board", "speech.board"],
    ];
    const automatic = toggle(preference("aloud") === "on", t("speech.automatic"), async (isOn) => {
      prefer("aloud", isOn ? "on" : "");
      automatic.setAttribute("aria-checked", String(isOn));
      if (!isOn) speaker.stop();
    });
    fill(
      this.#speech,
      h("section", { class: "server-head" }, h("h3", {}, say("speech.automatic")), automatic),
      speaker.hasBoard && choice("voice", "speech.voice", voices, () => speaker.stop()),
    );
  }

  /** The text about the user, if this key may change it; a text that is being written stays. */
  async #showPerson() {
    const [given, me] = await Promise.all(["/v1/me/about", "/v1/me"].map((path) => api.get(path).catch(() => null)));
    this.#person.hidden = given === null;
    this.#data.hidden = given === null;
    if (given === null || this.#person.contains(document.activeElement)) return;
    const field = h("textarea", { id: "about-me", rows: 4, maxlength: LONGEST_ABOUT, dir: "auto", "aria-describedby": "about-me-help" });
    field.value = given.about;
    const note = h("p", { class: "muted small", role: "status" });
    const save = async () => {
      try {
        field.value = (await api.put("/v1/me/about", { about: field.value })).about;
        tell(note, say("person.saved"));
      } catch (error) {
        tell(note, sentenceOf(error));
      }
      // It may be below the edge of the screen.
      note.scrollIntoView({ block: "nearest" });
    };
    fill(
      this.#person,
      h("label", { for: field.id }, h("h3", {}, say("person.title"))),
      h("p", { class: "muted small", id: "about-me-help" }, say("person.help")),
      form(() => void save(), { class: "form" }, field, choices(submitButton("save", {})), note),
    );
    this.#offerData(me?.may_delete ?? false);
  }

  /**
   * Everything as a file, and everything deleted, which is asked twice.
   *
   * @param {boolean} mayDelete this key
   */
  #offerData(mayDelete) {
    const note = h("div", { class: "outcome", role: "status" });
    const attempt = async (/** @type {() => Promise<unknown>} */ work) => {
      try {
        await work();
      } catch (error) {
        fill(note, h("p", { class: "error" }, sentenceOf(error)));
      }
    };
    const save = () => attempt(async () => saveAs(await api.blob("/v1/me/data"), "rkllm-mcp-data.json"));
    const remove = () =>
      attempt(async () => {
        await api.delete("/v1/me/data");
        this.#told.deleted();
        await this.#showPerson();
        fill(/** @type {HTMLElement} */ (this.#data.querySelector(".outcome")), h("p", {}, say("data.deleted")));
      });
    const sure = () => {
      const yes = button("data.delete_all", remove, { class: "danger" });
      fill(note, h("p", {}, say("data.sure")), choices(yes, button("cancel", () => fill(note))));
      yes.focus();
    };
    fill(
      this.#data,
      h("h3", {}, say("data.title")),
      h("p", { class: "muted small" }, say("data.help")),
      choices(button("data.save", save), mayDelete && button("data.delete", sure, { class: "danger" })),
      note,
    );
  }

  async #showAbout() {
    try {
      const { version, model, emulated } = await api.get("/v1/me");
      const rows = [
        ["about.version", `rkllm-mcp ${version}`],
        ["board.model", emulated ? [model, " (", say("emulated"), ")"] : model],
        ["about.licence", "Apache-2.0"],
        ["about.parts", "highlight.js (BSD-3-Clause), Temml (MIT)"],
      ];
      fill(this.#about, rows.flatMap(([phrase, value]) => [h("dt", {}, say(/** @type {string} */ (phrase))), h("dd", {}, value)]));
    } catch (error) {
      fill(this.#about, h("dd", { class: "muted" }, sentenceOf(error)));
    }
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
  document.querySelector("#notices [role=switch]")?.setAttribute("aria-checked", String(isAllowed));
}

/**
 * @param {"language" | "theme" | "size" | "voice"} name
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
      // A voice is chosen for one device.
      if (name === "voice") return;
      // Without storage, or with a key that may not, they are this browser's alone.
      void api.put("/v1/me/settings", { [name]: value }).catch(() => undefined);
    });
    return h("label", { class: "option" }, input, " ", say(phrase));
  });
  return h("fieldset", { class: "field" }, h("legend", {}, say(title)), h("div", { class: "options" }, radios));
}
