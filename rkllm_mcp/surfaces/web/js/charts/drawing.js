/**
 * Series and timelines as SVG. Colours come from the style sheet; what a chart shows is also said in words, in its name
 * and beside it, and a failed call differs in shape as well as in colour.
 */
import { s } from "../dom.js";
import { lines, timeline } from "./series.js";

const WIDTH = 240;
const HEIGHT = 56;
const LANE = 22;
const LABEL = 12;
const LEAST_PX = 4;

/**
 * @param {import("./series.js").Series[]} series
 * @param {number} low
 * @param {number} high
 * @param {string} name what it shows, in words
 */
export function sparkline(series, low, high, name) {
  const chart = s("svg", {
    class: "sparkline",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": name,
  });
  chart.append(s("line", { class: "base", x1: 0, y1: HEIGHT - 0.5, x2: WIDTH, y2: HEIGHT - 0.5 }));
  for (const [place, one] of series.entries()) {
    for (const line of lines(one, low, high)) {
      const points = line.map(({ x, y }) => `${round(x * WIDTH)},${round(2 + y * (HEIGHT - 4))}`);
      // A single measurement has no length; a round cap makes it a dot.
      if (points.length === 1) points.push(String(points[0]));
      chart.append(
        s("polyline", { class: `line line-${place}`, points: points.join(" "), "vector-effect": "non-scaling-stroke" }),
      );
    }
  }
  return chart;
}

/**
 * Calls as bars, a lane for each server or tool.
 *
 * @param {{started: number, seconds: number, lane: string, isError: boolean, title: string}[]} calls
 * @param {string} name what it shows, in words
 * @param {(seconds: number) => string} clock how a moment is written
 * @param {number} width in pixels
 */
export function timelineChart(calls, name, clock, width) {
  const { lanes, bars, start, end } = timeline(calls);
  const height = lanes.length * (LANE + LABEL) + 18;
  const chart = s("svg", {
    class: "timeline",
    viewBox: `0 0 ${width} ${height}`,
    width: "100%",
    role: "img",
    "aria-label": name,
  });
  for (const [place, lane] of lanes.entries()) {
    const top = place * (LANE + LABEL);
    chart.append(
      s("text", { x: 0, y: top + 10 }, lane),
      s("rect", { class: "lane", x: 0, y: top + LABEL, width, height: LANE - 4, rx: 3 }),
    );
  }
  for (const [place, bar] of bars.entries()) {
    const call = calls[place];
    if (call) chart.append(barShape(bar, call, width));
  }
  const bottom = height - 4;
  chart.append(
    s("text", { x: 0, y: bottom }, clock(start)),
    s("text", { x: width, y: bottom, "text-anchor": "end" }, clock(end)),
  );
  return chart;
}

/**
 * @param {import("./series.js").Bar} bar
 * @param {{isError: boolean, title: string}} call
 * @param {number} width
 */
function barShape(bar, call, width) {
  const length = Math.max(LEAST_PX, bar.width * width);
  const x = round(Math.min(bar.x * width, width - length));
  const top = bar.lane * (LANE + LABEL) + LABEL;
  const tip = s("title", {}, call.title);
  const shape = { class: call.isError ? "bar failed" : "bar", x, width: round(length), rx: 2 };
  if (!call.isError) return s("rect", { ...shape, y: top + 3, height: LANE - 10 }, tip);
  // Failed ones fill the lane and carry a mark below.
  const middle = x + length / 2;
  const mark = s("path", { class: "mark", d: `M${round(middle - 4)} ${top + LANE - 4}h8l-4-6z` });
  return s("g", {}, s("rect", { ...shape, y: top, height: LANE - 4 }), mark, tip);
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}
