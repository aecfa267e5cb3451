// The screen "Why": the changes of a partition, a broker or a group, newest first, with the cause of each.

import { every, get, onMetadata, path } from "./api.js";
import { changes, failedIn, field, h, link, put, trail } from "./dom.js";
import { plural, time } from "./format.js";

const MOST_OFFERED = 500;

/** The address of the screen for a group, and the route that it reads. */
export const storyOf = (group) => ["why", "consumer-groups", group, "events"];
export const whyOfGroup = (group) => path("v1", "consumer-groups", group, "why");

export function why(root, parts, signal) {
  if (parts.length === 0) return choose(root, signal);
  if (parts.length === 3) return ofGroup(root, parts[1], signal);
  const ofBroker = parts.length === 1;
  const [name, index] = parts;
  const where = ofBroker ? path("v1", "brokers", name, "why") : path("v1", "topics", name, "partitions", index, "why");
  const body = h("div", {}, "Asking …");
  put(root, trail(link(["why"], "History"), !ofBroker && link(["topics", name], name)),
    h("h1", { class: "name" }, ofBroker ? `Broker ${name}` : `${name}, partition ${index}`), body);
  const show = changes((found) => draw(body, found));
  onMetadata(signal, async () => show(await get(where, signal)), failedIn(body));
}

function choose(root, signal) {
  const topic = h("input", { name: "topic", required: true, spellcheck: "false", "data-search": true, list: "known-topics" });
  const partition = h("input", { name: "partition", type: "number", min: 0, value: 0, required: true });
  const group = h("input", { name: "group", required: true, spellcheck: "false", list: "known-groups" });
  const topics = h("datalist", { id: "known-topics" }), groups = h("datalist", { id: "known-groups" });
  const brokers = h("div", { class: "timelines" });
  const send = (to) => (event) => {
    event.preventDefault();
    location.hash = `#/${to().map(encodeURIComponent).join("/")}`;
  };
  const tell = (what) => h("button", { type: "submit", class: "primary", "aria-label": `Show history of the ${what}` }, "Show history");
  put(root, h("h1", {}, "History"), h("div", { class: "columns" },
    h("form", { class: "bar card low", onsubmit: send(() => ["why", topic.value, Number(partition.value)]) }, field("Topic", topic), field("Partition", partition), tell("partition")),
    h("form", { class: "bar card low", onsubmit: send(() => storyOf(group.value)) }, field("Group", group), tell("group"))), topics, groups,
  h("h2", {}, "Brokers"), brokers);
  const offer = (list, names) => put(list, names.slice(0, MOST_OFFERED).map((value) => h("option", { value })));
  Promise.all([get("/v1/topics", signal), get("/v1/consumer-groups?most=200", signal)]).then(([ofTopics, ofGroups]) => {
    offer(topics, ofTopics.data.map((each) => each.topic_name));
    offer(groups, ofGroups.data.map((each) => each.consumer_group_id));
  }, () => {}); // names are typed then
  const show = changes((all) => put(brokers, all.map((each) => {
    const section = h("section", { class: "card" }, h("h3", {}, link(["why", String(each.broker_id)], `Broker ${each.broker_id}`)));
    section.append(story({ ...each, events: each.events.slice(0, 4) }));
    return section;
  })));
  onMetadata(signal, async () => {
    const { brokers: known } = await get("/v1/health", signal);
    show(await Promise.all(known.map((each) => get(path("v1", "brokers", each.broker_id, "why"), signal))));
  }, failedIn(brokers));
}

function ofGroup(root, id, signal) {
  const body = h("div", {}, "Asking …");
  put(root, trail(link(["why"], "History"), link(["groups", id], id)), h("h1", { class: "name" }, `Group ${id}`), body);
  const show = changes((found) => put(body, summary(found),
    h("p", { class: "quiet" }, `${found.type ?? "no more"} · ${plural(found.members, "member")} · generation ${found.generation} · coordinated by broker ${found.coordinator}, leader of partition ${found.offsets_partition} of __consumer_offsets`),
    h("section", { class: "card" }, story(found)),
    h("p", { class: "quiet" }, found.complete ? "This is all since the group began." : `Members and offsets: since ${time(found.known_since.at_ms)}, when broker ${found.coordinator} loaded the group, or since the oldest of these. Earlier events were known only to its former coordinator.`)));
  every(2000, signal, async () => show(await get(whyOfGroup(id), signal)), failedIn(body));
}

/** The summary, with its times as the rest of the page writes them. */
export const summary = (found) => h("p", { class: "summary" }, found.summary.replace(/\d{4}-\d\d-\d\dT[\d:.]+\+00:00/g, (at) => time(Date.parse(at))));

function draw(body, found) {
  put(body, summary(found),
    found.replicas && h("p", { class: "quiet" }, `Leader ${found.leader ?? "none"} in epoch ${found.leader_epoch} · in sync ${found.isr.join(", ") || "none"} · replicas ${found.replicas.join(", ")}`),
    h("section", { class: "card" }, story(found)),
    h("p", { class: "quiet" }, found.complete ? "This is all since its creation." : `This node does not remember events before metadata offset ${found.known_since_offset}, or before the oldest of these.`));
}

/** Return a timeline of the events of a broker, a partition or a group. */
export function story(found) {
  if (!found.events.length) return h("p", { class: "empty" }, "There are no events.");
  return h("ol", { class: "timeline" }, found.events.map((each) => h("li", { class: each.what.map((one) => `was-${one}`).join(" ") },
    h("time", { datetime: each.when.at ?? "" }, time(each.when.at_ms)),
    h("p", {}, h("b", {}, each.message), each.because && `, because ${each.because}`, "."),
    (each.brokers ?? []).map((one) => h("p", { class: "cause" }, link(["why", String(one.broker_id)], `Broker ${one.broker_id}`), `: ${one.message}${one.because ? `, because ${one.because}` : ""}.`)),
    h("small", { class: "quiet names" }, source(each)))));
}

function source({ when, member }) {
  if (when.controller_id !== undefined) return `metadata offset ${when.metadata_offset}, decided by controller ${when.controller_id}`;
  return when.metadata_offset === null ? member && `member ${member.consumer_id ?? member.member_id}` : `metadata offset ${when.metadata_offset}`;
}
