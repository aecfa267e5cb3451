// Records of a topic: looked at from somewhere, or live; filtered, decoded, paged through, copied as a command, produced.

import { ask as call, curlAuthorization, every, get, isTemporary, may, path, v3 } from "./api.js";
import { ask, field, h, note, pairs, put, select } from "./dom.js";
import { number, plural, quoted } from "./format.js";
import { list } from "./list.js";
import { COLUMNS, DECODERS, partitions, placeOf, showCommands, showRecord, take, text } from "./record.js";
import { download, search as searchTopic } from "./scan.js";

const MOST_KEPT = 2000;
const MOST_PARTITIONS = 50;
const MOST_TURNS = 20;
const TAIL_MS = 700;
const RETRY_MS = 1500;
const MOST_AT_ONCE = 500;
const WIDEST = 1000;
const MOST_WINDOWS = 20;
const CATCHING_UP = 5;
const SHOWN_CHARS = 300;

let brokers = [];

/** The option that names a broker to the command line. */
const server = () => (brokers.length ? `-b ${quoted(`${brokers[0].host}:${brokers[0].port}`)} ` : "");

export function records(root, name, view) {
  const { mine, first, signal } = view;
  if (!may("READ", { ...mine, changes: true }, "topic")) {
    put(root, h("p", {}, "You may not read the records of this topic."));
    return;
  }
  const count = first.partitions;
  get(v3("brokers"), signal).then((found) => (brokers = found.data), () => {});
  let kept = [], shown = [], tail = null, reading = new AbortController(), whole_ = Promise.resolve();
  let next = new Map(), firsts = new Map(), begins = new Map(), behind = 0, unread = [];
  const ends = new Map();
  let written = 0, readUntil = 0; // sums of end offsets: now, and when the page was read
  const from = select([["latest", "the newest"], ["earliest", "the oldest"], ["offset", "an offset"], ["time", "a time"]], { value: "latest", onchange: () => (look(), read()), "aria-label": "From" });
  const offset = h("input", { type: "number", min: 0, value: 0, "aria-label": "Offset", onchange: read });
  const since = h("input", { type: "datetime-local", step: 1, "aria-label": "Time", onchange: read });
  const all = count > 1 ? [["all", count > MOST_PARTITIONS ? `the first ${MOST_PARTITIONS}` : "all"]] : [];
  const partition = select([...all, ...partitions(count)], { value: count > 1 ? "all" : "0", "aria-label": "Partition", onchange: read });
  const most = select([[25, "25"], [100, "100"], [500, "500"]], { value: 100, "aria-label": "Records of each partition", onchange: read });
  const search = h("input", { type: "search", class: "folds", placeholder: "Filter by text  ( / )", "aria-label": "Filter records", "data-search": true, oninput: draw, spellcheck: "false" });
  const key = h("input", { type: "search", class: "folds", placeholder: "Filter by key", "aria-label": "Filter records by key", oninput: draw, spellcheck: "false" });
  const keyAs = select(DECODERS, { value: "auto", "aria-label": "Decode keys as", onchange: read });
  const valueAs = select(DECODERS, { value: "auto", "aria-label": "Decode values as", onchange: read });
  const more = h("button", { type: "button", class: "fold", "aria-expanded": "false", onclick: () => more.setAttribute("aria-expanded", root.classList.toggle("unfolded")) }, "More");
  const live = h("button", { type: "button", "aria-pressed": "false", title: "Go on from what is shown, as records come", onclick: () => (tail ? stop() : follow()) }, "▶ Live");
  const told = h("p", { class: "quiet", role: "status" });
  const rows = list({
    label: `Records of ${name}`,
    empty: "No record.",
    opened: open,
    columns: [
      ...COLUMNS,
      { title: "Headers", kind: "text headers wide", cell: (each) => each.headers.map((one) => `${one.name}=${one.value ? text(one.value) : "∅"}`).join(" ").slice(0, SHOWN_CHARS) },
    ],
  });
  const back = h("button", { type: "button", onclick: () => (whole_ = older()) }, "‹ Older"), on = h("button", { type: "button", onclick: () => (whole_ = newer()) }, "Newer ›");
  const scanning = h("div");
  const using = { name, count, open, decoders: () => ({ decode: valueAs.value, decode_key: keyAs.value }), signal };
  put(root, h("div", { class: "bar" }, h("label", {}, "From ", from), offset, since, h("label", { class: "folds" }, "Partition ", partition), h("label", { class: "folds" }, most, count > 1 ? " of each partition" : " at a time"), live, more, search, key,
    h("button", { type: "button", class: "folds", onclick: () => showCommands(command()) }, "As a command")),
    h("div", { class: "bar" }, back, on, h("label", { class: "folds" }, "Keys as ", keyAs), h("label", { class: "folds" }, "Values as ", valueAs),
      h("button", { type: "button", class: "folds", onclick: () => searchTopic(scanning, using) }, "Search the topic"), h("button", { type: "button", class: "folds", onclick: () => download(using) }, "Download"),
      may("WRITE", mine, "topic") && h("button", { type: "button", class: "primary", onclick: () => produce(name, count, () => tail || read()) }, "Produce")), scanning, rows.element, told);

  function open(record) {
    showRecord(record, { name, commands: commandsOf, key: keyAs.value, value: valueAs.value, sent: () => tail || read() });
  }

  function look() {
    offset.hidden = from.value !== "offset";
    since.hidden = from.value !== "time";
  }

  function draw() {
    const words = search.value.toLowerCase(), ofKey = key.value.toLowerCase();
    shown = words || ofKey ? kept.filter((each) => each.searched.includes(words) && each.searchedKey.includes(ofKey)) : kept;
    rows.set(shown.length, (index) => shown[index]);
    back.disabled = Boolean(tail) || ![...firsts].some(([index, offset_]) => offset_ > (begins.get(index) ?? 0));
    lookOn();
    told.textContent = `${plural(shown.length, "record")}${words || ofKey ? ` of ${number(kept.length)} that were read` : ""}${tail ? ", live" : ""}${tail && behind ? `, ${number(behind)} behind` : ""}. Uncommitted and aborted ones are shown too.${unread.length ? ` Not read: ${unread.slice(0, 3).join("; ")}` : ""}`;
  }

  /** Newer records are there, or were written since. */
  const lookOn = () => (on.disabled = Boolean(tail) || !(written > readUntil || [...next].some(([index, offset_]) => offset_ < ends.get(index))));

  const chosen = () => (partition.value === "all" ? Array.from({ length: Math.min(count, MOST_PARTITIONS) }, (_, index) => index) : [Number(partition.value)]);

  function start() {
    if (from.value === "offset") return offset.value || "0";
    if (from.value === "time" && since.value) return placeOf(since.value);
    return from.value === "latest" ? `-${most.value}` : "earliest";
  }

  /** Read some records of partitions: `starts` has [partition, where]. What finds no room in an answer is asked for again. */
  async function ask_(starts, max, signal_) {
    const found = [], failures = [], passed = [], further = new Map();
    for (let left = starts, turn = 0; left.length && turn < MOST_TURNS; turn++) {
      const query = new URLSearchParams({ start: left.map((each) => each.join(":")).join(","), max_records: max, decode: valueAs.value, decode_key: keyAs.value });
      const answer = await get(`${path("v1", "topics", name, "records")}?${query}`, signal_);
      for (const each of answer.data) {
        found.push(...take(each.partition_id, each));
        passed.push(...each.unreadable.map((one) => `partition ${each.partition_id} at offset ${one.offset}: ${one.reason}`));
        further.set(each.partition_id, each.next_offset);
        begins.set(each.partition_id, each.log_start_offset);
        ends.set(each.partition_id, each.high_watermark);
      }
      failures.push(...answer.failures);
      left = left.filter(([index]) => answer.left.includes(index));
    }
    behind = [...further].reduce((sum, [index, offset_]) => sum + Math.max(0, ends.get(index) - offset_), 0);
    readUntil = ends.size === count ? [...ends.values()].reduce((sum, each) => sum + each, 0) : written;
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
    ends.clear();
    let found, further;
    try {
      ({ found, further } = await ask_(chosen().map((index) => [index, start()]), most.value, mine_.signal));
    } catch (error) {
      if (mine_.signal.aborted || signal.aborted) return;
      told.textContent = error.message;
      if (isTemporary(error)) setTimeout(() => mine_.signal.aborted || signal.aborted || read(), RETRY_MS);
      return;
    }
    if (mine_.signal.aborted || signal.aborted) return;
    show(found, further, (index) => further.get(index));
  }

  /** Show a page of records: `further` has where each partition goes on, `begin(index)` where it began if it has none. */
  function show(found, further, begin) {
    next = further;
    firsts = new Map([...further.keys()].map((index) => [index, found.filter((each) => each.partition === index).reduce((least, each) => Math.min(least, each.offset), begin(index))]));
    kept = sorted(found, from.value === "latest");
    draw();
  }

  /** Do the work of a page, alone: another reading ends it. */
  async function page(work) {
    stop(false);
    reading.abort();
    reading = new AbortController();
    const mine_ = reading.signal;
    told.textContent = "Reading …";
    try {
      await work(mine_);
    } catch (error) {
      if (!mine_.aborted) told.textContent = error.message;
    }
  }

  /** Show the records before the page. Compaction leaves gaps, so further windows of offsets may be read. */
  const older = () => page(async (mine_) => {
    let found = [], window = Number(most.value), low = new Map(firsts);
    for (let turn = 0; !found.length && turn < MOST_WINDOWS; turn++, window = WIDEST) {
      const high = low;
      low = new Map([...high].map(([index, end]) => [index, Math.max(Math.min(begins.get(index) ?? 0, end), end - window)]));
      const spans = [...high].filter(([index, end]) => low.get(index) < end);
      if (!spans.length) break;
      found = await between(spans.map(([index, end]) => [index, low.get(index), end]), window, mine_);
    }
    if (mine_.aborted || signal.aborted) return;
    const before = firsts;
    show(found, new Map(before), (index) => low.get(index));
    for (const [index, begin] of low) firsts.set(index, begin);
    draw();
  });

  /** Read spans of offsets: [partition, begin, end]. */
  async function between(spans, max, mine_) {
    const found = [];
    for (let left = spans, turn = 0; left.length && turn < MOST_TURNS; turn++) {
      const { found: some, further } = await ask_(left.map(([index, begin]) => [index, begin]), max, mine_);
      const ends = new Map(left.map(([index, , end]) => [index, end]));
      found.push(...some.filter((each) => each.offset < ends.get(each.partition)));
      left = left.map(([index, , end]) => [index, further.get(index) ?? end, end]).filter(([, begin, end]) => begin < end);
    }
    return found;
  }

  /** Show the records after the page. */
  const newer = () => page(async (mine_) => {
    const from_ = next;
    const { found, further } = await ask_([...from_], most.value, mine_);
    if (mine_.aborted || signal.aborted) return;
    if (!found.length) {
      note("There are no newer records yet.");
      draw();
    } else show(found, new Map([...from_, ...further]), (index) => from_.get(index));
  });

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

  /** The commands that read one record. */
  const commandsOf = (record) => [
    `curl ${curlAuthorization()}${quoted(`${location.origin}${path("v1", "topics", name, "partitions", record.partition, "records")}?offset=${record.offset}&max_records=1&decode=${valueAs.value}`)}`,
    `raftlog consume ${server()}-t ${quoted(name)} -p ${record.partition} -o ${record.offset} -c 1`,
  ];

  /** The commands that read what the screen reads. */
  function command() {
    const query = new URLSearchParams({ start: chosen().map((index) => `${index}:${start()}`).join(","), max_records: most.value });
    const time_ = since.value ? `s${placeOf(since.value)}` : "beginning";
    const where = { latest: String(-Number(most.value)), earliest: "beginning", offset: String(offset.value || 0), time: time_ }[from.value];
    const one = partition.value === "all" ? "" : `-p ${partition.value} `;
    return [`curl ${curlAuthorization()}${quoted(`${location.origin}${path("v1", "topics", name, "records")}?${query}`)}`, `raftlog consume ${server()}-t ${quoted(name)} ${one}-o ${where} -e`];
  }

  view.measured = (ends_) => {
    written = ends_;
    lookOn();
  };
  look();
  read();
}

