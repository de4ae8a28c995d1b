/**
 * Polite announcements for a screen reader: an answer sentence by sentence, and its events. What is shown on
 * the page itself is not announced again.
 */
import { byId, h } from "../dom.js";

// Old announcements may be removed; the screen reader has read them by then.
const KEPT = 20;

/** @param {string} sentence */
export function announce(sentence) {
  const region = byId("announcements");
  region.append(h("p", {}, sentence));
  while (region.childElementCount > KEPT) region.firstElementChild?.remove();
}
