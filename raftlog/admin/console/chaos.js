// Hurt a node on purpose, and see what becomes of leaders, replicas and a client.

import { ask as call, every, get, may, onMetadata, path, post, session, v3 } from "./api.js";
import { chart } from "./chart.js";
import { nodesCard } from "./dev_nodes.js";
import { field, h, note, put, select } from "./dom.js";
import { milliseconds, number, plural } from "./format.js";
import { cell } from "./topic.js";
import { story } from "./why.js";

const DETAILS = {
  "slow-disk": ["Seconds that each sync takes longer", { name: "seconds", type: "number", min: 0, max: 3600, step: 0.1, value: 0.5 }, (value) => ({ seconds: Number(value) })],
  "clock-jump": ["Milliseconds from the true time", { name: "offset_ms", type: "number", value: 60000 }, (value) => ({ offset_ms: Number(value) })],
  "failing-disk": ["Operation", ["sync", "write", "read"], (value) => ({ operation: value })],
};
const LOAD_TOPIC = "chaos-load";
const LOAD_PARTITIONS = 3;
const LOAD_MS = 300;
const LOAD_RETRY_MS = 100;
const LOAD_AWAY_MS = 1000;
const LOAD_DRAW_MS = 500;
const LOAD_LONG_MS = 1000;
const LOAD_KEPT_MS = "3600000";
const LOAD_SPAN_MS = 60_000;

/** Write one record after the other to a partition, each again until it is acknowledged: the gap is what that takes. */
async function write(partition, mine, seen) {
  while (!mine.aborted) {
    const began = performance.now(), hides = hidden;
    seen.since.set(partition, began);
    for (let done = false, wait = LOAD_RETRY_MS; !done && !mine.aborted; ) {
      try {
        const report = await call("POST", v3("topics", LOAD_TOPIC, "records"), { partition_id: partition, value: { type: "JSON", data: { at: Date.now() } } }, mine);
        done = report.error_code === 200;
        wait = LOAD_RETRY_MS;
      } catch (error) {
        wait = error.status === 0 ? LOAD_AWAY_MS : LOAD_RETRY_MS; // the browser logs each try that finds no node
      }
      if (!done && !mine.aborted) seen.refused++, await rest(wait);
    }
    seen.since.delete(partition);
    if (mine.aborted) return;
    const ms = performance.now() - began;
    seen.written++;
    if (hides === hidden) { // a browser lets a tab that nobody sees wait
      seen.longest = Math.max(seen.longest, ms);
      seen.felt.push({ at_ms: Date.now(), ms });
    }
    await rest(Math.max(0, LOAD_MS - ms));
  }
}

const rest = (ms) => new Promise((done) => setTimeout(done, ms));
let hidden = 0;
document.addEventListener("visibilitychange", () => hidden++);

