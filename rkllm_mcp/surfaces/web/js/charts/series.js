/**
 * Numbers over time become the points of a line and the bars of a timeline. Arithmetic only; drawing is elsewhere.
 *
 * @typedef {{x: number, y: number}} Point
 * @typedef {{started: number, seconds: number, lane: string}} Span in seconds since 1970
 * @typedef {{x: number, width: number, lane: number}} Bar parts of the whole width, from 0 to 1
 */

const FEWEST = 15;

/** The last numbers of something that is measured again and again; `null` where nothing could be measured. */
export class Series {
  /** @type {(number | null)[]} */
  values = [];

  /** @param {number} size how many are kept */
  constructor(size) {
    this.size = size;
  }

  /** @param {number | null | undefined} value */
  add(value) {
    this.values.push(typeof value === "number" && Number.isFinite(value) ? value : null);
    if (this.values.length > this.size) this.values.shift();
  }

  /** The newest number; null when there is none. */
  get last() {
    return this.values.at(-1) ?? null;
  }
}

/**
 * The lines through the numbers, the newest at the right edge; a gap where a number is missing.
 *
 * @param {Series} series
 * @param {number} low what is drawn at the bottom
 * @param {number} high what is drawn at the top
 * @returns {Point[][]} parts of the width and the height, from 0 to 1, from the top left
 */
export function lines(series, low, high) {
  // The first minutes would be a dot at the edge: the width grows with what there is.
  const places = Math.max(Math.min(FEWEST, series.size), series.values.length);
  const step = 1 / Math.max(1, places - 1);
  const first = places - series.values.length;
  const range = high - low || 1;
  /** @type {Point[][]} */
  const found = [[]];
  for (const [place, value] of series.values.entries()) {
    const share = value === null ? 0 : Math.min(1, Math.max(0, (value - low) / range));
    if (value === null) found.push([]);
    else found.at(-1)?.push({ x: (first + place) * step, y: 1 - share });
  }
  return found.filter((line) => line.length > 0);
}

/**
 * A round number that is no smaller than any of these: 1, 2 or 5 with zeros.
 *
 * @param {number[]} values
 * @returns {number}
 */
export function ceiling(values) {
  const most = Math.max(0, ...values);
  if (most === 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((times) => times * unit).find((limit) => limit >= most) ?? most;
}

/**
 * Where each call stands on a timeline that begins with the first and ends with the last.
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
