// Hurt this node on purpose, and see what becomes of leaders, replicas and a client.

import { ask as call, every, get, may, onMetadata, path, post, session, v3 } from "./api.js";
import { chart } from "./chart.js";
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
const LOAD_PARTITIONS = 6;
const LOAD_MS = 150;
const LOAD_SPAN_MS = 60_000;

export function chaos(root, _parts, signal) {
  if (!session.me.faults_enabled) {
    put(root, h("h1", {}, "Chaos"), h("p", {}, "This node was started without --enable-faults, which is for tests only."));
    return;
  }
  const active = h("div", { role: "status" });
  const detail = h("div");
  const fault = select(["slow-disk", "full-disk", "failing-disk", "clock-jump"], { "aria-label": "Fault", onchange: look });
  const leaders = h("section", { class: "card" });
  const events = h("section", { class: "card" });
  const load = chart("What a client felt", [["answer", (each) => each.ms]], milliseconds, "one record at a time, last minute");
  const gap = h("p", { class: "quiet", role: "status" }, "Begin the load to see how long each record takes to be acknowledged.");
  const button = h("button", { type: "button", onclick: () => (running ? stop() : begin()) }, "▶ Begin the load");
  let running = null;
  const changes_ = may("ALTER");

  function look() {
    const found = DETAILS[fault.value];
    put(detail, found && field(found[0], Array.isArray(found[1]) ? select(found[1], { name: "detail" }) : h("input", { ...found[1], name: "detail" })));
  }

  async function inject(event) {
    event.preventDefault();
    const given = detail.querySelector("[name=detail]")?.value;
    try {
      await post("/v1/faults", { fault: fault.value, ...(DETAILS[fault.value]?.[2](given) ?? {}) });
      await show();
    } catch (error) {
      note(error.message, "bad");
    }
  }

  async function heal(name) {
    try {
      await call("DELETE", path("v1", "faults", name));
      await show();
    } catch (error) {
      note(error.message, "bad");
    }
  }

  async function show() {
    const found = await get("/v1/faults", signal);
    put(active, found.active.length ? found.active.map((each) => {
      const { fault: name, ...more } = each;
      return h("p", { class: "warn" }, `⚡ ${name} ${Object.entries(more).map((one) => one.join(" ")).join(", ")} `, changes_ && h("button", { type: "button", onclick: () => heal(name) }, "Heal"));
    }) : h("p", { class: "quiet" }, `Nothing is in force on node ${found.node_id}.`));
  }

  function stop() {
    running?.abort();
    running = null;
    button.textContent = "▶ Begin the load";
  }

  async function begin() {
    running = new AbortController();
    button.textContent = "■ End the load";
    const mine = running.signal;
    signal.addEventListener("abort", () => running?.abort());
    try {
      await post(v3("topics"), { topic_name: LOAD_TOPIC, partitions_count: LOAD_PARTITIONS });
    } catch (error) {
      if (error.status !== 409) return stop(), note(error.message, "bad");
    }
    let felt = [], longest = 0, written = 0, failures = 0, last = performance.now(), turn = 0;
    every(LOAD_MS, mine, async () => {
      const began = performance.now();
      const report = await call("POST", v3("topics", LOAD_TOPIC, "records"), { partition_id: turn++ % LOAD_PARTITIONS, value: { type: "JSON", data: { at: Date.now() } } }, mine);
      const now = performance.now();
      if (report.error_code !== 200) throw Object.assign(new Error(report.message), { status: report.error_code });
      longest = Math.max(longest, now - last);
      last = now;
      written++;
      felt = [...felt.filter((each) => Date.now() - each.at_ms < LOAD_SPAN_MS), { at_ms: Date.now(), ms: now - began }];
      load.draw(felt, Date.now(), LOAD_SPAN_MS);
      gap.textContent = `${plural(written, "record")} acknowledged, ${failures} refused; the longest gap between two was ${milliseconds(longest)}.`;
    }, () => failures++);
  }

  put(root, h("h1", {}, `Chaos on node ${session.me.node_id}`), h("p", {}, "What you choose here happens to this node for real. Open another node's console to hurt that one."),
    h("div", { class: "columns" },
      h("section", { class: "card" }, h("h2", {}, "Faults"), changes_ && h("form", { onsubmit: inject }, field("Fault", fault), detail, h("div", { class: "buttons" }, h("button", { type: "submit", class: "danger" }, "Inject"))), active),
      h("section", { class: "card" }, h("h2", {}, "A client"), changes_ && button, load.element, gap)),
    h("div", { class: "columns" }, leaders, events));
  look();
  every(2000, signal, show);
  onMetadata(signal, async () => {
    const { data: all } = await get("/v1/topics", signal);
    const found = all.some((each) => each.topic_name === LOAD_TOPIC) ? await get(path("v1", "topics", LOAD_TOPIC, "replicas"), signal) : { data: [] };
    put(leaders, h("h2", {}, "Leaders and replicas"), found.data.length ? h("ul", { class: "plain" }, found.data.map((each) => h("li", {}, `${number(each.partition_id)}: `, each.replicas.map((one) => cell(one, true))))) : h("p", { class: "quiet" }, "The load has a topic of its own, whose replicas are shown here."));
    put(events, h("h2", {}, "This broker"), story(await get(path("v1", "brokers", session.me.node_id, "why"), signal)));
  });
}
