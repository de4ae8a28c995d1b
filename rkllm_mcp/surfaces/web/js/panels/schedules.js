/**
 * The section *Schedules* of the settings: a sentence or a form with the days and the time, the rule in words and its
 * next three times before it is saved, the list, and the latest results.
 */
import { api } from "../access.js";
import { button, choices, form, submitButton } from "../buttons.js";
import { fill, h, tell } from "../dom.js";
import { say, t } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { addressOf } from "../router.js";
import { noteSchedules, zoneOfPerson } from "../schedule_notices.js";

const KINDS = ["weekdays", "daily", "weekly", "monthly", "once", "every"];
const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const LATEST = 10;
const SHOWN_LETTERS = 200;

export class SchedulesSection {
  node = h("section", { class: "schedules", hidden: true });
  #list = h("ul", { class: "plain-list" });
  #runs = h("ul", { class: "plain-list" });
  #note = h("p", { class: "outcome", role: "status" });
  #preview = h("p", { class: "muted small", role: "status" });
  #zone = "";
  #sentence = h("input", { id: "schedule-sentence", dir: "auto", autocomplete: "off", placeholder: t("schedules.example") });
  #prompt = h("textarea", { id: "schedule-prompt", rows: 2, dir: "auto" });
  #kind = h(
    "select",
    { id: "schedule-kind", change: () => this.#changed() },
    KINDS.map((kind) => h("option", { value: kind }, say(`schedules.kind.${kind}`))),
  );
  #time = h("input", { id: "schedule-time", type: "time", value: "07:30", change: () => this.#changed() });
  #date = h("input", { id: "schedule-date", type: "date", change: () => this.#changed() });
  #monthDay = h("input", { id: "schedule-day", type: "number", min: 1, max: 31, value: 1, change: () => this.#changed() });
  #count = h("input", { id: "schedule-count", type: "number", min: 1, max: 1000, value: 1, change: () => this.#changed() });
  #unit = h(
    "select",
    { id: "schedule-unit", change: () => this.#changed(), "aria-label": t("schedules.unit") },
    ["m", "h", "d"].map((unit) => h("option", { value: unit }, say(`schedules.unit.${unit}`))),
  );
  #days = DAYS.map((day) => h("input", { type: "checkbox", value: day, change: () => this.#changed() }));
  #reminder = h("input", { type: "checkbox", id: "schedule-reminder" });
  #quiet = h("input", { type: "checkbox", id: "schedule-quiet" });
  #webhook = h("input", { id: "schedule-webhook", type: "url", autocomplete: "off", placeholder: "https://" });
  #isText = h("input", { type: "checkbox", id: "schedule-text" });
  #fields = h("div", { class: "form" });
  #details = h("details", { class: "schedule-form" });

