// Consumer groups: who reads what, how far behind, and setting their offsets anew.

import { ask as call, every, get, may, pages, path, post, rights, v3 } from "./api.js";
import { spark } from "./chart.js";
import { ask, changes, confirmTyped, failure, field, h, link, note, put, select, table, trail } from "./dom.js";
import { number, plural } from "./format.js";
import { watchHeld } from "./held.js";
import { list, searchBox } from "./list.js";
import { story, storyOf, whyOfGroup } from "./why.js";

export const STATES = { STABLE: "● stable", EMPTY: "○ empty", DEAD: "✕ dead", PREPARING_REBALANCE: "↻ rebalancing", COMPLETING_REBALANCE: "↻ rebalancing", ASSIGNING: "↻ assigning", RECONCILING: "↻ reconciling" };
const WAYS = { earliest: "the beginning", latest: "the end", timestamp: "a time", offset: "an offset", shift: "further or back by" };
const COURSE = 100;
const MOST_LAGS = 500;
const MOST_EVENTS = 6;
const MOST_ASKED = 20;
const ASSIGNMENTS_MS = 10_000;
const AWAITED = new Set(["PREPARING_REBALANCE", "COMPLETING_REBALANCE"]);

export function groups(root, [id], signal) {
  if (id !== undefined) return group(root, id, signal);
  let shown = [], order = null;
  const all = new Map();
  const search = searchBox("groups", draw, () => rows);
  const count = h("span", { class: "quiet", role: "status" });
  const rows = list({
    label: "Consumer groups",
    empty: "No group.",
    opened: (each) => (location.hash = `#/groups/${encodeURIComponent(each.consumer_group_id)}`),
    sorted: (by, up) => ((order = { by, up }), draw()),
    columns: [
      { title: "Group", kind: "name", cell: (each) => link(["groups", each.consumer_group_id], each.consumer_group_id), sort: (each) => each.consumer_group_id },
      { title: "State", kind: "state-cell", cell: (each) => STATES[each.state] ?? each.state, sort: (each) => each.state },
      { title: "Members", kind: "number wide", cell: (each) => number(each.members), sort: (each) => each.members },
      { title: "Topics", kind: "name wide", cell: (each) => (each.topics.length ? `${number(each.topics.length)}: ${each.topics.slice(0, 4).map((one) => one.topic_name).join(", ")}${each.topics.length > 4 ? " …" : ""}` : "none"), sort: (each) => each.topics.length },
      { title: "Assignor", kind: "text wider", cell: (each) => each.partition_assignor },
      { title: "Coordinator", kind: "number wider", cell: (each) => each.coordinator_id },
      { title: "Lag", kind: "number", cell: (each) => number(each.lag), sort: (each) => each.lag ?? -1 },
    ],
  });
  put(root, h("div", { class: "bar" }, h("h1", {}, "Groups"), search, count), rows.element);

  function draw() {
    const word = search.value.toLowerCase();
    const { by, up } = order ?? { by: (each) => each.consumer_group_id, up: true };
    shown = [...all.values()].filter((each) => each.consumer_group_id.toLowerCase().includes(word));
    shown.sort((a, b) => ((by(a) > by(b)) - (by(a) < by(b))) * (up ? 1 : -1));
    count.textContent = plural(shown.length, "group");
    rows.set(shown.length, (index) => shown[index]);
  }

  every(3000, signal, async () => {
    const seen = new Set();
    await pages("/v1/consumer-groups", {}, signal, ({ data }) => {
      for (const each of data) seen.add(each.consumer_group_id), all.set(each.consumer_group_id, each);
      draw();
    });
    for (const each of [...all.keys()]) if (!seen.has(each)) all.delete(each);
    draw();
  }, (error) => error.status > 0 && (count.textContent = error.message));
}

