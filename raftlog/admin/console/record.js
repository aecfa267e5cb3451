// One record: its key, value and headers as text or as decoded JSON, with the decoder that was used; sent again, saved.

import { blob, get, path, post, session } from "./api.js";
import { ask, field, h, link, note, put, select } from "./dom.js";
import { bytes, number, plural, time } from "./format.js";

const SHOWN_CHARS = 300;
const WHOLE_CHARS = 200_000;
const MOST_MATCHES = 200;
const MOST_ENTRIES = 1000;
const MOST_OPTIONS = 1000;

export const DECODERS = [["auto", "what fits"], ["registry", "schema registry"], ["json", "JSON"], ["msgpack", "MessagePack"], ["text", "text"], ["hex", "bytes"]];
const KINDS = { AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf" };

/** Return the records of a partition, each with the texts that filters look in. */
export function take(partition, answer) {
  return answer.records.map((each) => ({ ...each, partition, searchedKey: each.key ? text(each.key).toLowerCase() : "", searched: [each.key, each.value, ...each.headers.map((one) => one.value)].map((one) => (one ? text(one) : "")).concat(each.headers.map((one) => one.name)).join("\n").toLowerCase() }));
}

/** Content as text: what is not UTF-8 as hexadecimal bytes. */
export function text(content) {
  if (content.type !== "BINARY") return content.data;
  return [...atob(content.data)].map((each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
}

const isWrong = (content) => Boolean(content.problem || content.schema?.mismatch);

/** The beginning of a content. */
export const brief = (content) => (content === null ? h("i", { class: "quiet" }, "null") : text(content).slice(0, SHOWN_CHARS));

/** The columns of a list of records. */
export const COLUMNS = [
  { title: "Time", kind: "time wide", bare: true, cell: (each) => time(each.timestamp) },
  { title: "Partition", kind: "number", cell: (each) => each.partition },
  { title: "Offset", kind: "number", cell: (each) => number(each.offset) },
  { title: "Key", kind: "text key", cell: (each) => brief(each.key) },
  { title: "Value", kind: "text value", cell: (each) => brief(each.value) },
  { title: "Decoded", kind: "decoded wide", bare: true, cell: (each) => decoded(each.value) },
];

/** The options of a choice of one partition. */
export const partitions = (count) => Array.from({ length: Math.min(count, MOST_OPTIONS) }, (_, index) => [String(index), String(index)]);

/** The time of an input as a place to read from. */
export const placeOf = (input) => `@${new Date(input).getTime()}`;

/** The decoder of a content in a few words. */
export function decoded(content) {
  if (!content) return "";
  const { schema, decoder } = content;
  const by = schema ? `${KINDS[schema.type] ?? schema.type} v${schema.version}` : { json: "JSON", msgpack: "MessagePack", hex: "bytes" }[decoder] ?? decoder;
  return isWrong(content) ? `${by} !` : by;
}

/** What a content was decoded by, its size, and what did not fit. */
function about(content) {
  const { schema, size, problem, is_cut: cut } = content;
  const by = schema ? [KINDS[schema.type] ?? schema.type, " by ", h("b", {}, schema.subject), ` version ${schema.version} (schema ${schema.id})`, schema.message && `, message ${schema.message}`] : [`Shown as ${decoded({ ...content, problem: "" })}`];
  return [h("p", { class: "quiet" }, by, ` · ${bytes(size)}`, cut && ", of which the first are shown: download it for the whole"), problem && h("p", { class: "warn" }, `Not decoded: ${problem}`),
    schema?.mismatch && h("p", { class: "warn" }, `Does not fit its schema: ${schema.mismatch}`), schema?.unchecked && h("p", { class: "quiet" }, `Not all of its schema was checked: ${schema.unchecked}`)];
}

const recordsOf = (name, partition) => path("v1", "topics", name, "partitions", partition, "records");

/** Read one record. `decoders`: of its key and of its value. */
export async function readOne(name, partition, offset, decoders, signal) {
  const none = new Error("There is no record at this offset: it was deleted, or is not written yet.");
  const { records } = await get(`${recordsOf(name, partition)}?${new URLSearchParams({ offset, max_records: 1, ...decoders })}`, signal).catch((error) => {
    throw /OffsetOutOfRange/.test(error.message) ? none : error;
  });
  if (records[0]?.offset !== Number(offset)) throw none;
  return { ...records[0], partition };
}

/** The key, the value and the headers of a record, to be decoded otherwise. `at`: { name, key, value }, as of `showRecord`. */
export function contents(record, at) {
  const host = h("div", { onclick: (event) => event.target.closest("a") && host.closest("dialog")?.close() });
  const key = select(DECODERS, { value: at.key, "aria-label": "Show the key as", onchange: again });
  const value = select(DECODERS, { value: at.value, "aria-label": "Show the value as", onchange: again });
  const saved = (title) => h("button", { type: "button", onclick: () => saveContent(at.name, record, title.toLowerCase()) }, `Download ${title.toLowerCase()}`);
  const part = (title, chooser, content) => [h("h3", { class: "bar" }, title, chooser, content && saved(title)), content === null ? h("p", { class: "quiet" }, "null") : [about(content), body(content)]];
  const fill = (shown) => put(host, h("p", { class: "quiet" }, time(shown.timestamp)), origin(shown), part("Key", key, shown.key), part("Value", value, shown.value),
    shown.headers.length > 0 && [h("h3", {}, "Headers"), h("dl", { class: "pairs" }, shown.headers.map((each) => [h("dt", {}, each.name), h("dd", {}, each.value ? text(each.value) : "null", each.value?.is_cut && h("i", { class: "quiet" }, ` … ${bytes(each.value.size)}`))]))]);

  async function again() {
    try {
      fill(await readOne(at.name, record.partition, record.offset, { decode: value.value, decode_key: key.value }));
    } catch (error) {
      note(error.message, "bad");
    }
  }

  fill(record);
  return host;
}

/** Of a share group's dead letter, the way to the record that was given up. */
function origin(record) {
  const [group, topic, partition, offset] = ["group", "topic", "partition", "offset"].map((name) => record.headers.find((each) => each.name === `__dlq.errors.${name}`)?.value?.data);
  if (!group || !topic || !/^[0-9]+$/.test(partition) || !/^[0-9]+$/.test(offset)) return null;
  return h("p", {}, "A dead letter of ", link(["queues", group, topic, partition, offset], `${topic}, partition ${partition}, offset ${offset}`), ` in the share group ${group}.`);
}

/** Show a record in a dialog. `at`: { name, commands(record), key, value }: the topic, and the decoders in use. */
export function showRecord(record, at) {
  const buttons = session.me.changes && h("p", {}, h("button", { type: "button", onclick: () => (dialog.close(), sendAgain(record, at)) }, "Send again"));
  const dialog = ask(`Record ${number(record.offset)} of partition ${record.partition}`, [contents(record, at), h("h3", {}, "As a command"), commandLines(at.commands(record)), buttons]);
}

/** Write the record again, once the user has said where to. */
function sendAgain(record, { name, sent = () => {} }) {
  ask(`Send record ${number(record.offset)} again`, [
    h("p", {}, `The node writes a new record with the same key, value and headers, and the time of now. Consumers read it once more.`),
    field("To topic", h("input", { name: "topic", value: name, required: true, spellcheck: "false" })),
    field("Partition", h("input", { name: "partition", type: "number", min: 0, placeholder: "by key" })),
  ], { button: "Send again", ready: (given) => given.topic !== "", send: async (given) => {
    const body = { offset: record.offset, topic_name: given.topic, partition_id: given.partition === "" ? null : Number(given.partition) };
    const report = await post(path("v1", "topics", name, "partitions", record.partition, "resend"), body);
    note(`Written to partition ${report.partition_id} of ${given.topic} at offset ${number(report.offset)}.`);
    sent();
  } });
}

async function saveContent(name, record, part) {
  try {
    const query = new URLSearchParams({ offset: record.offset, part });
    save(await blob(`${path("v1", "topics", name, "partitions", record.partition, "content")}?${query}`), `${name}-${record.partition}-${record.offset}.${part}`);
  } catch (error) {
    note(error.message, "bad");
  }
}

/** Have the browser save bytes under a name. */
export function save(content, name) {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export const showCommands = (commands) => ask("As a command", commandLines(commands));

const commandLines = (commands) => commands.map((each) => h("div", { class: "command" }, h("code", {}, each), h("button", { type: "button", onclick: () => copy(each) }, "Copy")));

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
  if (content.type !== "BINARY" && /^\s*[[{]/.test(shown)) {
    try {
      const value = JSON.parse(shown, digits);
      return h("div", { class: "json" }, searched(value), h("details", {}, h("summary", {}, "raw"), beginning(shown)));
    } catch {
      // not JSON after all
    }
  }
  return beginning(shown);
}

/** The beginning of a text, and how much is left out. */
function beginning(shown) {
  const left = shown.length - WHOLE_CHARS;
  return [h("pre", {}, shown.slice(0, WHOLE_CHARS)), left > 0 && h("p", { class: "quiet" }, `and ${plural(left, "more character")}: download it for the whole`)];
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
    folded.append(...entries.slice(0, MOST_ENTRIES).map(([key, each]) => tree(each, key, depth + 1)));
    if (entries.length > MOST_ENTRIES) folded.append(h("p", { class: "quiet" }, `and ${number(entries.length - MOST_ENTRIES)} more: search in the JSON`));
  };
  folded.addEventListener("toggle", make);
  make();
  return folded;
}

