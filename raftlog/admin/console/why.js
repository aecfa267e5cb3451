// Why is it so: what became of a partition or a broker, newest first, and because of what.

import { get, onMetadata, path } from "./api.js";
import { changes, field, h, link, put } from "./dom.js";
import { time } from "./format.js";

export function why(root, parts, signal) {
  if (parts.length === 0) return choose(root, signal);
  const ofBroker = parts.length === 1;
  const [name, index] = parts;
  const where = ofBroker ? path("v1", "brokers", name, "why") : path("v1", "topics", name, "partitions", index, "why");
  const body = h("div", {}, "Asking …");
  put(root, h("nav", { class: "path", "aria-label": "Path" }, link(["why"], "Why"), " / ", !ofBroker && [link(["topics", name], name), " / "]),
    h("h1", { class: "name" }, ofBroker ? `Broker ${name}` : `${name}, partition ${index}`), body);
  const show = changes((found) => draw(body, found));
  onMetadata(signal, async () => show(await get(where, signal)), (error) => error.status > 0 && put(body, h("p", { class: "failure", role: "alert" }, error.message)));
}

function choose(root, signal) {
  const topic = h("input", { name: "topic", required: true, spellcheck: "false", "data-search": true });
  const partition = h("input", { name: "partition", type: "number", min: 0, value: 0, required: true });
  const brokers = h("div", { class: "timelines" });
  const send = (event) => {
    event.preventDefault();
    location.hash = `#/why/${encodeURIComponent(topic.value)}/${Number(partition.value)}`;
  };
  put(root, h("h1", {}, "Why"), h("form", { class: "bar", onsubmit: send }, field("Topic", topic), field("Partition", partition), h("button", { type: "submit", class: "primary" }, "Tell")),
    h("h2", {}, "Brokers"), brokers);
  const show = changes((all) => put(brokers, all.map((each) => {
    const section = h("section", { class: "card" }, h("h3", {}, link(["why", String(each.broker_id)], `Broker ${each.broker_id}`)));
    section.append(story({ ...each, events: each.events.slice(0, 4) }));
    return section;
  })));
  onMetadata(signal, async () => {
    const { brokers: known } = await get("/v1/health", signal);
    show(await Promise.all(known.map((each) => get(path("v1", "brokers", each.broker_id, "why"), signal))));
  }, (error) => error.status > 0 && put(brokers, h("p", { class: "failure", role: "alert" }, error.message)));
}

function draw(body, found) {
  put(body, h("p", { class: "summary" }, found.summary),
    found.replicas && h("p", { class: "quiet" }, `Leader ${found.leader ?? "none"} in epoch ${found.leader_epoch} · in sync ${found.isr.join(", ") || "none"} · replicas ${found.replicas.join(", ")}`),
    h("section", { class: "card" }, story(found)),
    h("p", { class: "quiet" }, found.complete ? "This is all since its creation." : `What was before metadata offset ${found.known_since_offset}, or before the oldest of these, this node does not remember.`));
}

/** Return a timeline of the events of a broker or a partition. */
export function story(found) {
  if (!found.events.length) return h("p", { class: "empty" }, "Nothing is remembered.");
  return h("ol", { class: "timeline" }, found.events.map((each) => h("li", { class: each.what.map((one) => `was-${one}`).join(" ") },
    h("time", { datetime: each.when.at ?? "" }, time(each.when.at_ms)),
    h("p", {}, h("b", {}, each.message), each.because && `, because ${each.because}`, "."),
    (each.brokers ?? []).map((one) => h("p", { class: "cause" }, link(["why", String(one.broker_id)], `Broker ${one.broker_id}`), `: ${one.message}${one.because ? `, because ${one.because}` : ""}.`)),
    h("small", { class: "quiet" }, `metadata offset ${each.when.metadata_offset}, decided by controller ${each.when.controller_id}`))));
}
