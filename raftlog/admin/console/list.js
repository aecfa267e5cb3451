// A list of thousands of rows, of which only those exist as elements that can be seen.

import { h, put } from "./dom.js";

const ROW = 34;
const LINE = 20;
const IN_A_LINE = { narrow: 3, medium: 6 };
const SPARE = 8;
const NARROW = matchMedia("(max-width: 640px)"), MEDIUM = matchMedia("(max-width: 1050px)"); // as in style.css

/** Return the search field of a list, from which the arrow leads into the list that `rows()` returns. */
export const searchBox = (what, draw, rows) => h("input", { type: "search", placeholder: `Search ${what}  ( / )`, "aria-label": `Search ${what}`, "data-search": true, spellcheck: "false", oninput: draw, onkeydown: (event) => event.key === "ArrowDown" && (event.preventDefault(), rows().focus()) });

/**
 * Return { element, set(count, row), refresh, window }. `columns`: { title, cell(row), kind, sort, bare }.
 * `row(index)` may give undefined while that row is not known; `opened(row)` is called on a click or Enter;
 * `moved(first, end)` of another window; `sorted(column)` of a click on a title. Where the window is too narrow for a
 * column, its value, unless it is empty, stands in a line below the row, with its title unless the column is `bare`.
 */
export function list({ label, columns, opened, moved = () => {}, sorted, empty = "Nothing." }) {
  let count = 0, row = () => undefined, first = 0, end = 0, active = -1, order = null, below = [], height = ROW;
  const body = h("div", { class: "rows", role: "rowgroup" });
  const head = h("div", { class: "head", role: "row" });
  const element = h("div", { class: "list", role: "grid", tabindex: "0", "aria-label": label, onscroll: () => window_(), onkeydown: key }, head, body);
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const outer = h("div", { class: "list-outer" }, element, nothing);
  new ResizeObserver(() => window_(fold())).observe(element);

  /** Choose the columns that are shown below the rows. Returns whether they are others than before. */
  function fold() {
    const kinds = NARROW.matches ? /\bwider?\b/ : MEDIUM.matches ? /\bwider\b/ : /^\b$/;
    const folded = columns.filter((each) => kinds.test(each.kind));
    if (folded.length === below.length) return false;
    (below = folded), (height = ROW + LINE * Math.ceil(below.length / IN_A_LINE[NARROW.matches ? "narrow" : "medium"]));
    body.style.height = `${count * height}px`;
    return true;
  }

  function titles() {
    put(head, columns.map((column) => {
      const mark = order?.column === column ? (order.up ? " ↑" : " ↓") : "";
      const title = column.sort ? h("button", { type: "button", class: "plain", onclick: () => sort(column) }, column.title, mark) : column.title;
      return h("div", { role: "columnheader", class: column.kind, "aria-sort": order?.column === column ? (order.up ? "ascending" : "descending") : null }, title);
    }));
  }

  function sort(column) {
    order = { column, up: order?.column === column ? !order.up : true };
    titles();
    sorted(column.sort, order.up);
  }

  function window_(force = false) {
    const from = Math.max(0, Math.floor(element.scrollTop / height) - SPARE);
    const to = Math.min(count, Math.ceil((element.scrollTop + element.clientHeight) / height) + SPARE);
    if (!force && from === first && to === end) return;
    const other = from !== first || to !== end;
    (first = from), (end = to);
    draw();
    if (other) moved(first, end);
  }

  function draw() {
    const shown = [];
    for (let index = first; index < end; index++) shown.push(line(index, row(index)));
    put(body, shown);
    element.setAttribute("aria-activedescendant", active >= first && active < end ? `${element.id}-${active}` : "");
  }

  function line(index, found) {
    const made = h("div", { role: "row", id: `${element.id}-${index}`, class: index === active ? "row active" : "row", "aria-rowindex": index + 2, "aria-selected": index === active ? "true" : null, onclick: (event) => { if (!event.target.closest("button,a")) open(index); } },
      columns.map((column) => !below.includes(column) && h("div", { role: "gridcell", class: column.kind }, found === undefined ? "…" : column.cell(found))),
      below.length > 0 && found !== undefined && h("div", { class: height > ROW + LINE ? "below lines" : "below", role: "gridcell" }, below.map((column) => [column, column.cell(found) ?? ""]).map(([{ kind, bare, title }, value]) => value !== "" && h("span", { class: kind.replace(/wider?|number|time/g, "") }, !bare && h("small", {}, `${title} `), value))));
    made.style.height = `${height}px`;
    made.style.transform = `translateY(${index * height}px)`;
    return made;
  }

  function open(index) {
    active = index;
    const found = row(index);
    if (found !== undefined && opened) opened(found);
    else draw();
  }

  function key(event) {
    const page = Math.max(1, Math.floor(element.clientHeight / height) - 2);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count }[event.key];
    if (event.target !== element) return;
    if (by !== undefined && count) {
      event.preventDefault();
      active = Math.max(0, Math.min(count - 1, active + by));
      const top = active * height;
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top + height + ROW > element.scrollTop + element.clientHeight) element.scrollTop = top + height + ROW - element.clientHeight;
      window_(true);
    } else if (event.key === "Enter" && active >= 0) open(active);
  }

  element.id = `list-${Math.random().toString(36).slice(2, 8)}`;
  titles();
  fold();
  return {
    element: outer,
    /** Show so many rows. */
    set(many, give) {
      (count = many), (row = give);
      body.style.height = `${count * height}px`;
      element.setAttribute("aria-rowcount", count + 1);
      nothing.hidden = count > 0;
      active = Math.min(active, count - 1);
      window_(true);
    },
    /** Show the same rows with other values. */
    refresh: draw,
    window: () => [first, end],
    focus: () => element.focus(),
  };
}
