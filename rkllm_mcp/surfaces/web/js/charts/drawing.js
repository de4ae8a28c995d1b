/**
 * Timelines of calls as SVG. Colours come from the style sheet; the content of a chart is also in words, in its name
 * and next to it, and a failed call differs in shape as well as in colour.
 */
import { s } from "../dom.js";
import { timeline } from "./timeline.js";

const LANE = 22;
const LABEL = 12;
const LEAST_PX = 4;

/**
 * Calls as bars, a lane for each server or tool.
 *
 * @param {{started: number, seconds: number, lane: string, isError: boolean, title: string}[]} calls
 * @param {string} name its content, in words
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
 * @param {import("./timeline.js").Bar} bar
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