export function chaos(root, _parts, signal) {
  const { dev_enabled: isDev, faults_enabled: hurts } = session.me;
  if (!isDev && !hurts) {
    put(root, h("h1", {}, "Chaos"), h("p", {}, "Nodes can be killed, paused and cut off here in a cluster of ", h("code", {}, "raftlog dev"), ". Nodes that were started with --enable-faults, which is for tests only, can be given faults of disk, clock and network. This node is neither."));
    return;
  }
  const active = h("div", { role: "status" });
  const detail = h("div");
  const fault = select(["slow-disk", "full-disk", "failing-disk", "clock-jump", "cut-off"], { "aria-label": "Fault", onchange: look });
  const leaders = h("section", { class: "card" });
  const broker = h("h2"), events = h("div");
  const load = chart("Client latency", [["answer", (each) => each.ms]], milliseconds, `one record at a time in each of ${LOAD_PARTITIONS} partitions, last minute`);
  const gap = h("p", { class: "quiet", role: "status" }, "Start the load to see how long each record takes to be acknowledged.");
  const button = h("button", { type: "button", onclick: () => (running ? stop() : begin()) }, "▶ Start load");
  let running = null;
  const changes_ = may("ALTER");
  const node = select([[session.me.node_id, `node ${session.me.node_id}, this one`]], { "aria-label": "Node", onchange: () => (hurts && show().catch(failed), story_().catch(() => {})) });
  const of = (where) => `${where}?node_id=${node.value}`;
  const failed = (error) => error.status > 0 && put(active, h("p", { class: "failure" }, error.message));

  async function showNodes() {
    const { data } = await get("/v1/nodes", signal);
    const others = data.filter((each) => each.broker_id !== session.me.node_id);
    node.append(...others.map((each) => h("option", { value: each.broker_id }, `node ${each.broker_id}`)));
  }

  async function story_() {
    const id = node.value;
    const found = await get(path("v1", "brokers", id, "why"), signal);
    put(broker, `History of broker ${id}`);
    put(events, story(found));
  }

  function look() {
    const found = DETAILS[fault.value];
    put(detail, found && field(found[0], Array.isArray(found[1]) ? select(found[1], { name: "detail" }) : h("input", { ...found[1], name: "detail" })));
  }

  async function inject(event) {
    event.preventDefault();
    const given = detail.querySelector("[name=detail]")?.value;
    try {
      await post(of("/v1/faults"), { fault: fault.value, ...(DETAILS[fault.value]?.[2](given) ?? {}) });
      await show();
    } catch (error) {
      note(error.message, "bad");
    }
  }

  async function heal(name) {
    try {
      await call("DELETE", of(path("v1", "faults", name)));
      await show();
    } catch (error) {
      note(error.message, "bad");
    }
  }

  async function show() {
    const found = await get(of("/v1/faults"), signal);
    put(active, found.active.length ? found.active.map((each) => {
      const { fault: name, ...more } = each;
      return h("p", { class: "warn" }, `⚡ ${name} ${Object.entries(more).map((one) => one.join(" ")).join(", ")} `, changes_ && h("button", { type: "button", onclick: () => heal(name) }, "Heal"));
    }) : h("p", { class: "quiet" }, `No fault is active on node ${found.node_id}.`));
  }

  function stop() {
    running?.abort();
    running = null;
    button.textContent = "▶ Start load";
  }

  async function begin() {
    running = new AbortController();
    button.textContent = "■ Stop load";
    const mine = running.signal;
    signal.addEventListener("abort", () => running?.abort());
    try {
      const { data: all } = await get("/v1/topics", mine);
      if (!all.some((each) => each.topic_name === LOAD_TOPIC)) await post(v3("topics"), { topic_name: LOAD_TOPIC, partitions_count: LOAD_PARTITIONS, configs: [{ name: "retention.ms", value: LOAD_KEPT_MS }] });
    } catch (error) {
      if (error.status !== 409 && !mine.aborted) return stop(), note(error.message, "bad");
    }
    if (mine.aborted) return; // stopped, or the page was left, before the topic was there
    const seen = { felt: [], longest: 0, written: 0, refused: 0, since: new Map() };
    for (let partition = 0; partition < LOAD_PARTITIONS; partition++) write(partition, mine, seen);
    every(LOAD_DRAW_MS, mine, () => {
      const now = Date.now();
      seen.felt = seen.felt.filter((each) => now - each.at_ms < LOAD_SPAN_MS);
      load.draw(seen.felt, now, LOAD_SPAN_MS);
      const waits = [...seen.since].map(([partition, since]) => [partition, performance.now() - since]).filter(([, ms]) => ms > LOAD_LONG_MS);
      gap.textContent = `${plural(seen.written, "record")} acknowledged, after ${plural(seen.refused, "refused try", "refused tries")}. The longest gap that a record waited: ${milliseconds(seen.longest)}.${waits.map(([partition, ms]) => ` Partition ${partition} has been waiting for ${milliseconds(ms)}.`).join("")}`;
    });
  }

  put(root, h("h1", {}, "Chaos"), h("p", {}, "What you choose here happens to the node for real. A node that is killed, or whose only disk fails, takes its console with it: watch from another node."),
    isDev && nodesCard(signal),
    h("div", { class: "columns" },
      h("section", { class: "card" }, h("h2", {}, "Faults"), hurts ? field("Node", node) : h("p", { class: "quiet" }, "These nodes run without faults of disk and clock. ", h("code", {}, "raftlog dev --enable-faults"), " also makes disks slow, full or failing, and lets clocks jump."), hurts && changes_ && h("form", { onsubmit: inject }, field("Fault", fault), detail, h("div", { class: "buttons" }, h("button", { type: "submit", class: "danger" }, "Inject fault"))), active),
      h("section", { class: "card" }, h("h2", {}, "A client"), changes_ && button, load.element, gap)),
    h("div", { class: "columns" }, leaders, h("section", { class: "card" }, broker, !hurts && field("Node", node), events)));
  look();
  showNodes().catch(() => {});
  if (hurts) every(2000, signal, show, failed);
  onMetadata(signal, async () => {
    const { data: all } = await get("/v1/topics", signal);
    const found = all.some((each) => each.topic_name === LOAD_TOPIC) ? await get(path("v1", "topics", LOAD_TOPIC, "replicas"), signal) : { data: [] };
    put(leaders, h("h2", {}, "Leaders and replicas"), found.data.length ? h("ul", { class: "plain" }, found.data.map((each) => h("li", {}, `${number(each.partition_id)}: `, each.replicas.map((one) => cell(one, true))))) : h("p", { class: "quiet" }, "The load has a topic of its own, whose replicas are shown here."));
    await story_();
  });
}
