/**
 * What was said earlier, as the board has stored it: messages with the calls between them, each in front of the answer
 * that it served. Of a long conversation the last part is shown, the rest when it is asked for: all at once would keep a
 * phone busy for seconds.
 *
 * @typedef {{role: string, text: string, thinking?: string, ending?: string, created?: number | string}} Message
 * @typedef {() => HTMLElement} Maker
 */
import { button } from "../buttons.js";
import { h, icon } from "../dom.js";
import { say } from "../i18n.js";
import { secondsOf } from "../time.js";
import { pastAnswer } from "./answer_view.js";
import { ToolCard } from "./tool_card.js";

const PART = 60;
// A few more are no reason for a button.
const NEARLY = 1.5;

/**
 * @param {Message[]} messages
 * @param {any[]} calls of the tool history, in any order
 * @returns {HTMLElement[]}
 */
export function past(messages, calls) {
  const makers = inOrder(messages, calls);
  return lastOf(makers, makers.length);
}

/**
 * The part that ends here, behind a button for what was before it.
 *
 * @param {Maker[]} makers
 * @param {number} end
 * @returns {HTMLElement[]}
 */
function lastOf(makers, end) {
  const start = end > PART * NEARLY ? end - PART : 0;
  const nodes = makers.slice(start, end).map((make) => make());
  if (start === 0) return nodes;
  const line = h("div", { class: "earlier" });
  line.append(button("chat.earlier", () => put(line, lastOf(makers, start)), { class: "quiet" }));
  return [line, ...nodes];
}

/**
 * Put earlier messages in the place of their button; what was read stays where it was.
 *
 * @param {HTMLElement} line
 * @param {HTMLElement[]} nodes
 */
function put(line, nodes) {
  const pane = /** @type {HTMLElement} */ (line.closest(".messages"));
  const below = pane.scrollHeight - pane.scrollTop;
  line.replaceWith(...nodes);
  pane.scrollTop = pane.scrollHeight - below;
  const next = /** @type {HTMLElement | null | undefined} */ (nodes[0]?.querySelector(":scope > button"));
  (next ?? pane).focus({ preventScroll: true });
}

/**
 * @param {Message[]} messages
 * @param {any[]} calls
 */
function inOrder(messages, calls) {
  const waiting = [...calls].sort((one, other) => secondsOf(one.started) - secondsOf(other.started));
  /** @type {Maker[]} */
  const makers = [];
  for (const message of messages) {
    if (message.role === "user") {
      makers.push(() => userMessage(message.text));
    } else if (message.role === "assistant") {
      const until = secondsOf(message.created);
      const count = waiting.findIndex((call) => secondsOf(call.started) > until);
      const served = waiting.splice(0, count < 0 ? waiting.length : count);
      makers.push(...served.map((call) => () => pastCall(call)), () => pastAnswer(message));
    }
  }
  return [...makers, ...waiting.map((call) => () => pastCall(call))];
}

/** @param {any} call one of the tool history */
function pastCall(call) {
  const wasStopped = call.ruling === "stopped";
  const result = { is_error: call.is_error, text: call.error ?? "", seconds: call.seconds, truncated: false };
  const card = new ToolCard({
    kind: "call",
    id: "",
    name: call.name,
    server: call.server,
    arguments: argumentsOf(call),
    repaired: false,
    progress: null,
    result: wasStopped ? null : result,
    isRunning: false,
    isOver: true,
  });
  return h("div", { class: "message past-call" }, card.node);
}

/**
 * @param {any} call
 * @returns {Record<string, unknown>}
 */
function argumentsOf(call) {
  if (typeof call.arguments !== "string") return call.arguments ?? {};
  try {
    const value = JSON.parse(call.arguments);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    // Long arguments are cut in the history; then they are no JSON any more.
    return { "": call.arguments };
  }
}

/**
 * @param {string} message
 * @param {import("./thread.js").Wish["prompt"]} [prompt] a server's question instead
 */
export function userMessage(message, prompt) {
  const label = h("h2", { class: "visually-hidden" }, say("chat.you"));
  const given = Object.entries(prompt?.arguments ?? {}).map(([name, value]) => `${name}: ${value}`);
  const asked = prompt && h("p", { class: "chip" }, icon("prompt"), h("span", {}, [prompt.name, ...given].join(" · ")));
  const text = message && h("p", { class: "as-written", dir: "auto" }, message);
  return h("article", { class: "message user" }, label, h("div", { class: "bubble" }, asked, text));
}

/**
 * A line about what happened to an answer.
 *
 * @param {string} phrase
 */
export function notice(phrase) {
  return h("div", { class: "notice", role: "status" }, h("p", {}, say(phrase)));
}
