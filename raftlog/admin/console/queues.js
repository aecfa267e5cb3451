// Share groups as queues: what waits, what members hold and how often it was delivered, and the story of one record.

import { ask as request, every, get, may, path, rights } from "./api.js";
import { buttons } from "./by_hand.js";
import { changes, confirmTyped, failedIn, field, h, link, note, put, table, trail } from "./dom.js";
import { milliseconds, number, plural, time } from "./format.js";
import { joined, reset, STATES } from "./groups.js";
import { list, searchBox } from "./list.js";
import { contents, readOne } from "./record.js";
import { story, summary } from "./why.js";

const MOST_MEASURED = 40;
const at = (...parts) => path("v1", "share-groups", ...parts);
const sum = (rows, of) => rows.reduce((total, each) => total + (of(each) ?? 0), 0);
const most = (rows, of) => rows.reduce((found, each) => Math.max(found, of(each)), 0);
const age = (ms) => (ms ? milliseconds(ms) : "–");

const letters = ({ topic, archiving, failed }) => (topic ? [link(["topics", topic], topic), archiving ? h("span", { class: failed ? "bad" : "quiet", title: failed ?? "These records wait for their dead letters." }, ` ${number(archiving)} wait`) : ""] : "–");

export function queues(root, [id, ...record], signal) {
  if (record.length === 3) return why(root, id, record, signal);
  if (id !== undefined) return queue(root, id, signal);
  let all = [], shown = [];
  const known = new Map();
  const search = searchBox("queues", draw, () => rows);
  const count = h("span", { class: "quiet", role: "status" });
  const of = (each, value) => (known.has(each.share_group_id) ? value(known.get(each.share_group_id)) : "–");
  const rows = list({
    label: "Share groups",
    empty: "No share group.",
    opened: (each) => (location.hash = `#/queues/${encodeURIComponent(each.share_group_id)}`),
    moved: () => measure().catch(() => {}),
    columns: [
      { title: "Share group", kind: "name", cell: (each) => link(["queues", each.share_group_id], each.share_group_id) },
      { title: "State", kind: "state-cell", cell: (each) => STATES[each.state] ?? each.state },
      { title: "Members", kind: "number wide", cell: (each) => of(each, (one) => number(one.members)) },
      { title: "Held", kind: "number wide", cell: (each) => of(each, (one) => number(one.held)) },
      { title: "Oldest lock", kind: "number wide", cell: (each) => of(each, (one) => age(one.oldest)) },
      { title: "Dead letters", kind: "wide names", cell: (each) => of(each, letters) },
      { title: "Lag", kind: "number", cell: (each) => of(each, (one) => number(one.lag)) },
    ],
  });
  put(root, h("div", { class: "bar" }, h("h1", {}, "Queues"), search, count), rows.element);

  function draw() {
    const word = search.value.toLowerCase();
    shown = all.filter((each) => each.share_group_id.toLowerCase().includes(word));
    count.textContent = plural(shown.length, "share group");
    rows.set(shown.length, (index) => shown[index]);
  }

  async function measure() {
    const [first, end] = rows.window();
    await Promise.all(shown.slice(first, Math.min(end, first + MOST_MEASURED)).map(async ({ share_group_id: name }) => {
      try {
        const [found, flight] = await Promise.all([get(at(name), signal), get(at(name, "in-flight"), signal)]);
        known.set(name, { members: found.members.length, archiving: sum(flight.data, (each) => each.archiving), failed: flight.data.find((each) => each.letters_failed)?.letters_failed, topic: flight.dead_letter_topic, lag: sum(found.offsets, (each) => each.lag), held: sum(flight.data, (each) => each.held), oldest: most(flight.data, (each) => each.oldest_lock_ms) });
      } catch {
        known.delete(name);
      }
    }));
    rows.refresh();
  }

  every(3000, signal, async () => {
    ({ data: all } = await get("/v1/share-groups", signal));
    draw();
    await measure();
  }, (error) => error.status > 0 && (count.textContent = error.message));
}

