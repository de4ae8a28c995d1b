/** The page: every part is made here and receives the others; no other module knows them all. */
import { access, api } from "./access.js";
import { ConnectionLost } from "./api.js";
import { applyLanguage, applyTextSize, applyTheme } from "./appearance.js";
import { announce } from "./chat/announcer.js";
import { Composer } from "./chat/composer.js";
import { Desk } from "./chat/desk.js";
import { Files } from "./chat/files.js";
import { QuestionOptions } from "./chat/options.js";
import { Welcome } from "./chat/welcome.js";
import { Conversations } from "./conversations.js";
import { byId, fill, plain, tell } from "./dom.js";
import { say, t } from "./i18n.js";
import { keepPage, lookForRelease, notify } from "./home.js";
import { onKey } from "./keys.js";
import { warmFonts } from "./markdown/extras.js";
import { ModelPicker } from "./models.js";
import { DocumentsPanel } from "./panels/documents.js";
import { lateTab, Panel } from "./panels/panel.js";
import { takeOver } from "./preferences.js";
import { onLongPress } from "./press.js";
import { sentenceOf } from "./problems.js";
import { addressOf, codeOf, conversationOf, serverOf } from "./router.js";
import { lookForSchedules } from "./schedule_notices.js";
import { Microphone } from "./speech/microphone.js";
import { speaker } from "./speech/speaker.js";
import { showToast } from "./toast.js";

applyTheme();
applyTextSize();
await applyLanguage();

/**
 * @type {{hasDrawer: boolean, running: {id: string, title: string}[], look: Promise<unknown> | null,
 *   clock: ReturnType<typeof setInterval> | undefined, context: import("./chat/context.js").ContextBar | null,
 *   hasTitles: boolean}} ``hasTitles`` if the board writes titles of conversations
 */
const state = { hasDrawer: false, running: [], look: null, clock: undefined, context: null, hasTitles: false };
access.told = {
  changed: () => {
    options.forget();
    void refresh();
  },
  tools: () => void introduce(),
  lost: () => showConnection(false),
  back: () => {
    showConnection(true);
    // First of all: the rest may wait for a request that hangs.
    desk.comeBack();
    desk.sendWaiting();
    void Promise.all([introduce(), look()]).then(() => panel.refresh());
  },
};
const conversations = new Conversations({
  gone: (id) => {
    if (desk.thread.id === id) location.hash = addressOf("");
  },
  loaded: () => mark(),
  settings: (id) => changeSettings(id),
});
const models = new ModelPicker({
  changed: () => introduce(),
  shown: () => files.look(),
  more: () => panel.open("models"),
});
const desk = new Desk({
  models: () => models.models,
  changed: () => followDesk(),
  ask: (wish) => ask(wish),
  edit: ({ message, pictures = [] }) => {
    composer.write(message);
    files.restore(pictures);
  },
});
const options = new QuestionOptions();
const files = new Files({
  write: (text) => composer.insert(text),
  send: () => composer.submit(),
  store: (file) => documents.store(file),
  folder: (chosen) => {
    panel.open("documents");
    void documents.add(chosen);
  },
  passages: (given) => documents.passages(given),
  search: (tool) => options.begin(tool),
  eyes: () => models.eyes,
  choose: (name) => models.choose(name),
  changed: () => {
    composer.show(desk.isRunning);
    state.context?.later();
  },
});
const composer = new Composer({
  send: (text) => {
    if (files.block()) return false;
    const isTaken = ask({ message: files.with(text), pictures: files.pictures });
    if (isTaken) files.spent();
    return isTaken;
  },
  stop: () => desk.stop(),
  changed: () => {
    files.hold();
    state.context?.later();
  },
  wordless: () => (files.pictures.length > 0 ? t("picture.question") : ""),
});
const microphone = new Microphone({
  heard: (text) => composer.insert(text),
  unheard: (text) => composer.remove(text),
  ask: async () => composer.submit() && (await desk.answered()),
});
const documents = new DocumentsPanel({
  ask: (document) => {
    if (narrow.matches) panel.close();
    files.addDocument(document);
    composer.focus();
  },
});
const welcome = new Welcome({
  ask: (message) => ask({ message }),
  open: (name, part) => panel.open(name, part),
  begin: () => desk.thread.begin,
});
const modelsTold = { use: (/** @type {string} */ name) => models.choose(name), changed: () => void introduce() };
const keys = {
  isSet: () => access.isKeySet,
  change: () => access.change(),
  forget: () => access.forget(),
};
const panel = new Panel(
  {
    servers: lateTab(async () => new (await import("./panels/servers.js")).ServersPanel()),
    documents,
    models: lateTab(async () => new (await import("./panels/models.js")).ModelsPanel(modelsTold)),
    board: lateTab(async () => new (await import("./panels/board.js")).BoardPanel()),
    settings: lateTab(async () => new (await import("./panels/settings.js")).SettingsPanel(keys, { deleted })),
  },
  () => coverPage(),
);
const narrow = matchMedia("(max-width: 60rem)");
const SECOND_MS = 1000;