const sorted = (found, newest) => found.sort((a, b) => (newest ? -1 : 1) * (a.timestamp - b.timestamp || a.partition - b.partition || a.offset - b.offset));

function produce(name, count, done) {
  const types = [["STRING", "text"], ["JSON", "JSON"], ["BINARY", "base64"]];
  const key = h("input", { name: "key", spellcheck: "false", oninput: () => ["", "STRING"].includes(keyType.value) && (keyType.value = key.value && "STRING") });
  const keyType = select([["", "null"], ...types], { name: "keyType", value: "" });
  ask(`Produce to ${name}`, [
    h("div", { class: "pair" }, field("Partition", h("input", { name: "partition", type: "number", min: 0, max: count - 1, placeholder: "by key" })), field("Key is", keyType), field("Value is", select([...types, ["", "null"]], { name: "valueType", value: "STRING" }))),
    field("Key", key),
    field("Value", h("textarea", { name: "value", rows: 6, spellcheck: "false" })),
    field("Headers", h("textarea", { name: "headers", rows: 2, spellcheck: "false", placeholder: "name: value" }), "one name: value in a line"),
  ], { button: "Produce", send: async (given) => {
    const headers = pairs(given.headers, ":", "Headers").map(([header, value]) => ({ name: header, value: encoded(value) }));
    const parts = [];
    if (given.partition !== "") parts.push(`"partition_id":${Number(given.partition)}`);
    if (given.keyType) parts.push(`"key":${datum(given.keyType, given.key, "Key")}`);
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
