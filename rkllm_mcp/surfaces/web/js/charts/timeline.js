/**
 * Calls become the bars of a timeline. Arithmetic only; drawing is elsewhere.
 *
 * @typedef {{started: number, seconds: number, lane: string}} Span in seconds since 1970
 * @typedef {{x: number, width: number, lane: number}} Bar parts of the whole width, from 0 to 1
 */

/**
 * The position of each call on a timeline that begins with the first and ends with the last.
 *
 * @param {Span[]} spans
 * @returns {{lanes: string[], bars: Bar[], start: number, end: number}} bars in the order of the spans
 */
export function timeline(spans) {
  const lanes = [...new Set(spans.map((span) => span.lane))].sort((one, other) => one.localeCompare(other));
  const start = spans.reduce((earliest, span) => Math.min(earliest, span.started), Number.POSITIVE_INFINITY);
  const end = spans.reduce((latest, span) => Math.max(latest, span.started + span.seconds), Number.NEGATIVE_INFINITY);
  const length = end - start || 1;
  const bars = spans.map((span) => ({
    x: (span.started - start) / length,
    width: span.seconds / length,
    lane: lanes.indexOf(span.lane),
  }));
  return { lanes, bars, start, end };
}
