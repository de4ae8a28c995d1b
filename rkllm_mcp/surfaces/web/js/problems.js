/**
 * Failures become sentences for the user of the page, ending with what can be done. The board's own words say
 * both; where they are English and the page is not, they are after the page's.
 */
import { ConnectionLost, Refusal } from "./api.js";
import { language, t } from "./i18n.js";

/** @type {Record<number, string>} */
const ADVICE = {
  403: "problem.forbidden",
  404: "problem.missing",
  413: "problem.large",
  429: "problem.busy",
  503: "problem.loading",
};

/** @type {Record<string, string>} the last three are of the proxy of several boards */
const BY_CODE = {
  answer_under_way: "problem.under_way",
  no_board: "problem.no_board",
  board_lost: "problem.board_lost",
  timeout: "problem.board_timeout",
};

/**
 * @param {unknown} error
 * @returns {string}
 */
export function sentenceOf(error) {
  if (error instanceof ConnectionLost) return t("problem.connection");
  if (!(error instanceof Refusal)) return t("problem.page", { error: String(error) });
  const instead = ownWords(error);
  if (instead) return t(instead);
  const own = advice(error);
  // The first word may be a name, of a file or a tool, which is not written otherwise.
  const said = error.message.replace(/^[a-z]+(?=[ ,;:])/, (word) => word.charAt(0).toUpperCase() + word.slice(1));
  // A server's words may be in the person's language already.
  const isTold = language() === "en" || /[ぁ-ヶ]/.test(said);
  return isTold && said ? said : [own, said].filter(Boolean).join(" ");
}

/**
 * The phrase for what the board says in words for programs only; empty for everything else.
 *
 * @param {Refusal} refusal
 */
function ownWords({ status, code, param }) {
  if (status === 401) return "problem.key";
  if (status === 404 && param === "conversation") return "problem.conversation";
  return BY_CODE[code] ?? "";
}

/** @param {Refusal} refusal */
function advice(refusal) {
  if (refusal.status === 429 && refusal.retryAfter_s > 0) return t("problem.busy_for", { count: refusal.retryAfter_s });
  return t(ADVICE[refusal.status] ?? (refusal.status < 500 ? "problem.refused" : "problem.failed"));
}
