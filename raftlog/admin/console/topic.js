// One topic: its partitions and replicas as a grid, its records, the groups that read it, its configs.

import { ask as call, every, get, isTemporary, may, onMetadata, pages, path, post, rights, v3 } from "./api.js";
import { configs } from "./configs.js";
import { ask, changes, confirmTyped, failedIn, failure, field, h, link, note, put, table, tabs, trail } from "./dom.js";
import { bytes, number, plural, RECORDS, short } from "./format.js";
import { STATES } from "./groups.js";
import { watchHeld } from "./held.js";
import { list } from "./list.js";
import { records } from "./records.js";

const TABS = [["", "Partitions", partitions], ["records", "Records", records], ["groups", "Groups", readers], ["configs", "Configs", settings]];
export const CELLS = { leader: ["★", "leader"], in_sync: ["●", "in sync"], lagging: ["◐", "lagging"], offline: ["✕", "offline"] };
const MOST_COLUMNS = 12;
const AT_ONCE = 300;
const TOTALS_MS = 5000;
const MOST_GROUPS = 500;
const RETRY_MS = 1500;

export async function topic(root, [name, tab = ""], signal) {
  const found = TABS.find(([each]) => each === tab) ?? TABS[0];
  const actions = h("div", { class: "actions" });
  const body = h("div", { class: "tab" });
  const totals = h("p", { class: "quiet", role: "status" });
  const held = h("section", { class: "card", hidden: true });
  const head = trail(link(["topics"], "Topics")), title = h("h1", { class: "name" }, name);
  const frame = () => put(root, head, h("div", { class: "bar" }, title, actions), totals, held, tabs("Views of the topic", ["topics", name], TABS, found[0]), body, h("p", { class: "quiet" }, RECORDS));
  frame();
  await begin();

  /** Ask what the views need, until the node can answer: it may not know a new topic yet. */
  async function begin() {
    try {
      const [mine, first] = await Promise.all([rights({ topic: name }, signal), get(`${path("v1", "topics", name, "replicas")}?most=1`, signal)]);
      if (signal.aborted) return;
      if (!body.isConnected) frame();
      put(actions, buttons(name, mine, first));
      const shown = { mine, first, signal, measured: () => {} };
      found[2](body, name, shown);
      watchTotals(totals, name, shown);
      if (may("READ", { ...mine, changes: true }, "topic")) watchHeld(held, () => [name], signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status !== 404) put(body, failure(error));
      else if (body.isConnected) put(root, head, title, h("p", { role: "alert" }, "There is no topic with this name. If it was just created, it appears here soon."), h("p", {}, link(["topics"], "Go to all topics")));
      if (isTemporary(error) || error.status === 404) setTimeout(() => signal.aborted || begin(), RETRY_MS);
    }
  }
}

/** Keep a line with the records, size and rate of the whole topic up to date. */
function watchTotals(line, name, shown) {
  const { first, signal } = shown;
  let last = null;
  every(TOTALS_MS, signal, async () => {
    const { at_ms: at, data: [found] } = await get(`/v1/topic-measures?${new URLSearchParams({ topic: name })}`, signal);
    if (!found) return;
    const rate = last && at > last.at ? `${short(Math.max(0, ((found.end_offsets - last.ends) * 1000) / (at - last.at)))} records/s` : null;
    last = { at, ends: found.end_offsets };
    shown.measured(found.end_offsets);
    line.textContent = [plural(found.records, "record"), found.size_bytes !== null && bytes(found.size_bytes), rate, plural(first.partitions, "partition"), found.unknown_partitions && `${plural(found.unknown_partitions, "partition")} without an answer`].filter(Boolean).join(" · ");
  });
}

