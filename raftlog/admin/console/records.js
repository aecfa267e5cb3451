// Records of a topic: looked at from somewhere, or live; searched, shown whole, copied as a command, produced.

import { ask as call, curlAuthorization, every, get, may, path, v3 } from "./api.js";
import { ask, field, h, note, put, select } from "./dom.js";
import { bytes, number, plural, quoted, time } from "./format.js";
import { list } from "./list.js";

const MOST_KEPT = 2000;
const MOST_PARTITIONS = 50;
const MOST_TURNS = 20;
const TAIL_MS = 700;
const MOST_AT_ONCE = 500;
const CATCHING_UP = 5;
const SHOWN_CHARS = 300;
const WHOLE_CHARS = 200_000;
const MOST_MATCHES = 200;

let brokers = [];

/** The option that names a broker to the command line. */
const server = () => (brokers.length ? `-b ${quoted(`${brokers[0].host}:${brokers[0].port}`)} ` : "");

export function records(root, name, { mine, first, signal }) {
  if (!may("READ", { ...mine, changes: true }, "topic")) {
    put(root, h("p", {}, "You may not read the records of this topic."));
    return;
  }
  const count = first.partitions;
  get(v3("brokers"), signal).then((found) => (brokers = found.data), () => {});
  let kept = [], shown = [], tail = null, reading = new AbortController(), whole_ = Promise.resolve();
  let next = new Map(), behind = 0, unread = [];
  const from = select([["latest", "the newest"], ["earliest", "the oldest"], ["offset", "an offset"], ["time", "a time"]], { value: "latest", onchange: () => (look(), read()), "aria-label": "From" });
  const offset = h("input", { type: "number", min: 0, value: 0, "aria-label": "Offset", onchange: read });
  const since = h("input", { type: "datetime-local", step: 1, "aria-label": "Time", onchange: read });
  const all = count > 1 ? [["all", count > MOST_PARTITIONS ? `the first ${MOST_PARTITIONS}` : "all"]] : [];
  const partition = select([...all, ...Array.from({ length: Math.min(count, 1000) }, (_, index) => [String(index), String(index)])], { value: count > 1 ? "all" : "0", "aria-label": "Partition", onchange: read });
  const most = select([[25, "25"], [100, "100"], [500, "500"]], { value: 100, "aria-label": "Records of each partition", onchange: read });
  const search = h("input", { type: "search", placeholder: "Filter by text  ( / )", "aria-label": "Filter records", "data-search": true, oninput: draw, spellcheck: "false" });
  const key = h("input", { type: "search", placeholder: "Filter by key", "aria-label": "Filter records by key", oninput: draw, spellcheck: "false" });
  const live = h("button", { type: "button", "aria-pressed": "false", title: "Go on from what is shown, as records come", onclick: () => (tail ? stop() : follow()) }, "▶ Live");
  const told = h("p", { class: "quiet", role: "status" });
  const rows = list({
    label: `Records of ${name}`,
    empty: "No record.",
    opened: (record) => whole(name, record),
    columns: [
      { title: "Time", kind: "time wide", cell: (each) => time(each.timestamp) },
      { title: "Partition", kind: "number", cell: (each) => each.partition },
      { title: "Offset", kind: "number", cell: (each) => number(each.offset) },
      { title: "Key", kind: "text key", cell: (each) => brief(each.key) },
      { title: "Value", kind: "text value", cell: (each) => brief(each.value) },
      { title: "Headers", kind: "text headers wide", cell: (each) => each.headers.map((one) => `${one.name}=${one.value ? text(one.value) : "∅"}`).join(" ").slice(0, SHOWN_CHARS) },
    ],
  });
  put(root, h("div", { class: "bar" }, h("label", {}, "From ", from), offset, since, h("label", {}, "Partition ", partition), h("label", {}, "Each ", most), live, search, key,
    h("button", { type: "button", onclick: () => whole(name, null, command()) }, "As a command"),
    may("WRITE", mine, "topic") && h("button", { type: "button", class: "primary", onclick: () => produce(name, count, () => tail || read()) }, "Produce")), rows.element, told);

  function look() {
    offset.hidden = from.value !== "offset";
    since.hidden = from.value !== "time";
  }

  function draw() {
    const words = search.value.toLowerCase(), ofKey = key.value.toLowerCase();
    shown = words || ofKey ? kept.filter((each) => each.searched.includes(words) && each.searchedKey.includes(ofKey)) : kept;
    rows.set(shown.length, (index) => shown[index]);
    told.textContent = `${plural(shown.length, "record")}${words || ofKey ? ` of ${number(kept.length)} that were read` : ""}${tail ? ", live" : ""}${tail && behind ? `, ${number(behind)} behind` : ""}. Uncommitted and aborted ones are shown too.${unread.length ? ` Not read: ${unread.slice(0, 3).join("; ")}` : ""}`;
  }

  const chosen = () => (partition.value === "all" ? Array.from({ length: Math.min(count, MOST_PARTITIONS) }, (_, index) => index) : [Number(partition.value)]);

  function start() {
    if (from.value === "offset") return offset.value || "0";
    if (from.value === "time" && since.value) return `@${new Date(since.value).getTime()}`;
    return from.value === "latest" ? `-${most.value}` : "earliest";
  }

  /** Read some records of partitions: `starts` has [partition, where]. What finds no room in an answer is asked for again. */
  async function ask_(starts, max, signal_) {
    const found = [], failures = [], passed = [], further = new Map(), ends = new Map();
    for (let left = starts, turn = 0; left.length && turn < MOST_TURNS; turn++) {
      const query = new URLSearchParams({ start: left.map((each) => each.join(":")).join(","), max_records: max });
      const answer = await get(`${path("v1", "topics", name, "records")}?${query}`, signal_);
      for (const each of answer.data) {
        found.push(...take(each.partition_id, each));
        passed.push(...each.unreadable.map((one) => `partition ${each.partition_id} at offset ${one.offset}: ${one.reason}`));
        further.set(each.partition_id, each.next_offset);
        ends.set(each.partition_id, each.high_watermark);
      }
      failures.push(...answer.failures);
      left = left.filter(([index]) => answer.left.includes(index));
    }
    behind = [...further].reduce((sum, [index, offset_]) => sum + Math.max(0, ends.get(index) - offset_), 0);
    unread = [...failures.map((each) => `partition ${each.partition_id}: ${each.error.message}`), ...passed];
    return { found, failures, further };
  }

  function read() {
    whole_ = readOnce();
  }

  async function readOnce() {
    stop(false);
    reading.abort();
    reading = new AbortController();
    const mine_ = reading;
    told.textContent = "Reading …";
    next = new Map();
    let found, further;
    try {
      ({ found, further } = await ask_(chosen().map((index) => [index, start()]), most.value, mine_.signal));
    } catch (error) {
      if (!mine_.signal.aborted) told.textContent = error.message;
      return;
    }
    if (mine_.signal.aborted || signal.aborted) return;
    next = further;
    kept = sorted(found, from.value === "latest");
    draw();
  }

  function stop(drawn = true) {
    tail?.abort();
    tail = null;
    live.textContent = "▶ Live";
    live.setAttribute("aria-pressed", "false");
    if (drawn) draw();
  }

  /** Go on where what is shown ends: from the newest records, or from the offset or the time that was chosen. */
  function follow() {
    tail = new AbortController();
    signal.addEventListener("abort", () => tail?.abort());
    live.textContent = "■ Stop";
    live.setAttribute("aria-pressed", "true");
    const mine_ = tail.signal;
    every(TAIL_MS, mine_, async () => {
      await whole_;
      for (let turn = 0; turn === 0 || (behind && turn < CATCHING_UP); turn++) {
        const { found, failures, further } = await ask_(chosen().map((index) => [index, next.get(index) ?? start()]), MOST_AT_ONCE, mine_);
        if (mine_.aborted) return;
        for (const [index, offset_] of further) next.set(index, offset_);
        for (const each of failures) if (each.error.error_code === 404 && next.has(each.partition_id)) next.set(each.partition_id, "earliest"); // it was trimmed
        kept = [...sorted(found, true), ...(turn ? kept : sorted(kept, true))].slice(0, MOST_KEPT);
        draw();
      }
    }, (error) => error.status > 0 && (told.textContent = error.message));
    draw();
  }

  /** The commands that read what the screen reads. */
  function command() {
    const query = new URLSearchParams({ start: chosen().map((index) => `${index}:${start()}`).join(","), max_records: most.value });
    const time_ = since.value ? `s@${new Date(since.value).getTime()}` : "beginning";
    const where = { latest: String(-Number(most.value)), earliest: "beginning", offset: String(offset.value || 0), time: time_ }[from.value];
    const one = partition.value === "all" ? "" : `-p ${partition.value} `;
    return [`curl ${curlAuthorization()}${quoted(`${location.origin}${path("v1", "topics", name, "records")}?${query}`)}`, `raftlog consume ${server()}-t ${quoted(name)} ${one}-o ${where} -e`];
  }

  look();
  read();
}

