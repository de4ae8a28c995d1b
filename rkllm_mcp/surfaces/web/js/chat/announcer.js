/**
 * What a screen reader is told, politely: an answer sentence by sentence, and what happens beside it. What is shown on
 * the page itself is not announced again.
 */
import { byId, h } from "../dom.js";

// What was said long ago may be cleared away; a reader has taken it by then.
const KEPT = 20;

/** @param {string} sentence */
export function announce(sentence) {
  const region = byId("announcements");
  region.append(h("p", {}, sentence));
  while (region.childElementCount > KEPT) region.firstElementChild?.remove();
}
