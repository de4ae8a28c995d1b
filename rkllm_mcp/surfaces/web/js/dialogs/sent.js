/**
 * What was sent to the model in a conversation: system text, tools, passages and turns, in one dialog.
 */
import { api } from "../access.js";
import { h } from "../dom.js";
import { sentenceOf } from "../problems.js";
import { openDialog } from "./dialog.js";

/** @param {string} conversation its id */
export async function showSent(conversation) {
  try {
    const { text, tokens } = await api.get(`/v1/conversations/${encodeURIComponent(conversation)}/prompt`);
    await openDialog("chat.sent_title", { n: tokens }, () => [h("pre", { class: "sent", tabindex: "0" }, text)]);
  } catch (error) {
    await openDialog("chat.sent", {}, () => [h("p", {}, sentenceOf(error))]);
  }
}
