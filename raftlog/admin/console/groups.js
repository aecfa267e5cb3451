// Consumer groups: who reads what, how far behind, and setting their offsets anew.

import { every, get, may, path, post, rights, v3 } from "./api.js";
import { spark } from "./chart.js";
import { ask, changes, field, h, link, note, put, select, table } from "./dom.js";
import { number, plural } from "./format.js";
import { list } from "./list.js";
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
  let all = [], shown = [];
  const lags = new Map();
  const search = h("input", { type: "search", placeholder: "Search groups  ( / )", "aria-label": "Search groups", "data-search": true, oninput: draw, onkeydown: (event) => event.key === "ArrowDown" && (event.preventDefault(), rows.focus()) });
  const count = h("span", { class: "quiet", role: "status" });
  const rows = list({
    label: "Consumer groups",
    empty: "No group.",
    opened: (each) => (location.hash = `#/groups/${encodeURIComponent(each.consumer_group_id)}`),
    moved: () => measure().catch(() => {}),
    columns: [
      { title: "Group", kind: "name", cell: (each) => link(["groups", each.consumer_group_id], each.consumer_group_id) },
      { title: "State", kind: "state-cell", cell: (each) => STATES[each.state] ?? each.state },
      { title: "Assignor", kind: "text wide", cell: (each) => each.partition_assignor },
      { title: "Coordinator", kind: "number wide", cell: (each) => each.coordinator.related.split("/").at(-1) },
      { title: "Lag", kind: "number", cell: (each) => number(lags.get(each.consumer_group_id)) },
    ],
  });
  put(root, h("div", { class: "bar" }, h("h1", {}, "Groups"), search, count), rows.element);

  function draw() {
    const word = search.value.toLowerCase();
    shown = all.filter((each) => each.consumer_group_id.toLowerCase().includes(word));
    count.textContent = plural(shown.length, "group");
    rows.set(shown.length, (index) => shown[index]);
  }

  async function measure() {
    const [first, end] = rows.window();
    await Promise.all(shown.slice(first, Math.min(end, first + 40)).map(async (each) => {
      const id = each.consumer_group_id;
      try {
        // a group without committed offsets has no summary: the browser would log the 404
        if (!lags.has(id) && !(await get(`${v3("consumer-groups", id, "lags")}?page_size=1`, signal)).data.length) return;
        lags.set(id, (await get(v3("consumer-groups", id, "lag-summary"), signal)).total_lag);
      } catch {
        lags.delete(id);
      }
    }));
    rows.refresh();
  }

  every(3000, signal, async () => {
    ({ data: all } = await get(`${v3("consumer-groups")}?page_size=10000`, signal));
    draw();
    await measure();
  }, (error) => error.status > 0 && (count.textContent = error.message));
}

async function group(root, id, signal) {
  const actions = h("div", { class: "actions" });
  const facts = h("p", { class: "quiet", role: "status" });
  const members = h("section", { class: "card" });
  const behind = h("section", { class: "card" });
  const came = h("section", { class: "card" });
  const course = new Map();
  put(root, h("nav", { class: "path", "aria-label": "Path" }, link(["groups"], "Groups"), " / "), h("div", { class: "bar" }, h("h1", { class: "name" }, id), actions), facts, members, behind, came);
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
  every(2000, signal, async () => {
    const [found, consumers, lags] = await Promise.all([get(v3("consumer-groups", id), signal), get(v3("consumer-groups", id, "consumers"), signal), get(`${v3("consumer-groups", id, "lags")}?page_size=${MOST_LAGS}`, signal)]);
    const total = lags.data.reduce((sum, each) => sum + each.lag, 0);
    facts.textContent = `${STATES[found.state] ?? found.state} · ${plural(consumers.data.length, "member")} · assignor ${found.partition_assignor || "none"} · lag ${number(total)}`;
    const reads = await readers(found.state, consumers.data, lags.data);
    showMembers(consumers.data.map((each) => ({ id: each.consumer_id, client: each.client_id, instance: each.instance_id, awaited: AWAITED.has(found.state), reads: (reads.get(each.consumer_id) ?? []).map((one) => `${one.topic_name}-${one.partition_id}`) })));
    drawLags(behind, lags, course);
  }, (error) => error.status > 0 && (facts.textContent = error.message));
  const showWhy = changes((found) => put(came, h("h2", {}, "History"), story({ ...found, events: found.events.slice(0, MOST_EVENTS) }), h("p", {}, link(storyOf(id), "Full history"))));
  every(3000, signal, async () => showWhy(await get(whyOfGroup(id), signal)), (error) => error.status > 0 && put(came, h("h2", {}, "History"), h("p", { class: "failure", role: "alert" }, error.message)));
  try {
    const mine = await rights({ group: id }, signal);
    if (may("READ", mine, "group")) put(actions, h("button", { type: "button", onclick: () => reset(id) }, "Reset offsets"));
  } catch {
    // the page above says what is wrong
  }
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

function drawLags(section, lags, course) {
  for (const each of lags.data) {
    const key = `${each.topic_name}\n${each.partition_id}`;
    course.set(key, [...(course.get(key) ?? []), each.lag].slice(-COURSE));
  }
  put(section, h("h2", {}, "Lag by partition"), table("Lag", [
    ["Topic", (each) => link(["topics", each.topic_name], each.topic_name), "names"],
    ["Partition", (each) => each.partition_id, "number"],
    ["Offset", (each) => number(each.current_offset), "number"],
    ["End", (each) => number(each.log_end_offset), "number wide"],
    ["Lag", (each) => h("b", {}, number(each.lag)), "number"],
    ["Lag trend", (each) => spark(course.get(`${each.topic_name}\n${each.partition_id}`)), "wide"],
    ["Client", (each) => each.client_id || "–", "wide names"],
  ], lags.data, "The group has committed no offset."), lags.metadata.next && h("p", { class: "quiet" }, `The first ${MOST_LAGS} are shown.`));
}

/** Ask where the offsets of a group are to go; `where` is the address, `ways` are those that it knows. */
export function reset(id, where = path("v1", "consumer-groups", id, "reset"), ways = Object.keys(WAYS)) {
  const preview = h("div", { class: "preview", role: "status" });
  const to = select(ways.map((each) => [each, WAYS[each]]), { name: "to", value: "earliest" });
  const value = h("input", { name: "value", type: "number" });
  const at = h("input", { name: "at", type: "datetime-local", step: 1 });
  const valueField = field("Offset", value), atField = field("Time", at);
  const topic = h("input", { name: "topic", required: true, spellcheck: "false" });
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
  ask(`Reset offsets of ${id}`, [field("Topic", topic), field("Partitions", h("input", { name: "partitions", placeholder: "all" })), field("To", to), valueField, atField, preview], {
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