/**
 * @param {import("./chat/unanswered.js").Wish} wish
 * @returns {boolean}
 */
function ask(wish) {
  const isTaken = desk.ask({ ...wish, options: { ...models.options, ...options.chosen, ...wish.options } });
  if (isTaken) options.spent();
  return isTaken;
}

/** What follows from an answer that begins or ends, and from a conversation that has got its id. */
function followDesk() {
  composer.show(desk.isRunning);
  state.context?.later();
  /** @type {HTMLButtonElement} */ (byId("prompts")).disabled = desk.isRunning;
  if (desk.thread.id && conversationOf(location.hash) !== desk.thread.id)
    history.replaceState(null, "", addressOf(desk.thread.id));
  mark();
  const over = state.running.filter(({ id }) => !desk.running.some((each) => each.id === id));
  state.running = desk.running;
  if (over.length === 0) return;
  for (const { id, title } of over) void notify(conversations.titleOf(id) || title || "rkllm-mcp", addressOf(id));
  void conversations.load().then(() => state.hasTitles && conversations.awaitTitle(over[0]?.id ?? ""));
  void introduce();
  panel.refresh();
}

function mark() {
  conversations.mark(desk.thread.id, desk.running);
  // Until the service has named the conversation its title is the question as it was typed.
  const title = plain(conversations.titleOf(desk.thread.id) || desk.thread.title || "");
  byId("title").replaceChildren(title || say("conversations.new"));
  // The mark of an answer that is ready stays until the page is looked at.
  if (document.visibilityState === "visible" || !document.title.startsWith("●"))
    document.title = title ? `${title} – rkllm-mcp` : "rkllm-mcp";
}

/** An install link opens the panel filled in; it adds and starts nothing. */
function followLink() {
  const link = serverOf(location.hash);
  if (!link) return false;
  history.replaceState(null, "", addressOf(desk.thread.id));
  panel.open("servers", `add?${link}`);
  return true;
}

async function route() {
  openDrawer(false);
  const isLinked = followLink();
  if (isLinked && byId("page").dataset["ready"]) return;
  files.hold();
  // A conversation that never came about has no address to come back to.
  const { id: left, unsent } = desk.thread;
  await desk.open(conversationOf(location.hash));
  if (!left) composer.restore(unsent);
  mark();
  if (!narrow.matches && !isLinked) composer.focus();
}

/**
 * The options of a conversation; those of a new one go with its first question.
 *
 * @param {string} id
 */
async function changeSettings(id) {
  const { chosenSettings } = await import("./dialogs/settings.js");
  const { thread } = desk;
  const path = `/v1/conversations/${encodeURIComponent(id)}`;
  const chosen = await chosenSettings(id ? await api.get(path) : thread.begin);
  if (chosen && id) await api.patch(path, chosen);
  else if (chosen) thread.begin = { ...thread.begin, ...chosen };
}

