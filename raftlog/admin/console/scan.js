// A topic as a whole: searched with progress, or saved to a file. The node reads it, and says what it passed over.

import { eventLines, path } from "./api.js";
import { ask, field, h, note, put, select } from "./dom.js";
import { bytes, number, plural } from "./format.js";
import { list } from "./list.js";
import { COLUMNS, partitions, placeOf, save, take, text } from "./record.js";

const MOST_AT_ONCE = 1000;
const MOST_REASONS = 5;
const FILE_MAX_BYTES = 256 * 1024 * 1024;
const FORMATS = { jsonl: ["JSON Lines", "application/x-ndjson", line], csv: ["CSV", "text/csv", row] };
const CSV_TITLES = "partition,offset,timestamp,key,value,headers\r\n";

/** One reading of a range: counts what came, and can be stopped. */
class Scan {
  constructor(name, query, signal) {
    this.stopping = new AbortController();
    this.signal = AbortSignal.any([signal, this.stopping.signal]);
    this.where = `${path("v1", "topics", name, "records", "scan")}?${new URLSearchParams(query)}`;
    this.passed = this.total = this.skipped = 0;
    this.at = null;
    this.end = null;
    this.reasons = [];
  }

  stop = () => this.stopping.abort();

  /** Read to the end; `each` gets the records of a piece, `drawn` is called after it. */
  async run(each, drawn) {
    try {
      for await (const events of eventLines(this.where, this.signal)) {
        each(events.filter((one) => one.event === "record"));
        for (const one of events) this.take(one);
        drawn();
      }
    } catch (error) {
      if (!this.signal.aborted) throw error;
    }
  }

  take(one) {
    if (one.event === "progress") Object.assign(this, { passed: one.passed, total: one.total, at: one });
    else if (one.event === "end") Object.assign(this, { end: one, passed: one.passed, total: one.total });
    else if (one.event === "skipped") {
      this.skipped += one.end_offset - one.offset;
      if (this.reasons.length < MOST_REASONS) this.reasons.push(`partition ${one.partition_id} at offset ${one.offset}: ${one.reason}`);
    }
  }

  /** How far it is, in words. */
  describe(found) {
    const far = this.total ? `${number(this.passed)} of ${plural(this.total, "offset")} read (${Math.floor((100 * this.passed) / this.total)} %)` : "no offsets to read";
    const where = this.at && !this.end ? `, partition ${this.at.partition_id} at ${number(this.at.offset)}` : "";
    const how = this.end ? (this.end.error ? `Ended: ${this.end.error.message}. ` : this.end.is_complete ? "Done. " : this.end.resume ? "There may be more. " : "Not all could be read. ") : this.signal.aborted ? "Stopped. " : "";
    return `${how}${found}; ${far}${where}.${this.skipped ? ` Passed over ${plural(this.skipped, "offset")}: ${this.reasons.join("; ")}` : ""}`;
  }
}

const range = (count) => [
  field("Partition", select([["", "all"], ...partitions(count)], { name: "partition", value: "" })),
  h("div", { class: "pair between" }, field("From", h("input", { name: "from", type: "datetime-local", step: 1 }), "empty: the oldest record"),
  field("Until", h("input", { name: "until", type: "datetime-local", step: 1 }), "empty: the newest record"))];

/** The query of a form; what is empty is left out. */
function asked({ partition, from, until, ...given }, more) {
  const at = (value) => (value ? placeOf(value) : "");
  return Object.fromEntries(Object.entries({ partition, start: at(from), end: at(until), ...given, ...more }).filter(([, value]) => value !== ""));
}