async function group(root, id, signal) {
  const actions = h("div", { class: "actions" });
  const facts = h("p", { class: "quiet", role: "status" });
  const members = h("section", { class: "card" });
  const behind = h("section", { class: "card" });
  const held = h("section", { class: "card" });
  const byTopic = h("section", { class: "card" });
  let topics = [];
  const came = h("section", { class: "card" });
  const course = new Map();
  put(root, trail(link(["groups"], "Groups")), h("div", { class: "bar" }, h("h1", { class: "name" }, id), actions), facts, held, members, byTopic, behind, came);
  let known = { of: "", at: 0, reads: new Map() };

  /** What members read: as they are assigned, or of those beyond the first few as far as it has offsets. */
  async function readers(state, members, lags) {
    const of = JSON.stringify([state, members.map((each) => each.consumer_id), lags.length]);
    if (of === known.of && Date.now() - known.at < ASSIGNMENTS_MS) return known.reads;
    const reads = grouped(lags);
    await Promise.all(members.slice(0, MOST_ASKED).map(async ({ consumer_id: member }) => {
      try {
        reads.set(member, (await get(`${v3("consumer-groups", id, "consumers", member, "assignments")}?page_size=1000`, signal)).data);
      } catch (error) {
        if (error.status !== 404) throw error; // it has left meanwhile
      }
    }));
    known = { of, at: Date.now(), reads };
    return reads;
  }

  const showMembers = changes((found) => drawMembers(members, found));
  const showTopics = changes((found) => drawTopics(byTopic, found));
  every(3000, signal, async () => {
    const { data: [line] } = await get(`/v1/consumer-groups?${new URLSearchParams({ group: id })}`, signal);
    topics = line?.topics ?? [];
    showTopics(topics);
  });
  watchHeld(held, () => topics.map((each) => each.topic_name), signal);
  every(2000, signal, async () => {
    const [found, consumers, lags] = await Promise.all([get(v3("consumer-groups", id), signal), get(v3("consumer-groups", id, "consumers"), signal), get(`${v3("consumer-groups", id, "lags")}?page_size=${MOST_LAGS}`, signal)]);
    const total = lags.data.reduce((sum, each) => sum + each.lag, 0);
    facts.textContent = `${STATES[found.state] ?? found.state} · ${plural(consumers.data.length, "member")} · assignor ${found.partition_assignor || "none"} · lag ${number(total)}`;
    const reads = await readers(found.state, consumers.data, lags.data);
    showMembers(consumers.data.map((each) => ({ id: each.consumer_id, client: each.client_id, instance: each.instance_id, awaited: AWAITED.has(found.state), reads: (reads.get(each.consumer_id) ?? []).map((one) => `${one.topic_name}-${one.partition_id}`) })));
    drawLags(behind, lags, course, consumers.data.flatMap(({ consumer_id: member, client_id }) => (reads.get(member) ?? []).map(({ topic_name, partition_id }) => ({ topic_name, partition_id, client_id }))));
  }, (error) => error.status > 0 && (facts.textContent = error.message));
  const showWhy = changes((found) => put(came, h("h2", {}, "History"), story({ ...found, events: found.events.slice(0, MOST_EVENTS) }), h("p", {}, link(storyOf(id), "Full history"))));
  every(3000, signal, async () => showWhy(await get(whyOfGroup(id), signal)), (error) => error.status > 0 && put(came, h("h2", {}, "History"), failure(error)));
  try {
    const mine = await rights({ group: id }, signal);
    put(actions, may("READ", mine, "group") && h("button", { type: "button", onclick: () => reset(id, undefined, undefined, topics.map((each) => each.topic_name)) }, "Reset offsets"),
      may("DELETE", mine, "group") && h("button", { type: "button", class: "danger", onclick: () => remove(id) }, "Delete"));
  } catch {
    // the page above says what is wrong
  }
}

function remove(id) {
  confirmTyped("Delete the group", id, "Its committed offsets go, for good; its topics stay. A group with members is not deleted.", async () => {
    await call("DELETE", path("v1", "consumer-groups", id));
    note(`Group ${id} is deleted.`);
    location.hash = "#/groups";
  });
}

function drawTopics(section, found) {
  put(section, h("h2", {}, "Lag by topic"), table("Lag by topic", [
    ["Topic", (each) => link(["topics", each.topic_name, "groups"], each.topic_name), "names"],
    ["Assigned", (each) => number(each.assigned_partitions), "number wide"],
    ["Committed", (each) => number(each.committed_partitions), "number wide"],
    ["Lag", (each) => h("b", {}, number(each.lag)), "number"],
  ], found, "The group reads no topic and has no offset."));
}

function grouped(lags) {
  const found = new Map();
  for (const each of lags) found.set(each.consumer_id, [...(found.get(each.consumer_id) ?? []), each]);
  return found;
}

function drawMembers(section, found) {
  put(section, h("h2", {}, "Members"), table("Members", [
    ["Client", (each) => each.client, "names"],
    ["Member", (each) => h("code", {}, each.instance ? `${each.instance} (static)` : each.id), "wide names"],
    ["Assigned partitions", (each) => (each.awaited ? "awaits its assignment" : each.reads.length ? `${each.reads.slice(0, 12).join(", ")}${each.reads.length > 12 ? ` and ${each.reads.length - 12} more` : ""}` : "nothing"), "names"],
  ], found, "The group has no members."));
}