const sorted = (found, newest) => found.sort((a, b) => (newest ? -1 : 1) * (a.timestamp - b.timestamp || a.partition - b.partition || a.offset - b.offset));

function take(partition, answer) {
  return answer.records.map((each) => ({ ...each, partition, searchedKey: each.key ? text(each.key).toLowerCase() : "", searched: [each.key, each.value, ...each.headers.map((one) => one.value)].map((one) => (one ? text(one) : "")).concat(each.headers.map((one) => one.name)).join("\n").toLowerCase() }));
}

/** Content as text: what is no UTF-8 as hexadecimal bytes. */
function text(content) {
  if (content.type === "STRING") return content.data;
  return [...atob(content.data)].map((each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
}

const brief = (content) => (content === null ? h("i", { class: "quiet" }, "null") : text(content).slice(0, SHOWN_CHARS));

function whole(name, record, commands) {
  const given = commands ?? [
    `curl ${curlAuthorization()}${quoted(`${location.origin}${path("v1", "topics", name, "partitions", record.partition, "records")}?offset=${record.offset}&max_records=1`)}`,
    `raftlog consume ${server()}-t ${quoted(name)} -p ${record.partition} -o ${record.offset} -c 1`,
  ];
  const part = (title, content) => [h("h3", {}, title), content === null ? h("p", { class: "quiet" }, "null") : body(content)];
  ask(record ? `Record ${number(record.offset)} of partition ${record.partition}` : "As a command", [
    record && [h("p", { class: "quiet" }, time(record.timestamp)), part("Key", record.key), part("Value", record.value),
      record.headers.length > 0 && [h("h3", {}, "Headers"), h("dl", { class: "pairs" }, record.headers.map((each) => [h("dt", {}, each.name), h("dd", {}, each.value ? text(each.value) : "null")]))], h("h3", {}, "As a command")],
    given.map((each) => h("div", { class: "command" }, h("code", {}, each), h("button", { type: "button", onclick: () => copy(each) }, "Copy"))),
  ]);
}

async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    note("Copied.");
  } catch {
    note("The browser does not let a page copy here; mark the line and copy it.", "bad");
  }
}

