// Elements made of values. Text always becomes a text node: nothing here, or anywhere else, makes HTML of a string.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element. `props`: attributes, `on…` listeners, and a few properties; children may be lists or null. */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/** Return an element of SVG. */
export function svg(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "open", "htmlFor"]);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
}

/** Put other children into an element. */
export function put(element, ...children) {
  element.replaceChildren(...flat(children));
}

/** Return a function that renders a value only if it is another one than the last: focus and selection stay. */
export function changes(render) {
  let last;
  return (value) => {
    const text = JSON.stringify(value);
    if (text === last) return;
    last = text;
    render(value);
  };
}

/** Return a labelled field of a form. */
export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

/** Return [name, value] of each line of a field of a form. */
export function pairs(lines, separator, title) {
  return lines.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(separator);
    if (at < 1) throw new Error(`${title}: ${line} is not name${separator}value.`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

/** Return a <select> of [value, text] pairs or plain values. */
export function select(options, props) {
  const chosen = props?.value;
  const pairs = options.map((each) => (Array.isArray(each) ? each : [each, String(each)]));
  const { value: _, ...rest } = props ?? {};
  return h("select", rest, pairs.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

const whole = new Set(); // labels of tables that show all columns, however narrow the window is

/** Return a table for a few rows: columns are [title, cell(row), class]. A button shows the columns that a window hides. */
export function table(label, columns, rows, empty = "Nothing.") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const hides = ["widest", "wider", "wide"].find((each) => columns.some(([, , kind]) => kind?.split(" ").includes(each)));
  const all = h("button", { type: "button", class: `all-${hides}`, onclick: () => (whole.delete(label) || whole.add(label), look()) });
  const outer = h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => (title ? h("th", { scope: "col", class: kind }, title) : h("td", { class: kind }))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row))))))));
  function look() {
    outer.classList.toggle("whole", whole.has(label));
    whole.has(label) ? outer.setAttribute("tabindex", 0) : outer.removeAttribute("tabindex");
    all.textContent = whole.has(label) ? "Fewer columns" : `All ${columns.filter(([title]) => title).length} columns`;
  }
  look();
  return hides ? [outer, all] : outer;
}

/** Return a dotted or underscored name that may break after its dots and underscores only. */
export const dotted = (name) => name.split(/(?<=[._])/).flatMap((part, index) => (index ? [h("wbr"), part] : [part]));

/** Return a link to a screen of the console; the parts are names as they are. */
export function link(parts, ...children) {
  return h("a", { href: `#/${parts.map((each) => encodeURIComponent(each)).join("/")}` }, ...children);
}

/** Return the links to the screens above a screen, with slashes between them. */
export const trail = (...links) => h("nav", { class: "path", "aria-label": "Path" }, links.filter(Boolean).map((each, index) => [index > 0 && " / ", each]));

/** Return links to the views of a screen; `titles` has [view, title], and "" is the view of the screen itself. */
export function tabs(label, at, titles, chosen) {
  return h("nav", { class: "tabs", "aria-label": label }, titles.map(([each, title]) => {
    const one = link(each ? [...at, each] : at, title);
    if (each === chosen) one.setAttribute("aria-current", "page");
    return one;
  }));
}

export const failure = (error) => h("p", { class: "failure", role: "alert" }, error.message);

/** Return what shows an answer's error in an element; without an answer, the page's head says so. */
export const failedIn = (element) => (error) => error.status > 0 && put(element, failure(error));

/** Show a message for some seconds. */
export function note(message, kind = "good") {
  const shown = h("div", { class: `note ${kind}` }, message);
  document.getElementById("notes").append(shown);
  setTimeout(() => shown.remove(), kind === "bad" ? 12000 : 5000);
}

/** Open a dialog with a form. `send` gets the form's values; while it fails, the dialog stays and says why. */
export function ask(title, content, { button = "OK", danger = false, send, ready = () => true } = {}) {
  const failed = h("p", { class: "failure", role: "alert" });
  const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, button);
  const form = h("form", { autocomplete: "off" }, h("h2", { id: "dialog-title" }, title), content, failed,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, send ? "Cancel" : "Close"), send && submit));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, form);
  const look = () => (submit.disabled = !ready(values(form)));
  form.addEventListener("input", look);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!send || submit.disabled) return;
    submit.disabled = true;
    failed.textContent = "";
    try {
      if ((await send(values(form))) !== false) dialog.close();
    } catch (error) {
      failed.textContent = error.message;
    }
    look();
  });
  document.body.append(dialog);
  look();
  dialog.showModal();
  form.querySelector("input,select,textarea")?.focus();
  return dialog;
}

function values(form) {
  const found = Object.fromEntries(new FormData(form));
  for (const box of form.querySelectorAll("input[type=checkbox][name]")) found[box.name] = box.checked;
  return found;
}

/** Ask for a name to be typed before something is lost. */
export function confirmTyped(title, name, text, send) {
  return ask(title, [h("p", {}, text), field(`Type "${name}" to confirm`, h("input", { name: "typed", spellcheck: "false" }))],
    { button: title, danger: true, send, ready: (given) => given.typed === name });
}