function buttons(name, mine, first) {
  const can = (operation) => may(operation, mine, "topic");
  return [
    can("ALTER") && h("button", { type: "button", onclick: () => grow(name, first.partitions) }, "Add partitions"),
    can("DELETE") && !first.is_internal && h("button", { type: "button", onclick: () => trim(name, first.partitions) }, "Delete records"),
    can("DELETE") && !first.is_internal && h("button", { type: "button", class: "danger", onclick: () => remove(name) }, "Delete"),
  ];
}

function grow(name, count) {
  ask(`Add partitions to ${name}`, [h("p", {}, `It has ${count}. Partitions cannot be taken away again, and keys may go to others than before.`), field("Partitions altogether", h("input", { name: "count", type: "number", min: count + 1, value: count + 1, required: true }))],
    { button: "Add", ready: (given) => Number(given.count) > count, send: async (given) => {
      await call("PATCH", v3("topics", name), { partitions_count: Number(given.count) });
      note(`${name} has ${given.count} partitions.`);
    } });
}

function trim(name, count) {
  ask(`Delete records of ${name}`, [h("p", {}, "Records below the offset are deleted on all replicas, for good."), h("div", { class: "pair" }, field("Partition", h("input", { name: "partition", type: "number", min: 0, max: count - 1, value: 0, required: true })), field("Delete below offset", h("input", { name: "offset", type: "number", min: -1, required: true }), "-1: up to the high watermark")), field(`Type "${name}" to confirm`, h("input", { name: "typed", spellcheck: "false" }))],
    { button: "Delete records", danger: true, ready: (given) => given.typed === name && given.offset !== "" && given.partition !== "", send: async (given) => {
      const done = await post(path("v1", "topics", name, "partitions", given.partition, "trim"), { before_offset: Number(given.offset) });
      note(`Partition ${given.partition} begins at offset ${number(done.log_start_offset)} now.`);
    } });
}

function remove(name) {
  confirmTyped("Delete the topic", name, "The topic and all its records go, on all brokers, for good.", async () => {
    await call("DELETE", v3("topics", name));
    note(`Topic ${name} is deleted.`);
    location.hash = "#/topics";
  });
}

// --- partitions

function partitions(root, name, { first: { partitions: count }, signal }) {
  const rows = new Map();
  let many = count, columns = "";
  const summary = h("p", { class: "quiet", role: "status" });
  const host = h("div");
  let grid;
  put(root, h("p", { class: "key-of-cells" }, Object.entries(CELLS).map(([kind, [mark, text]]) => h("span", { class: `cell ${kind}` }, h("b", {}, mark), text))), host, summary);

  async function load(measure) {
    const [first, end] = grid?.window() ?? [0, 0];
    const most = Math.max(1, Math.min(AT_ONCE, end - first || 60));
    const found = await get(`${path("v1", "topics", name, "replicas")}?first=${first}&most=${most}&measure=${measure}`, signal);
    many = found.partitions;
    for (const each of found.data) rows.set(each.partition_id, measure ? each : measured(each, rows.get(each.partition_id)));
    show(found.data);
  }

  function show(sample) {
    const brokers = [...new Set([...rows.values()].flatMap((each) => each.replicas.map((one) => one.broker_id)))].sort((a, b) => a - b);
    const wanted = brokers.length <= MOST_COLUMNS ? brokers.join() : "many";
    if (wanted !== columns || !grid) {
      columns = wanted;
      grid = list({ label: `Partitions of ${name}`, columns: gridColumns(brokers), opened: (each) => (location.hash = `#/why/${encodeURIComponent(name)}/${each.partition_id}`), moved: () => load(false).catch(() => {}) });
      put(host, grid.element);
    }
    grid.set(many, (index) => rows.get(index));
    const bad = sample.filter((each) => each.leader_id === null).length;
    const thin = sample.filter((each) => each.replicas.some((one) => one.state === "lagging" || one.state === "offline")).length;
    summary.textContent = `${plural(many, "partition")}${many > sample.length ? `, of the ${sample.length} in view` : ""}: ${bad} offline, ${thin} with a replica that is not in sync. A click, or Enter, opens the history of a partition.`;
  }

  const failed = (error) => error.status === 404 && put(root, failure(error));
  onMetadata(signal, () => load(false), failed);
  every(3000, signal, () => load(true), failed);
}