  constructor() {
    const read = form(
      () => void this.#read(),
      { class: "form" },
      h("div", { class: "field" }, h("label", { for: "schedule-sentence" }, say("schedules.sentence")), this.#sentence),
      choices(submitButton("schedules.read", {})),
    );
    const make = form(
      () => void this.#make(),
      { class: "form" },
      field("schedules.prompt", this.#prompt),
      field("schedules.how_often", this.#kind),
      this.#fields,
      h("label", { class: "option" }, this.#reminder, " ", say("schedules.reminder")),
      h("label", { class: "option" }, this.#quiet, " ", say("schedules.quiet")),
      field("schedules.webhook", this.#webhook),
      h("label", { class: "option" }, this.#isText, " ", say("schedules.text")),
      this.#preview,
      choices(submitButton("schedules.save")),
    );
    fill(this.#details, h("summary", {}, say("schedules.form")), make);
    this.#details.addEventListener("toggle", () => this.#details.open && void this.#look());
    this.#showFields();
    fill(
      this.node,
      h("h3", {}, say("schedules.title")),
      h("p", { class: "muted small" }, say("schedules.help")),
      read,
      this.#details,
      this.#note,
      this.#list,
      this.#runs,
    );
  }

  async load() {
    const answers = await Promise.all([api.get("/v1/schedules"), api.get("/v1/schedules/runs", { limit: LATEST })]).catch(
      () => null,
    );
    // A key for other purposes sees none.
    this.node.hidden = answers === null;
    if (answers === null) return;
    const [{ schedules, zone }, { runs }] = answers;
    this.#zone = zoneOfPerson(zone);
    noteSchedules(schedules);
    fill(this.#list, schedules.map((/** @type {any} */ schedule) => this.#entry(schedule)));
    fill(this.#runs, runs.length > 0 && h("li", {}, h("h4", {}, say("schedules.latest"))), runs.map(resultOf));
  }

  /** @param {any} schedule */
  #entry(schedule) {
    const path = `/v1/schedules/${encodeURIComponent(schedule.id)}`;
    const act = (/** @type {() => Promise<unknown>} */ work, /** @type {string} */ done) => async () => {
      try {
        await work();
        tell(this.#note, say(done));
      } catch (error) {
        tell(this.#note, sentenceOf(error));
      }
      await this.load();
    };
    const isActive = schedule.state === "active";
    const next = isActive ? say("schedules.next", { time: schedule.times[0] ?? "" }) : say(`schedules.state.${schedule.state}`);
    return h(
      "li",
      { class: "schedule" },
      h("strong", { dir: "auto" }, schedule.prompt),
      h("p", { class: "muted small" }, `${schedule.words} (${schedule.zone}) · `, next),
      choices(
        schedule.conversation && h("a", { class: "button", href: addressOf(schedule.conversation) }, say("schedules.results")),
        button("schedules.run", act(() => api.post(`${path}/run`), "schedules.runs")),
        schedule.state !== "done" &&
          button(
            isActive ? "schedules.pause" : "schedules.resume",
            act(() => api.patch(path, { state: isActive ? "paused" : "active" }), "schedules.changed"),
          ),
        button("schedules.remove", act(() => api.delete(path), "schedules.removed"), { class: "danger" }),
      ),
    );
  }

  /** What the sentence means goes into the form, where it is looked at before it is saved. */
  async #read() {
    try {
      const read = await api.post("/v1/schedules:read", { sentence: this.#sentence.value, ...this.#zoneField() });
      if (!read.is_schedule) {
        tell(this.#note, say("schedules.no_time"));
        return;
      }
      tell(this.#note, "");
      this.#prompt.value = read.prompt;
      this.#reminder.checked = read.reminder;
      this.#take(read.rule);
      this.#show(read);
      this.#details.open = true;
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }

  /** @param {string} rule as the board writes it */
  #take(rule) {
    const [kind = "", first = "", second = ""] = rule.split(" ");
    this.#kind.value = kind;
    if (kind === "every") {
      this.#count.value = first.slice(0, -1);
      this.#unit.value = first.slice(-1);
    }
    if (kind === "weekly") for (const box of this.#days) box.checked = first.split(",").includes(box.value);
    if (kind === "monthly") this.#monthDay.value = first;
    if (kind === "once") this.#date.value = first;
    const time = kind === "daily" || kind === "weekdays" ? first : second;
    if (time) this.#time.value = time;
    this.#showFields();
  }

  /** The rule as the board reads it. */
  get #rule() {
    const time = this.#time.value || "07:30";
    switch (this.#kind.value) {
      case "once":
        return `once ${this.#date.value} ${time}`;
      case "weekly":
        return `weekly ${this.#days.filter((box) => box.checked).map((box) => box.value).join(",")} ${time}`;
      case "monthly":
        return `monthly ${this.#monthDay.value} ${time}`;
      case "every":
        return `every ${this.#count.value}${this.#unit.value}${this.#unit.value === "d" ? ` ${time}` : ""}`;
      default:
        return `${this.#kind.value} ${time}`;
    }
  }

  #showFields() {
    const kind = this.#kind.value;
    const hasTime = kind !== "every" || this.#unit.value === "d";
    const names = DAYS.map((day, place) => h("label", { class: "option" }, this.#days[place] ?? null, " ", say(`schedules.${day}`)));
    fill(
      this.#fields,
      kind === "once" && field("schedules.date", this.#date),
      kind === "weekly" && h("fieldset", { class: "field" }, h("legend", {}, say("schedules.days")), h("div", { class: "options" }, names)),
      kind === "monthly" && field("schedules.month_day", this.#monthDay),
      kind === "every" && h("div", { class: "field" }, h("label", { for: this.#count.id }, say("schedules.count")), choices(this.#count, this.#unit)),
      hasTime && field("schedules.time", this.#time),
    );
  }

  #changed() {
    this.#showFields();
    void this.#look();
  }

  /** The rule in words and its next times, or what is missing. */
  async #look() {
    try {
      this.#show(await api.post("/v1/schedules:read", { rule: this.#rule, ...this.#zoneField() }));
    } catch {
      tell(this.#preview, say("schedules.incomplete"));
    }
  }

  /** @param {any} read */
  #show(read) {
    tell(this.#preview, say("schedules.preview", { words: read.words, zone: read.zone, times: read.times.join(", ") }));
  }

  #zoneField() {
    return this.#zone ? { zone: this.#zone } : {};
  }

  async #make() {
    try {
      const made = await api.post("/v1/schedules", {
        prompt: this.#prompt.value,
        rule: this.#rule,
        reminder: this.#reminder.checked,
        quiet: this.#quiet.checked,
        webhook: this.#webhook.value.trim(),
        webhook_form: this.#isText.checked ? "text" : "json",
        ...this.#zoneField(),
      });
      this.#details.open = false;
      this.#sentence.value = "";
      this.#prompt.value = "";
      this.#webhook.value = "";
      await this.load();
      tell(this.#note, made.secret ? say("schedules.saved_secret", { secret: made.secret }) : say("schedules.saved"));
    } catch (error) {
      tell(this.#note, sentenceOf(error));
    }
  }
}

/**
 * @param {string} phrase
 * @param {HTMLElement} control
 */
function field(phrase, control) {
  return h("div", { class: "field" }, h("label", { for: control.id }, say(phrase)), control);
}

/** @param {any} run */
function resultOf(run) {
  const text = run.text.length > SHOWN_LETTERS ? `${run.text.slice(0, SHOWN_LETTERS)}…` : run.text;
  const when = new Date(run.ended).toLocaleString();
  return h(
    "li",
    {},
    h("p", { class: "muted small" }, `${when} · `, say(`schedules.outcome.${run.outcome}`), run.delivery && ` · Webhook: ${run.delivery}`),
    h("p", { dir: "auto" }, h("strong", {}, run.title), ` ${text}`),
  );
}
