// Lines over the last quarter of an hour, as SVG.

import { h, put, svg } from "./dom.js";
import { clock, zone } from "./format.js";

const WIDTH = 320;
const HEIGHT = 90;
export const SPAN_MS = 900_000;

/** Return { element, draw(samples, now) }. `lines`: [name, sample → value or null]; `show` makes a value a text; `least`: the least height. */
export function chart(title, lines, show, note, least = 1e-9) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: nothing yet` });
  const legend = h("div", { class: "legend" });
  const heights = h("div", { class: "heights", "aria-hidden": "true" });
  const times = h("div", { class: "ends", "aria-hidden": "true" });
  const shown = h("span", { class: "most" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, h("strong", {}, title), shown), h("div", { class: "plot" }, heights, drawing), times, legend, note && h("small", {}, note));
  let drawn = { samples: [], now: 0, span: SPAN_MS }, pointer = null;

  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    pointer = (event.clientX - box.left) / box.width;
    label();
  });
  drawing.addEventListener("pointerleave", () => ((pointer = null), label()));

  function draw(samples, now, span = SPAN_MS) {
    drawn = { samples, now, span };
    const values = lines.map(([, of]) => samples.map((each) => [each.at_ms, of(each)]));
    const top = Math.max(least, ...values.flat().map(([, value]) => value ?? 0));
    const x = (at) => WIDTH - ((now - at) / span) * WIDTH;
    const y = (value) => HEIGHT - 1 - (value / top) * (HEIGHT - 2);
    put(drawing, [1, 0.5, 0].map((part) => svg("line", { class: "rule", x1: 0, x2: WIDTH, y1: y(top * part), y2: y(top * part) })),
      values.flatMap((points, index) => pieces(points).map((piece) => svg("polyline", { class: `line line-${index}`, "vector-effect": "non-scaling-stroke", points: piece.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }))));
    put(heights, [top, top / 2, 0].map((each) => h("span", {}, show(each < 1e-6 ? 0 : each))));
    put(times, h("span", {}, clock(now - span)), h("span", {}, `${clock(now)}${zone(now)}`));
    label();
  }

  /** Show the values under the pointer, else the newest. */
  function label() {
    const { samples, now, span } = drawn;
    const at = pointer === null ? now : now - (1 - pointer) * span;
    const near = samples.reduce((found, each) => (found && Math.abs(found.at_ms - at) < Math.abs(each.at_ms - at) ? found : each), null);
    const said = lines.map(([name, of]) => [name, near ? show(of(near)) : "–"]);
    put(legend, said.map(([name, value], index) => h("span", { class: `key key-${index}` }, h("i", {}), name && `${name} `, h("b", {}, value))));
    shown.textContent = !near ? "waiting for samples" : pointer === null ? "now" : clock(near.at_ms);
    drawing.setAttribute("aria-label", `${title}, ${Math.round(span / 1000)} seconds up to ${clock(now)}: ${said.map((each) => each.join(" ")).join(", ")}`);
  }
  return { element, draw };
}

/** Cut a line where nothing is known. */
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (point[1] === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((each) => each.length).map((each) => (each.length > 1 ? each : [each[0], [each[0][0] + 1500, each[0][1]]]));
}

/** Return a small line of numbers. */
export function spark(values) {
  const top = Math.max(1, ...values);
  if (values.length === 1) values = [values[0], values[0]];
  const step = 80 / (values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(18 - (value / top) * 16).toFixed(1)}`).join(" ");
  return svg("svg", { class: "spark", viewBox: "0 0 80 20", role: "img", "aria-label": `from ${values[0]} to ${values.at(-1)}` },
    svg("polyline", { class: "line line-0", points }));
}
