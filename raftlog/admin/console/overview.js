// Is the cluster well, who is in it, and what goes through this node.

import { ask as call, every, get, may, onMetadata, session, v3 } from "./api.js";
import { SPAN_MS, chart } from "./chart.js";
import { ask, changes, h, link, note, put, table } from "./dom.js";
import { bytes, milliseconds, number, plural, short } from "./format.js";
import { askLeave, leavingCard, leavingOf } from "./leaving.js";

const WORDS = { green: "Healthy", yellow: "Degraded", red: "Unavailable" };
const MARKS = { green: "✓", yellow: "!", red: "✕" };
export const STATES = { in_service: "● in service", silent: "◌ silent", draining: "↓ draining", stopping: "■ stopping", fenced: "⊘ fenced", down: "✕ down" };
const UNKNOWN = new Set(["down", "fenced", "silent"]);
const EVERY_MS = 2000;
const LEAST_MS = 60_000;

export function overview(root, _parts, signal) {
  const health = h("section", { class: "card health", "aria-label": "Health" }, "Asking …");
  const nodes = h("section", { class: "card" });
  const quorum = h("section", { class: "card" });
  const leaving = h("div", { class: "columns" });
  const charts = [
    chart("Records", [["in", (each) => each.records_in], ["out", (each) => each.records_out]], (value) => `${short(value)}/s`, "out: to consumers, by offsets"),
    chart("Bytes", [["in", (each) => each.bytes_in], ["out", (each) => each.bytes_out]], (value) => `${bytes(value)}/s`),
    chart("Produce", [["p50", (each) => each.produce_p50_ms], ["p99", (each) => each.produce_p99_ms]], milliseconds),
    chart("Fetch", [["p50", (each) => each.fetch_p50_ms], ["p99", (each) => each.fetch_p99_ms]], milliseconds, "includes waiting for new records (long polls): high on an idle node"),
    chart("Partitions", [["under-replicated", (each) => each.under_replicated], ["offline", (each) => each.offline]], short, "of the whole cluster", 2),
    chart("Consumer lag", [["", (each) => each.lag]], short, "of groups that this node coordinates, since the page was opened", 2),
  ];
  const title = h("h2", {}, "Last minutes");
  put(root, h("h1", {}, "Overview"), health, h("div", { class: "columns nodes" }, nodes, quorum), leaving, h("section", { "aria-label": "Last minutes" }, title, h("div", { class: "charts" }, charts.map((each) => each.element))));

  const showHealth = changes((found) => drawHealth(health, found));
  const showNodes = changes((found) => drawNodes(nodes, found, look));
  const showQuorum = changes((found) => drawQuorum(quorum, found));
  const showLeaving = changes((found) => put(leaving, found.map((each) => leavingCard(each, look))));
  async function look() {
    const [found, brokers, voters] = await Promise.all([get("/v1/health", signal), get(v3("brokers"), signal), get("/v1/quorum", signal)]);
    showHealth(found);
    showNodes({ health: found, brokers: brokers.data, voters: voters.voters.map((each) => each.node_id) });
    showQuorum(voters);
    showLeaving(await leavingOf(found.brokers, signal));
  }
  const failed = (section) => (error) => error.status > 0 && put(section, h("p", { role: "alert" }, error.message));
  let kept = [];
  let drawing = 0;
  function draw() {
    drawing = 0;
    const now = kept.at(-1).at_ms;
    const span = Math.min(SPAN_MS, Math.max(LEAST_MS, now - kept[0].at_ms));
    title.textContent = `Last ${span < 90_000 ? "minute" : plural(Math.round(span / 60_000), "minute")} of node ${session.me.node_id}`;
    for (const each of charts) each.draw(kept, now, span);
  }
  function sampled(sample) {
    kept = [...kept.filter((each) => each.at_ms < sample.at_ms && each.at_ms >= sample.at_ms - SPAN_MS), sample];
    drawing ||= setTimeout(draw, 0);
  }
  const sees = session.me.cluster.includes("DESCRIBE");
  if (!sees) title.after(h("p", { class: "empty" }, "A node's lines need the right DESCRIBE of the cluster."));
  onMetadata(signal, look, failed(health), sees && sampled);
  every(EVERY_MS, signal, look, failed(health), { atOnce: false });
}