const keyOf = (each) => `${each.topic_name}\n${each.partition_id}`;

/** Return partitions with their numbers, of two lists: where both have a partition, the second list's. */
export function joined(...lists) {
  const found = new Map(lists.flat().map((each) => [keyOf(each), each]));
  return [...found.values()].sort((one, other) => one.topic_name.localeCompare(other.topic_name) || one.partition_id - other.partition_id);
}

/** Show the lags of partitions, and the assigned partitions without an offset where no further lags are left out. */
function drawLags(section, lags, course, assigned) {
  for (const each of lags.data) course.set(keyOf(each), [...(course.get(keyOf(each)) ?? []), each.lag].slice(-COURSE));
  const rows = joined(lags.metadata.next ? [] : assigned, lags.data);
  put(section, h("h2", {}, "Lag by partition"), table("Lag", [
    ["Topic", (each) => link(["topics", each.topic_name], each.topic_name), "names"],
    ["Partition", (each) => each.partition_id, "number"],
    ["Offset", (each) => number(each.current_offset), "number"],
    ["End", (each) => number(each.log_end_offset), "number wide"],
    ["Lag", (each) => h("b", {}, number(each.lag)), "number"],
    ["Lag trend", (each) => course.has(keyOf(each)) && spark(course.get(keyOf(each))), "wide"],
    ["Client", (each) => each.client_id || "–", "wide names"],
  ], rows.slice(0, MOST_LAGS), "The group has committed no offset."), (lags.metadata.next || rows.length > MOST_LAGS) && h("p", { class: "quiet" }, `The first ${MOST_LAGS} are shown.`));
}

/** Ask where the offsets of a group are to go; `where` is the address, `ways` are those that it knows. */
export function reset(id, where = path("v1", "consumer-groups", id, "reset"), ways = Object.keys(WAYS), topics = []) {
  const preview = h("div", { class: "preview", role: "status" });
  const to = select(ways.map((each) => [each, WAYS[each]]), { name: "to", value: "earliest" });
  const value = h("input", { name: "value", type: "number" });
  const at = h("input", { name: "at", type: "datetime-local", step: 1 });
  const valueField = field("Offset", value), atField = field("Time", at);
  const topic = h("input", { name: "topic", required: true, spellcheck: "false", list: "topics-of-group", value: topics.length === 1 ? topics[0] : "" });
  const known = h("datalist", { id: "topics-of-group" }, topics.map((each) => h("option", { value: each })));
  let seen = "";

  function body(given, only) {
    const made = { topic_name: given.topic, to: given.to, validate_only: only };
    if (given.to === "timestamp") made.value = new Date(given.at).getTime();
    if (given.to === "offset" || given.to === "shift") made.value = Number(given.value);
    if (given.partitions.trim()) made.partition_ids = given.partitions.split(/[\s,]+/).filter(Boolean).map(Number);
    return made;
  }

  function look() {
    atField.hidden = to.value !== "timestamp";
    valueField.hidden = to.value !== "offset" && to.value !== "shift";
    valueField.firstChild.textContent = to.value === "shift" ? "By (negative: back)" : "Offset";
  }
  to.addEventListener("change", look);
  look();
  ask(`Reset offsets of ${id}`, [field("Topic", topic), known, field("Partitions", h("input", { name: "partitions", placeholder: "all" })), field("To", to), valueField, atField, preview], {
    button: "Preview, then reset",
    ready: (given) => given.topic !== "" && (given.to !== "timestamp" || given.at !== "") && (!["offset", "shift"].includes(given.to) || given.value !== ""),
    send: async (given) => {
      const wanted = body(given, true), key = JSON.stringify(wanted);
      if (key !== seen) {
        const found = await post(where, wanted);
        seen = key;
        put(preview, table("Preview", [
          ["Partition", (each) => each.partition_id, "number"],
          ["Now", (each) => number(each.current_offset), "number"],
          ["Then", (each) => h("b", {}, number(each.new_offset)), "number"],
          ["From – to", (each) => `${number(each.beginning_offset)} – ${number(each.next_offset)}`, "number"],
        ], found.data), h("p", {}, "Press again to do it."));
        return false;
      }
      await post(where, body(given, false));
      note(`The offsets of ${id} are reset.`);
      return true;
    },
  });
}