/** Open the search of the topic in a card. `using`: { name, count, open(record), decoders(), signal }. */
export function search(host, { name, count, open, decoders, signal }) {
  let scan = null, found = [], texts = {};
  const status = h("p", { class: "quiet", role: "status" }), bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the search", hidden: true });
  const start = h("button", { type: "submit", class: "primary" }, "Search"), stop = h("button", { type: "button", disabled: true, onclick: () => scan?.stop() }, "Stop");
  const further = h("button", { type: "button", hidden: true, onclick: () => begin(scan.end.resume) }, "Continue");
  const rows = list({ label: "Found records", empty: "Nothing was found yet.", opened: open, columns: COLUMNS });
  const input = (label, key) => field(label, h("input", { name: key, maxlength: 200, spellcheck: "false" }));
  const form = h("form", { autocomplete: "off", onsubmit: (event) => (event.preventDefault(), begin()) },
    h("div", { class: "pair" }, input("Anywhere", "text"), input("In the key", "key"), input("In the value", "value"), input("In a header (name=value)", "header")), range(count),
    h("div", { class: "buttons" }, start, stop, further, h("button", { type: "button", onclick: close }, "Close")));
  const shown = h("section", { class: "card", "aria-label": "Search the topic" }, h("h2", {}, "Search the topic"), form, bar, status, rows.element);
  put(host, shown);
  rows.element.hidden = true;
  form.querySelector("input").focus();

  function close() {
    scan?.stop();
    put(host);
  }

  /** Search from the beginning, or go on with the same texts where the last search ended. */
  async function begin(resume = "") {
    scan?.stop();
    if (!resume) (found = []), (texts = Object.fromEntries(new FormData(form)));
    const mine = (scan = new Scan(name, asked(texts, { max_records: MOST_AT_ONCE, resume, ...decoders() }), signal));
    const draw = () => {
      if (mine !== scan) return;
      rows.set(found.length, (index) => found[index]);
      bar.value = mine.total ? mine.passed / mine.total : mine.end ? 1 : 0;
      status.textContent = mine.describe(plural(found.length, "record"));
    };
    rows.element.hidden = bar.hidden = false;
    stop.disabled = false;
    further.hidden = true;
    status.textContent = "Searching …";
    try {
      await mine.run((records) => mine === scan && found.push(...records.flatMap((each) => take(each.partition_id, { records: [each] }))), draw);
      draw();
    } catch (error) {
      if (mine === scan) status.textContent = error.message;
    }
    if (mine !== scan) return;
    stop.disabled = true;
    further.hidden = !mine.end?.resume;
  }
}

/** Ask for a range, and save it as a file. */
export function download({ name, count, decoders, signal }) {
  let scan = null;
  const status = h("p", { class: "quiet", role: "status" });
  const dialog = ask(`Download records of ${name}`, [
    h("div", { class: "pair" }, field("Format", select(Object.entries(FORMATS).map(([key, [title]]) => [key, title]), { name: "format", value: "jsonl" })), field("Records at most", h("input", { name: "max_records", type: "number", min: 1, max: 1_000_000, value: 10_000, required: true }))),
    range(count), h("p", { class: "quiet" }, `Keys and values are decoded as on the screen; up to ${bytes(FILE_MAX_BYTES)}. In CSV, text that a spreadsheet would take for a formula begins with '.`), status,
  ], { button: "Download", send: async ({ format, ...given }) => {
    const [, type, write] = FORMATS[format], parts = format === "csv" ? [CSV_TITLES] : [];
    let size = 0, records = 0;
    scan = new Scan(name, asked(given, decoders()), signal);
    await scan.run((found) => {
      const piece = found.map(write).join("");
      size += piece.length;
      records += found.length;
      parts.push(piece);
      if (size > FILE_MAX_BYTES) scan.stop();
    }, () => (status.textContent = scan.describe(plural(records, "record"))));
    if (!dialog.open) return true;
    status.textContent = scan.describe(plural(records, "record"));
    save(new Blob(parts, { type }), `${name}.${format}`);
    if (scan.end?.is_complete && !scan.skipped) note(`${plural(records, "record")} of ${name} saved.`);
    return Boolean(scan.end?.is_complete && !scan.skipped);
  } });
  dialog.addEventListener("close", () => scan?.stop());
}

/** Content as JSON: decoded as it is, text as text, bytes in base64. */
function json(content) {
  if (content === null) return "null";
  if (content.type === "JSON") return content.data.replace(/[\r\n]+/g, " ");
  return JSON.stringify(content.type === "STRING" ? content.data : { base64: content.data });
}

const notes = (content) => (content?.is_cut ? `,"cut_from_bytes":${content.size}` : "");

function line(each) {
  const headers = each.headers.map(({ name, name_data: data, value }) => `{"name":${JSON.stringify(data ? { base64: data } : name)},"value":${json(value)}}`);
  return `{"partition":${each.partition_id},"offset":${each.offset},"timestamp":${each.timestamp},"key":${json(each.key)},"value":${json(each.value)}${notes(each.value)},"headers":[${headers}]}\n`;
}

const FORMULA = /^[=+\-@\t\r]/, NUMBER = /^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** A cell in quotes: empty text is "", and null has none. What a spreadsheet would take for a formula begins with '. */
const quotedCell = (words) => `"${FORMULA.test(words) && !NUMBER.test(words) ? "'" : ""}${words.replaceAll('"', '""')}"`;

function row(each) {
  const cell = (content) => (content === null ? "" : quotedCell(text(content)));
  const headers = each.headers.map(({ name, value }) => `${name}=${value ? text(value) : ""}`).join("; ");
  return `${each.partition_id},${each.offset},${each.timestamp},${cell(each.key)},${cell(each.value)},${quotedCell(headers)}\r\n`;
}
