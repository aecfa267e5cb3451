// All topics: searched, sorted, measured page by page, and as many as there are.

import { every, get, may, onMetadata, pages, post, v3 } from "./api.js";
import { ask, field, h, link, note, pairs, put } from "./dom.js";
import { bytes, duration, number, plural, RECORDS, short } from "./format.js";
import { list, searchBox } from "./list.js";

const MEASURE_MS = 5000;
const GROUPS_MS = 60000;

export function topics(root, _parts, signal) {
  let all = [], shown = [], order = null, groups = null;
  const measures = new Map();
  const search = searchBox("topics", draw, () => rows);
  const internal = h("input", { type: "checkbox", onchange: draw });
  const count = h("span", { class: "quiet", role: "status" });
  const of = (each, what) => measures.get(each.topic_name)?.[what];
  const readers = (each) => groups && (groups.get(each.topic_name) ?? 0);
  const rows = list({
    label: "Topics",
    empty: "No topic has this name.",
    opened: (each) => (location.hash = `#/topics/${encodeURIComponent(each.topic_name)}`),
    sorted: (by, up) => ((order = { by, up }), draw()),
    columns: [
      { title: "Topic", kind: "name", cell: (each) => link(["topics", each.topic_name], each.topic_name), sort: (each) => each.topic_name },
      { title: "Partitions", kind: "number", cell: (each) => number(each.partitions), sort: (each) => each.partitions },
      { title: "Replicas", kind: "number slim wider", cell: (each) => each.replication_factor, sort: (each) => each.replication_factor },
      { title: "Records", kind: "number wide", cell: (each) => number(of(each, "records")), sort: (each) => of(each, "records") ?? -1 },
      { title: "Size", kind: "number", cell: (each) => bytes(of(each, "size_bytes")), sort: (each) => of(each, "size_bytes") ?? -1 },
      { title: "Rate", kind: "number slim wide", cell: (each) => perSecond(of(each, "rate")), sort: (each) => of(each, "rate") ?? -1 },
      { title: "Cleanup", kind: "wider", cell: (each) => each.cleanup_policy, sort: (each) => each.cleanup_policy },
      { title: "Retention", kind: "wider", cell: retention, sort: (each) => (each.retention_ms === -1 ? Infinity : each.retention_ms ?? -1) },
      { title: "Consumer groups", kind: "number slim wider", cell: (each) => number(readers(each)), sort: readers },
      { title: "State", kind: "state-cell", cell: state, sort: (each) => -(each.leaderless * 1e6 + each.under_replicated) },
    ],
  });

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = all.filter((each) => (internal.checked || !each.is_internal) && words.every((word) => each.topic_name.toLowerCase().includes(word)));
    if (order) {
      const { by, up } = order;
      shown.sort((a, b) => ((by(a) > by(b)) - (by(a) < by(b))) * (up ? 1 : -1));
    }
    count.textContent = plural(shown.length, "topic");
    rows.set(shown.length, (index) => shown[index]);
  }

  /** Keep what a page of topics measured; the rate is since its last measurement. */
  function measured({ at_ms: at, data }) {
    for (const each of data) {
      const last = measures.get(each.topic_name);
      const rate = last && at > last.at ? Math.max(0, ((each.end_offsets - last.end_offsets) * 1000) / (at - last.at)) : undefined;
      measures.set(each.topic_name, { ...each, at, rate });
    }
    draw();
  }

  async function countGroups() {
    const found = new Map();
    await pages("/v1/consumer-groups", { most: 200 }, signal, ({ data }) => {
      for (const group of data) for (const each of group.topics) found.set(each.topic_name, (found.get(each.topic_name) ?? 0) + 1);
    });
    groups = found;
    draw();
  }

  const failed = (error) => error.status > 0 && note(error.message, "bad");
  put(root, h("div", { class: "bar" }, h("h1", {}, "Topics"), search, h("label", { class: "check" }, internal, "internal"), count, may("CREATE") && h("button", { type: "button", class: "primary", onclick: create }, "Create a topic")), rows.element,
    h("p", { class: "quiet" }, `${RECORDS} Size: one replica of each partition. Rate: records written each second between two measurements.`));
  onMetadata(signal, async () => {
    ({ data: all } = await get("/v1/topics", signal));
    const names = new Set(all.map((each) => each.topic_name));
    for (const name of measures.keys()) if (!names.has(name)) measures.delete(name);
    draw();
  }, failed);
  every(MEASURE_MS, signal, () => pages("/v1/topic-measures", {}, signal, measured));
  every(GROUPS_MS, signal, countGroups);
}

const perSecond = (rate) => (rate === undefined ? "–" : `${short(rate)}/s`);

function retention({ retention_ms: ms, retention_bytes: size }) {
  if (ms === null || ms === undefined) return "–";
  const limits = [ms >= 0 && duration(ms), size >= 0 && bytes(size)].filter(Boolean);
  return limits.join(", ") || "unlimited";
}

function state(each) {
  if (each.leaderless) return h("span", { class: "bad" }, `✕ ${number(each.leaderless)}`, h("span", { class: "word" }, " offline"));
  if (each.under_replicated) return h("span", { class: "warn" }, `◐ ${number(each.under_replicated)}`, h("span", { class: "word" }, " under-replicated"));
  return h("span", {}, "●", h("span", { class: "word" }, " in sync"));
}

function create() {
  const whole = (text) => (text === "" ? null : Number(text));
  ask("Create a topic", [
    field("Name", h("input", { name: "name", required: true, maxlength: 249, spellcheck: "false" })),
    h("div", { class: "pair" }, field("Partitions", h("input", { name: "partitions", type: "number", min: 1, placeholder: "default" })), field("Replicas", h("input", { name: "replicas", type: "number", min: 1, placeholder: "default" }))),
    field("Configs", h("textarea", { name: "configs", rows: 3, spellcheck: "false", placeholder: "cleanup.policy=compact" }), "one name=value in a line"),
  ], { button: "Create", ready: (given) => given.name !== "", send: async (given) => {
    const configs = pairs(given.configs, "=", "Configs").map(([config, value]) => ({ name: config, value }));
    await post(v3("topics"), { topic_name: given.name, partitions_count: whole(given.partitions), replication_factor: whole(given.replicas), configs });
    note(`Topic ${given.name} is created.`);
    location.hash = `#/topics/${encodeURIComponent(given.name)}`;
  } });
}
