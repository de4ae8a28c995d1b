/**
 * Results of schedules while the page is open: a notice above the field for the question, and the browser's own when the
 * page is hidden. The board is asked only while there are schedules.
 */
import { api } from "./access.js";
import { button, choices } from "./buttons.js";
import { byId, h } from "./dom.js";
import { notify } from "./home.js";
import { say } from "./i18n.js";
import { prefer, preference } from "./preferences.js";
import { addressOf } from "./router.js";

const PAUSE_MS = 15_000;
const MOST_SHOWN = 3;
const SHOWN_LETTERS = 300;
/** @type {{timer: ReturnType<typeof setInterval> | undefined, told: () => void}} */
const state = { timer: undefined, told: () => undefined };

/**
 * The zone of a person: the browser's; the board's if the browser knows none but UTC.
 *
 * @param {string} ofBoard empty for none
 */
export function zoneOfPerson(ofBoard) {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  return /^(etc\/)?(utc|gmt|uct|zulu)$/i.test(here) || !here ? ofBoard || here : here;
}

/**
 * Ask for results from now on if a schedule can bring any.
 *
 * @param {{state: string}[]} schedules
 */
export function noteSchedules(schedules) {
  const isWanted = schedules.length > 0;
  if (isWanted && state.timer === undefined) {
    // Also while the page is hidden, for the browser's notification.
    state.timer = setInterval(() => void lookForResults(), PAUSE_MS);
    void lookForResults();
  } else if (!isWanted) {
    clearInterval(state.timer);
    state.timer = undefined;
  }
}

/**
 * Look whether there are schedules, at the start and when the page is looked at again.
 *
 * @param {() => void} told called when there are results
 */
export async function lookForSchedules(told) {
  state.told = told;
  const found = await api.get("/v1/schedules").catch(() => null);
  if (found) noteSchedules(found.schedules);
}

async function lookForResults() {
  const after = preference("schedules_seen");
  const found = await api.get("/v1/schedules/runs", { after: after || undefined, limit: MOST_SHOWN }).catch(() => null);
  if (!found) return;
  const latest = found.runs[0]?.ended_at ?? 0;
  // In a new browser what was before is not news.
  prefer("schedules_seen", String(Math.max(latest, Number(after) || found.now)));
  if (!after || found.runs.length === 0) return;
  state.told();
  for (const run of found.runs.toReversed()) if (run.outcome !== "quiet") show(run);
}

/** @param {any} run */
function show(run) {
  const text = run.text.length > SHOWN_LETTERS ? `${run.text.slice(0, SHOWN_LETTERS)}…` : run.text;
  const notice = h(
    "div",
    { class: "notice schedule-notice" },
    h("p", { dir: "auto" }, h("strong", {}, run.title), h("br"), text),
    choices(
      run.conversation && h("a", { class: "button", href: addressOf(run.conversation), click: () => notice.remove() }, say("schedules.open")),
      button("close", () => notice.remove()),
    ),
  );
  const box = byId("schedule-notices");
  box.prepend(notice);
  while (box.children.length > MOST_SHOWN) box.lastElementChild?.remove();
  void notify(run.title, addressOf(run.conversation ?? ""), text);
}