function body(content) {
  const shown = text(content);
  if (content.type === "STRING" && /^\s*[[{]/.test(shown)) {
    try {
      const value = JSON.parse(shown, digits);
      return h("div", { class: "json" }, searched(value), h("details", {}, h("summary", {}, "raw"), h("pre", {}, shown.slice(0, WHOLE_CHARS))));
    } catch {
      // not JSON after all
    }
  }
  return [h("pre", {}, shown.slice(0, WHOLE_CHARS)), h("p", { class: "quiet" }, content.type === "STRING" ? plural(shown.length, "character") : `${bytes(Math.ceil((shown.length + 1) / 3))}, not UTF-8, shown as hex`)];
}

/** A number as it is written, where JavaScript would round it. */
class Digits {
  constructor(source) {
    this.source = source;
  }
}

const digits = (_key, value, context) => (typeof value === "number" && context?.source && String(value) !== context.source ? new Digits(context.source) : value);

/** A tree with a search, which shows the fields whose path or value has the words, wherever they are folded. */
function searched(value) {
  if (value === null || typeof value !== "object" || value instanceof Digits) return tree(value);
  const whole = tree(value), found = h("div", { role: "status" });
  const look = (event) => {
    const words = event.target.value.toLowerCase();
    const fields = words ? matches(value, words) : [];
    whole.hidden = words !== "";
    put(found, words && [h("p", { class: "quiet" }, plural(fields.length, "field"), fields.length === MOST_MATCHES && ", perhaps more"),
      fields.map(([at, leaf]) => h("div", { class: "leaf" }, h("span", { class: "name" }, `${at}: `), scalar(leaf)))]);
  };
  return [h("input", { type: "search", placeholder: "Search in the JSON", "aria-label": "Search in the JSON", oninput: look, spellcheck: "false" }), found, whole];
}

function matches(value, words) {
  const found = [], left = [["", value]];
  while (left.length && found.length < MOST_MATCHES) {
    const [at, each] = left.pop();
    if (each !== null && typeof each === "object" && !(each instanceof Digits)) {
      const inside = Object.entries(each).map(([name, one]) => [Array.isArray(each) ? `${at}[${name}]` : at ? `${at}.${name}` : name, one]);
      for (const one of inside.reverse()) left.push(one);
    } else if (`${at}: ${each instanceof Digits ? each.source : each}`.toLowerCase().includes(words)) found.push([at, each]);
  }
  return found;
}

function scalar(value) {
  if (value instanceof Digits) return h("span", { class: "json-number" }, value.source);
  return h("span", { class: `json-${value === null ? "null" : typeof value}` }, JSON.stringify(value));
}

function tree(value, name, depth = 0) {
  const label = name === undefined ? null : h("span", { class: "name" }, `${name}: `);
  if (value === null || typeof value !== "object" || value instanceof Digits) return h("div", { class: "leaf" }, label, scalar(value));
  const entries = Object.entries(value);
  const kind = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const folded = h("details", { open: depth < 2 && entries.length <= 50 }, h("summary", {}, label, kind));
  let made = false;
  const make = () => {
    if (made || !folded.open) return;
    made = true;
    folded.append(...entries.slice(0, 1000).map(([key, each]) => tree(each, key, depth + 1)));
  };
  folded.addEventListener("toggle", make);
  make();
  return folded;
}

function produce(name, count, done) {
  const types = () => [["STRING", "text"], ["JSON", "JSON"], ["BINARY", "base64"]];
  ask(`Produce to ${name}`, [
    h("div", { class: "pair" }, field("Partition", h("input", { name: "partition", type: "number", min: 0, max: count - 1, placeholder: "by key" })), field("Key is", select([["", "null"], ...types()], { name: "keyType", value: "" })), field("Value is", select([...types(), ["", "null"]], { name: "valueType", value: "STRING" }))),
    field("Key", h("input", { name: "key", spellcheck: "false" })),
    field("Value", h("textarea", { name: "value", rows: 6, spellcheck: "false" })),
    field("Headers", h("textarea", { name: "headers", rows: 2, spellcheck: "false", placeholder: "name: value" }), "one name: value in a line"),
  ], { button: "Produce", send: async (given) => {
    const headers = given.headers.split("\n").filter((line) => line.trim()).map((line) => {
      const at_ = line.indexOf(":");
      if (at_ < 0) throw new Error(`Headers: ${line} is not name: value.`);
      return { name: line.slice(0, at_).trim(), value: encoded(line.slice(at_ + 1).trim()) };
    });
    const parts = [];
    if (given.partition !== "") parts.push(`"partition_id":${Number(given.partition)}`);
    const key = given.keyType || (given.key ? "STRING" : "");
    if (key) parts.push(`"key":${datum(key, given.key, "Key")}`);
    if (given.valueType) parts.push(`"value":${datum(given.valueType, given.value, "Value")}`);
    parts.push(`"headers":${JSON.stringify(headers)}`);
    const report = await call("POST", v3("topics", name, "records"), `{${parts.join(",")}}`);
    if (report.error_code !== 200) throw new Error(report.message);
    note(`Written to partition ${report.partition_id} at offset ${number(report.offset)}.`);
    done();
  } });
}

function encoded(words) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(words)));
}

/** JSON goes as it is written: numbers keep their digits. */
function datum(type, words, what) {
  if (type !== "JSON") return JSON.stringify({ type, data: words });
  try {
    JSON.parse(words);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  return `{"type":"JSON","data":${words}}`;
}
