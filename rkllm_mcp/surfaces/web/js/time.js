/** Moments in either spelling that JSON has for them. */

/**
 * @param {number | string | null | undefined} moment seconds since 1970, or ISO 8601
 * @returns {number} seconds since 1970; 0 without one
 */
export function secondsOf(moment) {
  if (typeof moment === "number") return moment;
  const at = Date.parse(moment ?? "");
  return Number.isNaN(at) ? 0 : at / 1000;
}
