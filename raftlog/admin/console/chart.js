// Lines over the last quarter of an hour, as SVG.

import { h, put, svg } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 320;
const HEIGHT = 90;
export const SPAN_MS = 900_000;

/** Return { element, draw(samples, now) }. `lines`: [name, sample → value or null]; `show` makes a value a text. */
export function chart(title, lines, show, note) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: nothing yet` });
  const legend = h("div", { class: "legend" });
  const most = h("span", { class: "most" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, h("strong", {}, title), most), drawing, legend, note && h("small", {}, note));

  function draw(samples, now, span = SPAN_MS) {
    const values = lines.map(([, of]) => samples.map((each) => [each.at_ms, of(each)]));
    const top = Math.max(1e-9, ...values.flat().map(([, value]) => value ?? 0));
    const x = (at) => WIDTH - ((now - at) / span) * WIDTH;
    const y = (value) => HEIGHT - 4 - (value / top) * (HEIGHT - 12);
    put(drawing, [0.25, 0.5, 0.75].map((part) => svg("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part })),
      values.flatMap((points, index) => pieces(points).map((piece) => svg("polyline", { class: `line line-${index}`, "vector-effect": "non-scaling-stroke", points: piece.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }))));
    const last = samples.at(-1);
    const said = lines.map(([name, of]) => [name, last ? show(of(last)) : "–"]);
    put(legend, said.map(([name, value], index) => h("span", { class: `key key-${index}` }, h("i", {}), name && `${name} `, h("b", {}, value))));
    most.textContent = samples.length ? `max ${show(top < 1e-6 ? 0 : top)}` : "waiting for samples";
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