/** Return a row with the measures of the one before: other metadata has none. */
function measured(row, before) {
  if (!before) return row;
  const old = new Map(before.replicas.map((each) => [each.broker_id, each]));
  const replicas = row.replicas.map((each) => ({ ...each, size_bytes: old.get(each.broker_id)?.size_bytes ?? null, lag: old.get(each.broker_id)?.lag ?? null }));
  return { ...row, replicas, beginning_offset: before.beginning_offset, next_offset: before.next_offset };
}

function gridColumns(brokers) {
  const size = (each) => each.replicas.find((one) => one.broker_id === each.leader_id)?.size_bytes;
  const shared = [
    { title: "Partition", kind: "number first", cell: (each) => [String(each.partition_id), each.reassigning && h("span", { title: "is being reassigned" }, " ⇄")] },
  ];
  const measures = [
    { title: "Epoch", kind: "number wide", cell: (each) => each.leader_epoch },
    { title: "First offset", kind: "number wide", cell: (each) => number(each.beginning_offset) },
    { title: "End offset", kind: "number", cell: (each) => number(each.next_offset) },
    { title: "Size", kind: "number wide", cell: (each) => bytes(size(each)) },
  ];
  if (brokers.length > MOST_COLUMNS) return [...shared, { title: "Replicas", kind: "name", cell: (each) => each.replicas.map((one) => cell(one, true)) }, ...measures];
  return [...shared, ...brokers.map((id) => ({ title: [h("span", { class: "wide" }, "Broker "), String(id)], kind: "replica", cell: (each) => {
    const one = each.replicas.find((replica) => replica.broker_id === id);
    return one ? cell(one) : "";
  } })), ...measures];
}

export function cell(replica, named = false) {
  const [mark, text] = CELLS[replica.state];
  const behind = replica.state === "lagging" && replica.lag ? ` −${number(replica.lag)}` : "";
  return h("span", { class: `cell ${replica.state}`, title: `broker ${replica.broker_id}: ${text}${behind}, ${bytes(replica.size_bytes)}` }, h("b", {}, mark), named ? `${replica.broker_id} ` : "", h("span", { class: "word" }, text + behind));
}

// --- groups

function readers(root, name, { signal }) {
  const host = h("div");
  put(root, host);
  const show = changes((found) => put(host, table("Groups", [
    ["Group", (each) => link(["groups", each.consumer_group_id], each.consumer_group_id), "names"],
    ["State", (each) => STATES[each.state] ?? each.state],
    ["Members", (each) => number(each.members), "number wide"],
    ["Assigned", (each) => number(each.topics[0].assigned_partitions), "number wide"],
    ["Committed", (each) => number(each.topics[0].committed_partitions), "number wide"],
    ["Lag", (each) => h("b", {}, number(each.topics[0].lag)), "number"],
  ], found.slice(0, MOST_GROUPS), "No consumer group reads this topic or has offsets of it."),
  h("p", { class: "quiet" }, found.length > MOST_GROUPS ? `The first ${MOST_GROUPS} of ${number(found.length)} groups are shown.` : "Assigned, Committed: partitions that members read, and partitions with a committed offset. Lag is over this topic alone.")));
  every(TOTALS_MS, signal, async () => {
    const found = [];
    await pages("/v1/consumer-groups", { topic: name, most: 200 }, signal, ({ data }) => found.push(...data));
    show(found);
  }, failedIn(host));
}

// --- configs

function settings(root, name, { mine, signal }) {
  configs(root, { at: ["topics", name], own: "DYNAMIC_TOPIC_CONFIG", alters: may("ALTER_CONFIGS", mine, "topic"), signal });
}