async function queue(root, id, signal) {
  const actions = h("div", { class: "actions" });
  const facts = h("p", { class: "quiet", role: "status" });
  const flight = h("section", { class: "card" });
  const members = h("section", { class: "card" });
  const offset = h("input", { name: "offset", type: "number", min: 0, required: true });
  const partition = h("input", { name: "partition", type: "number", min: 0, value: 0, required: true });
  const topic = h("input", { name: "topic", required: true, spellcheck: "false", "data-search": true });
  const tell = h("form", { class: "bar card low", onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/${["queues", id, topic.value, Number(partition.value), offset.value].map(encodeURIComponent).join("/")}`;
  } }, field("Topic", topic), field("Partition", partition), field("Offset", offset), h("button", { type: "submit", class: "primary", "aria-label": "Show history of the record" }, "Show history"));
  put(root, trail(link(["queues"], "Queues")), h("div", { class: "bar" }, h("h1", { class: "name" }, id), actions), facts, flight, members, tell);
  let mayAct = false;
  const showFlight = changes(([limits, rows, acts]) => drawFlight(flight, id, limits, rows, acts));
  const showMembers = changes((found) => drawMembers(members, found));
  every(2000, signal, async () => {
    const [found, now] = await Promise.all([get(at(id), signal), get(at(id, "in-flight"), signal)]);
    const rows = joined(found.offsets, now.data); // what a leader has in memory is newer
    if (!topic.value && rows.length && document.activeElement !== topic) topic.value = rows[0].topic_name;
    const oldest = most(now.data, (each) => each.oldest_lock_ms);
    facts.textContent = [STATES[found.state] ?? found.state, plural(found.members.length, "member"), `lag ${number(sum(rows, (each) => each.lag))}`, `${number(sum(now.data, (each) => each.held))} held`, oldest && `for up to ${milliseconds(oldest)}`, `a lock lasts ${milliseconds(now.record_lock_duration_ms)}`, `at most ${plural(now.delivery_count_limit, "delivery", "deliveries")}`, now.dead_letter_topic && `dead letters in ${now.dead_letter_topic}`].filter(Boolean).join(" · ");
    showFlight([now, rows, mayAct]);
    showMembers(found.members);
  }, (error) => error.status > 0 && (facts.textContent = error.message));
  try {
    const mine = await rights({ group: id }, signal);
    mayAct = may("READ", mine, "group");
    if (mayAct) put(actions, h("button", { type: "button", onclick: () => reset(id, at(id, "reset"), ["earliest", "latest", "timestamp", "offset"]) }, "Reset offsets"), may("DELETE", mine, "group") && h("button", { type: "button", class: "danger", onclick: () => remove(id) }, "Delete"));
  } catch {
    // the page above says what is wrong
  }
}

function drawFlight(section, id, limits, rows, acts) {
  const times = ({ delivery_count: count, records }) => h("span", { class: `times ${count >= limits.delivery_count_limit ? "bad" : count > 1 ? "warn" : ""}`, title: `${plural(records, "record")} delivered ${plural(count, "time")}` }, `${count}× `, h("b", {}, number(records)));
  put(section, h("h2", {}, "In flight"), table("In flight", [
    ["Topic", (each) => link(["topics", each.topic_name], each.topic_name), "names"],
    ["Partition", (each) => each.partition_id, "number"],
    ["Start", (each) => (each.start_offset === null || (each.lag === 0 && !each.in_flight) ? number(each.start_offset) : link(["queues", id, each.topic_name, each.partition_id, each.start_offset], number(each.start_offset))), "number"],
    ["In flight", (each) => [number(each.in_flight), each.full && h("b", { class: "bad", title: "Members get no more until the first records are done." }, " full")], "number wide"],
    ["Held", (each) => number(each.held), "number wide"],
    limits.dead_letter_topic && ["Dead letters", (each) => [each.archiving ? `${number(each.archiving)} wait` : "–", each.letters_failed && h("b", { class: "bad" }, ` ${each.letters_failed}`)], "names wide"],
    ["Delivered", (each) => (each.deliveries ?? []).map(times), "wide names"],
    ["Oldest lock", (each) => age(each.oldest_lock_ms), "number wide"],
    ["Lag", (each) => h("b", {}, number(each.lag)), "number"],
    acts && ["", (each) => buttons(id, each), "stack"],
  ].filter(Boolean), rows, "The group has no partition yet."), h("p", { class: "quiet" }, "Delivered: 2× 7 means that 7 records that are not done were delivered twice. A start offset opens the story of its record. Partitions that no member reads show what is written."));
}

function drawMembers(section, found) {
  put(section, h("h2", {}, "Members"), table("Members", [
    ["Client", (each) => each.client_id, "names"],
    ["Host", (each) => each.host.replace(/^\//, ""), "names"],
    ["Member", (each) => h("code", {}, each.member_id), "wide names"],
    ["Assigned partitions", (each) => each.partitions.slice(0, 12).map((one) => `${one.topic_name}-${one.partition_id}`).join(", ") + (each.partitions.length > 12 ? ` and ${each.partitions.length - 12} more` : ""), "names"],
  ], found, "The group has no members: its records wait."));
}

function remove(id) {
  confirmTyped("Delete the group", id, "What it has done is forgotten; its topics stay. A group with members is not deleted.", async () => {
    await request("DELETE", at(id));
    note(`The group ${id} is deleted.`);
    location.hash = "#/queues";
  });
}

function why(root, id, [topic, partition, offset], signal) {
  const body = h("div", {}, "Asking …"), record = h("section", { class: "card" }, h("h2", {}, "Record"), h("p", { class: "quiet" }, "Reading …"));
  const acts = h("div", { class: "actions", hidden: true });
  put(root, trail(link(["queues"], "Queues"), link(["queues", id], id)), h("div", { class: "bar" }, h("h1", { class: "name" }, `${topic}, partition ${partition}, offset ${offset}`), acts), body, record);
  rights({ group: id }, signal).then((mine) => may("READ", mine, "group") && put(acts, buttons(id, { topic_name: topic, partition_id: partition }, offset))).catch(() => {});
  const shown = (...content) => put(record, h("h2", {}, "Record"), content);
  rights({ topic }, signal).then(async (mine) => {
    if (!may("READ", { ...mine, changes: true }, "topic")) return shown(h("p", { class: "quiet" }, "You may not read the records of this topic."));
    const decoders = { decode: "auto", decode_key: "auto" };
    shown(contents(await readOne(topic, partition, offset, decoders, signal), { name: topic, key: "auto", value: "auto" }));
  }).catch((error) => signal.aborted || (error.status === undefined && acts.remove(), shown(h("p", { class: "quiet" }, error.message))));
  const show = changes((found) => (acts.hidden = !["available", "acquired"].includes(found.state), put(body,
    summary(found),
    h("p", { class: "quiet" }, `${found.state.replace("_", " ")} · ${found.delivery_count} of ${plural(found.delivery_count_limit, "delivery", "deliveries")} · ${found.leader === null ? "no member reads the partition" : `led by broker ${found.leader}`}`),
    h("section", { class: "card" }, story(found)),
    h("p", { class: "quiet" }, found.complete ? "These are all of its deliveries." : `Brokers remember deliveries since ${time(found.known_since.at_ms)}, and not all of them.`))));
  every(2000, signal, async () => show(await get(at(id, "topics", topic, "partitions", partition, "records", offset, "why"), signal)), failedIn(body));
}
