/**
 * Failures become sentences for whoever uses the page, ending with what can be done. The board's own words are English
 * and say both; in another language they stand behind the page's.
 */
import { ConnectionLost, Refusal } from "./api.js";
import { language, t } from "./i18n.js";

/** @type {Record<number, string>} */
const ADVICE = {
  401: "problem.key",
  403: "problem.forbidden",
  404: "problem.missing",
  413: "problem.large",
  429: "problem.busy",
  503: "problem.loading",
};

/**
 * @param {unknown} error
 * @returns {string}
 */
export function sentenceOf(error) {
  if (error instanceof ConnectionLost) return t("problem.connection");
  if (!(error instanceof Refusal)) return t("problem.page", { error: String(error) });
  const own = advice(error);
  return language() === "en" && error.message ? error.message : [own, error.message].filter(Boolean).join(" ");
}

/** @param {Refusal} refusal */
function advice(refusal) {
  if (refusal.status === 429 && refusal.retryAfter_s > 0) return t("problem.busy_for", { count: refusal.retryAfter_s });
  const phrase = ADVICE[refusal.status];
  return phrase ? t(phrase) : "";
}