/** Who is asked, and whether that is a real board. */
async function introduce() {
  try {
    const me = await api.get("/v1/me");
    if (takeOver(me.settings)) {
      applyTheme();
      applyTextSize();
      await applyLanguage();
    }
    void models.show(me);
    state.hasTitles = me.titles;
    speaker.hasBoard = me.speaks;
    microphone.hasBoard = me.listens;
    conversations.mayDelete = me.may_delete;
    byId("emulated").hidden = !me.emulated;
    byId("storage").hidden = !me.storage;
    tell(byId("storage"), say("storage.failing", { why: me.storage ?? "" }));
    document.body.classList.toggle("is-remote", me.context_tokens === 0);
    await welcome.show(me);
    files.fits(me.context_tokens, welcome.tokens, me.picture_tokens ?? 0);
    await showContext(me.context_tokens);
  } catch (error) {
    // One notice at a time: the line above the field says that the board is away.
    tell(byId("welcome-note"), error instanceof ConnectionLost ? "" : sentenceOf(error));
  }
}

/** @param {number} size of the model's window */
async function showContext(size) {
  const { ContextBar } = await import("./chat/context.js");
  state.context ??= new ContextBar(() => ({
    draft: composer.text,
    files: files.tokens,
    tools: welcome.tokens,
    costs: desk.thread.costs,
  }));
  state.context.fits(size);
}

/** Everything anew, for another user perhaps. */
async function refresh() {
  await Promise.all([introduce(), conversations.load(), desk.reload(), showQuestions()]);
  panel.refresh();
}

/** What has happened in other windows; coming back to this one fires two events at once. */
function look() {
  // A new release may take long to arrive; nothing here waits for it.
  if (!state.look) void lookForRelease();
  state.look ??= Promise.all([conversations.load(), desk.refresh(), showQuestions(), lookForSchedules(resultsCame)]).finally(() => {
    state.look = null;
  });
  return state.look;
}

/** @param {boolean} isThere */
function showConnection(isThere) {
  byId("offline").hidden = isThere;
  document.body.classList.toggle("is-offline", !isThere);
  announce(t(isThere ? "connection.back" : "connection.lost"));
  clearInterval(state.clock);
  if (!isThere) state.clock = setInterval(countDown, SECOND_MS);
}

/** Say when the board is looked for again; shown only, because nothing new happens. */
function countDown() {
  const left = access.connection.left_s;
  fill(byId("offline-line"), left > 0 ? say("connection.again", { s: left }) : say("connection.trying"));
}

/** Questions are an extra of this page; other errors are shown elsewhere. */
function showQuestions() {
  return desk.showQuestions().catch(() => undefined);
}

/** @param {boolean} isOpen whether the list of conversations covers a narrow page */
function openDrawer(isOpen) {
  if (state.hasDrawer === isOpen) return;
  state.hasDrawer = isOpen;
  document.body.classList.toggle("has-drawer", isOpen);
  byId("menu").setAttribute("aria-expanded", String(isOpen));
  coverPage();
  (isOpen ? byId("new") : byId("menu")).focus();
}

/** A covered part cannot be reached by keys or a screen reader either. */
function coverPage() {
  const isPanelOver = panel.isOpen && narrow.matches;
  const isDrawerOver = state.hasDrawer && narrow.matches;
  document.body.classList.toggle("has-panel", panel.isOpen);
  byId("main").inert = isPanelOver || isDrawerOver;
  byId("skip").inert = byId("main").inert;
  byId("sidebar").inert = isPanelOver || (narrow.matches && !state.hasDrawer);
  byId("shade").hidden = !isDrawerOver;
}

/** A schedule has a result, which may be a new conversation. */
function resultsCame() {
  void conversations.load();
  panel.refresh();
}

/** All conversations are gone. */
function deleted() {
  location.hash = addressOf("");
  void conversations.load();
}

