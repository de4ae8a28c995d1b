/**
 * What an answer has kept or was given of the memory: a line of chips below it, each with a way to remove it for good; and
 * the button that remembers a message.
 *
 * @typedef {{id: string, text: string, source: string}} Row
 */
import { api } from "../access.js";
import { iconButton } from "../buttons.js";
import { written } from "../dialogs/small.js";
import { h, icon } from "../dom.js";
import { say } from "../i18n.js";
import { sentenceOf } from "../problems.js";
import { showLine } from "../toast.js";
import { announce } from "./announcer.js";

const LONGEST_ROW = 160;
const NOT_FOUND = 404;

/**
 * @param {Row[]} rows
 * @param {boolean} isNew they were kept, not given
 */
export function memoryChips(rows, isNew) {
  const phrase = isNew ? "memory.kept" : "memory.given";
  return h(
    "ul",
    { class: "memory-chips" },
    rows.map((row) => {
      const chip = h(
        "li",
        { class: "memory-chip" },
        icon("book"),
        h("span", { dir: "auto" }, say(phrase, { text: row.text })),
        iconButton("close", "memory.remove", () => void remove(row, chip)),
      );
      return chip;
    }),
  );
}

/**
 * @param {Row} row
 * @param {HTMLElement} chip
 */
async function remove(row, chip) {
  try {
    await api.delete(`/v1/memory/${encodeURIComponent(row.id)}`);
  } catch (error) {
    // It is gone already.
    if (/** @type {any} */ (error).status !== NOT_FOUND) {
      announce(sentenceOf(error));
      return;
    }
  }
  const next = /** @type {HTMLElement | null} */ (chip.closest("article"));
  chip.remove();
  next?.focus();
  showLine("memory.removed");
}

/**
 * Ask in which words a message is to be remembered, and keep them.
 *
 * @param {string} message
 */
export async function rememberMessage(message) {
  const text = await written("memory.remember", "memory.new", message.trim().replace(/\s+/g, " ").slice(0, LONGEST_ROW));
  if (!text) return;
  try {
    await api.post("/v1/memory", { text: text.slice(0, LONGEST_ROW) });
    showLine("memory.added");
  } catch (error) {
    showLine("memory.failed", { reason: sentenceOf(error) });
  }
}