function drawHealth(section, found) {
  const notes = found.reasons.filter((each) => each.code === "faults_enabled" && !each.count); // no fault is active
  const reasons = found.reasons.filter((each) => !notes.includes(each));
  const status = notes.length && !reasons.length ? "green" : found.status;
  section.className = `card health ${status}`;
  const counts = `${plural(found.topics - found.internal_topics, "topic")} and ${plural(found.partitions - found.internal_partitions, "partition")}, ${plural(found.internal_partitions, "internal partition")} · ${plural(found.brokers.length, "broker")}`;
  put(section, h("h2", {}, h("span", { class: "mark", "aria-hidden": "true" }, MARKS[status]), `${WORDS[status]} `, h("small", {}, status)),
    reasons.length ? h("ul", { class: "reasons" }, reasons.map((each) => h("li", { class: each.severity }, h("span", { class: "mark", "aria-label": each.severity }, MARKS[each.severity]), h("span", {}, each.message, names(each.partitions))))) : h("p", {}, "No problems."),
    notes.map((each) => h("p", { class: "quiet" }, each.message)),
    h("p", { class: "quiet" }, `${counts} · cluster ${found.cluster_id ?? "?"} · controller ${found.controller_id ?? "none"}`));
}

function names(partitions) {
  if (!partitions.length) return null;
  return h("span", { class: "names" }, partitions.slice(0, 8).flatMap((each) => {
    const at = each.lastIndexOf("-");
    return [" ", link(["why", each.slice(0, at), each.slice(at + 1)], each)];
  }));
}

function drawNodes(section, { health, brokers, voters }, look) {
  const at = new Map(brokers.map((each) => [each.broker_id, each]));
  const stuck = health.reasons.some((each) => each.code === "no_controller");
  const act = (title, onclick) => h("button", { type: "button", disabled: stuck, onclick }, title);
  const acts = (each) => [
    act(each.state === "draining" ? "Take back" : "Drain", () => askDrain(each, look)),
    !each.decommissioned && act("Decommission", () => askLeave(each.broker_id, health.brokers, look)),
  ];
  put(section, h("h2", {}, "Nodes"), table("Nodes", [
    ["Node", (each) => link(["brokers", each.broker_id], String(each.broker_id))],
    ["Address", (each) => `${at.get(each.broker_id)?.host ?? "?"}:${at.get(each.broker_id)?.port ?? "?"}`, "wide"],
    ["Role", (each) => (each.broker_id === health.controller_id ? h("b", {}, "◆ controller") : voters.includes(each.broker_id) ? "voter" : "broker only")],
    ["State", (each) => [h("span", { class: `state ${each.state}` }, STATES[each.state] ?? each.state), each.decommissioned && h("span", { class: "state leaving" }, " ⇥ leaving")]],
    ["Disks", (each) => (each.offline_log_dirs.length ? `✕ ${each.offline_log_dirs.join(", ")}` : UNKNOWN.has(each.state) ? "unknown" : "online"), "wide"],
    ...(may("ALTER") ? [["", acts, "act stack"]] : []),
  ], health.brokers, "No broker has registered yet."), stuck && may("ALTER") && h("p", { class: "quiet" }, "No broker can be drained or decommissioned until a controller answers."));
}

function askDrain(broker, look) {
  const back = broker.state === "draining";
  ask(back ? `Let broker ${broker.broker_id} lead again` : `Drain broker ${broker.broker_id}`,
    h("p", {}, back ? "It may lead partitions again." : "Its leaderships go to other brokers. It keeps its replicas, and leads only partitions that no other broker can lead, until you take that back."),
    { button: back ? "Take back" : "Drain", send: async () => {
      await call(back ? "DELETE" : "PUT", `/v1/brokers/${broker.broker_id}/drain`);
      note(back ? `Broker ${broker.broker_id} may lead again.` : `Broker ${broker.broker_id} is being drained.`);
      await look();
    } });
}

function drawQuorum(section, found) {
  const members = [...found.voters.map((each) => ({ ...each, votes: true })), ...found.observers.map((each) => ({ ...each, votes: false }))];
  put(section, h("h2", {}, "Quorum ", h("small", {}, `term ${number(found.term)} · ${found.needed} of ${found.voters.length} needed`)),
    !found.told_by_leader && h("p", { class: "failure" }, "No leader answers: this is what the node itself knows."),
    table("Quorum", [
      ["Voter", (each) => `${each.node_id}${each.votes ? "" : " (observer)"}`],
      ["State", (each) => (each.state === "leads" ? h("b", {}, "★ leads") : each.state === "follows" ? "● follows" : each.state === "lags" ? "◐ lags" : each.state === "silent" ? "✕ silent" : each.state)],
      ["Lag", (each) => (each.lag === null ? "–" : plural(each.lag, "entry", "entries")), "number"],
      ["Directory", (each) => each.directory_id ?? "–", "widest"],
      ["Last contact", (each) => (each.last_heard_ms_ago === null || each.state === "leads" ? "–" : each.last_heard_ms_ago < 1000 ? "now" : `${milliseconds(each.last_heard_ms_ago)} ago`), "wide"],
    ], members));
}