/** The keys of the page; Escape closes what is open, or else stops the microphone, the voice, or the answer. */
const ACTIONS = {
  escape: () => {
    if (state.hasDrawer) openDrawer(false);
    else if (panel.isOpen) panel.close();
    else if (microphone.isOn) microphone.cancel();
    else if (speaker.isReading) speaker.stop();
    else if (desk.isRunning) desk.stop();
  },
  search: () => {
    if (narrow.matches) openDrawer(true);
    byId("sidebar").hidden = false;
    document.body.classList.remove("has-no-list");
    byId("conversation-search").focus();
  },
  begin: () => {
    location.hash = addressOf("");
    composer.focus();
  },
  list: () => {
    if (narrow.matches) openDrawer(!state.hasDrawer);
    else byId("sidebar").hidden = !byId("sidebar").hidden;
    document.body.classList.toggle("has-no-list", byId("sidebar").hidden);
  },
  write: () => composer.focus(),
  help: () => panel.open("settings"),
  editLast: () => !desk.isRunning && desk.thread.editLast(),
  turn: (/** @type {HTMLElement} */ message, /** @type {number} */ step) => desk.thread.questionAt(message)?.turn(step),
};

function listen() {
  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => onKey(event, ACTIONS));
  narrow.addEventListener("change", coverPage);
  // A phone may take the page from memory whenever it is not looked at, and say nothing.
  document.addEventListener("visibilitychange", () =>
    document.visibilityState === "visible" ? void look().then(mark) : composer.leave(desk.thread.unsent),
  );
  addEventListener("focus", () => void look());
  addEventListener("pagehide", () => {
    composer.leave(desk.thread.unsent);
    conversations.settle();
  });
  byId("reconnect").addEventListener("click", () => access.connection.retry());
  byId("menu").addEventListener("click", () => openDrawer(true));
  byId("drawer-close").addEventListener("click", () => openDrawer(false));
  byId("shade").addEventListener("click", () => openDrawer(false));
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    composer.focus();
  });
  for (const link of document.querySelectorAll("[data-panel]")) link.addEventListener("click", () => openDrawer(false));
  for (const link of document.querySelectorAll("[data-new]"))
    link.addEventListener("click", () => (desk.thread.id ? undefined : route()));
  byId("manage").addEventListener("click", () =>
    conversations.manage(byId("manage"), desk.thread.id, desk.thread.title),
  );
  byId("attach").addEventListener("click", async () => {
    const { openAttach } = await import("./dialogs/offers.js");
    openAttach(byId("attach"), { files: (chosen) => files.add(chosen), resource: (chosen) => files.addResource(chosen) });
  });
  onLongPress(byId("messages"), (pressed) => {
    for (const message of document.querySelectorAll(".message.is-pressed")) message.classList.remove("is-pressed");
    pressed.closest(".message")?.classList.add("is-pressed");
  });
  byId("messages").addEventListener("source", (event) => {
    const { detail, target } = /** @type {CustomEvent} */ (event);
    const closed = panel.isOpen ? undefined : () => panel.close();
    panel.open("documents");
    void documents.show(detail, /** @type {HTMLElement} */ (target), closed);
  });
  byId("prompts").addEventListener("click", async () => {
    const { chosenPrompt } = await import("./dialogs/offers.js");
    const prompt = await chosenPrompt(byId("prompts")).catch((error) => announce(sentenceOf(error)));
    if (prompt) ask({ message: "", prompt });
  });
}

listen();
coverPage();
keepPage(() => showToast("release.new", "release.load", () => location.reload()));
const code = codeOf(location.hash);
if (code) {
  // Taken out first: a code that was used is of no use in a bookmark or in the history.
  history.replaceState(null, "", addressOf(""));
  await access.link(code);
}
desk.takeUp(conversationOf(location.hash));
await route();
if (!access.connection.isLost) desk.sendWaiting();
await Promise.all([introduce(), conversations.load(), showQuestions(), lookForSchedules(resultsCame)]);
byId("page").dataset["ready"] = "yes";
void warmFonts();
