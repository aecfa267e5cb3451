// Brokers: disks, leaders, version and uptime of each; one broker with its settings and log levels.

import { ask as call, every, get, may, path, session, v3 } from "./api.js";
import { configs } from "./configs.js";
import { changes, dotted, failedIn, h, link, note, put, select, table, tabs, trail } from "./dom.js";
import { bytes, duration, number, plural, time } from "./format.js";
import { STATES } from "./overview.js";

const TABS = [["", "Disks"], ["configs", "Configs"], ["loggers", "Log levels"]];
const LEVELS = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
const EVERY_MS = 5000;
const MOST_ASKED = 30;
const LITTLE = 0.1;
const UNASKED = { answers: false, rack: null, disks: [], process: null };

const factsOf = (id, signal) => get(path("v1", "brokers", id, "facts"), signal);
const uptime = ({ process }) => (process ? duration(process.now_ms - process.started_ms) : "–");
const space = (disks, of) => (disks.some((each) => each.usable_bytes !== null) ? disks.reduce((sum, each) => sum + of(each), 0) : null);
const free = (disks) => space(disks, (each) => each.usable_bytes ?? 0);
const total = (disks) => space(disks, (each) => each.total_bytes ?? 0);

export function brokers(root, [id, tab = ""], signal) {
  if (id !== undefined) return broker(root, id, tab, signal);
  const host = h("section", { class: "card" }, "Asking …");
  put(root, h("h1", {}, "Brokers"), host);
  const show = changes((found) => put(host, table("Brokers", [
    ["Broker", (each) => link(["brokers", each.broker_id], String(each.broker_id))],
    ["Address", (each) => each.address, "wide names"],
    ["State", (each) => h("span", { class: `state ${each.state}` }, STATES[each.state] ?? each.state)],
    ["Rack", (each) => each.rack ?? "–", "wider names"],
    ["Leaders", (each) => number(each.leaders), "number"],
    ["Replicas", (each) => [number(each.replicas), each.out_of_sync > 0 && h("span", { class: "warn" }, ` (${number(each.out_of_sync)} out of sync)`)], "number wide"],
    ["Free", (each) => (each.answers ? `${bytes(free(each.disks))} of ${bytes(total(each.disks))}` : "unknown"), "number wide"],
    ["Version", (each) => each.process?.version ?? "–", "wide"],
    ["Uptime", uptime, "number wide"],
  ], found, "No broker has registered yet."), unknown(found), found.length > MOST_ASKED && h("p", { class: "quiet" }, `The first ${MOST_ASKED} brokers were asked. Choose another one to see what it has.`)));
  every(EVERY_MS, signal, async () => {
    const [health, { data }] = await Promise.all([get("/v1/health", signal), get(v3("brokers"), signal)]);
    const address = new Map(data.map((each) => [each.broker_id, `${each.host}:${each.port}`]));
    const answers = await Promise.allSettled(health.brokers.map((each, index) => (index < MOST_ASKED ? factsOf(each.broker_id, signal) : UNASKED)));
    if (signal.aborted) return;
    show(health.brokers.map((each, index) => ({ ...UNASKED, ...answers[index].value, broker_id: each.broker_id, state: each.state, address: address.get(each.broker_id) ?? "?" })));
  }, failedIn(host));
}

/** Why versions and uptimes of brokers that answer are unknown. */
function unknown(found) {
  const silent = found.filter((each) => each.answers && each.process_unknown);
  return silent.length > 0 && h("p", { class: "quiet" }, `Version and uptime of broker ${silent.map((each) => each.broker_id).join(", ")} are unknown: ${silent[0].process_unknown}.`);
}

function broker(root, id, tab, signal) {
  const facts = h("p", { class: "quiet", role: "status" });
  const body = h("div", { class: "tab" });
  put(root, trail(link(["brokers"], "Brokers")),
    h("div", { class: "bar" }, h("h1", { class: "name" }, `Broker ${id}`), h("div", { class: "actions" }, link(["why", id], "History"))), facts,
    tabs("Views of the broker", ["brokers", id], TABS, tab), body);
  if (tab === "configs") configs(body, { at: ["brokers", id], own: "DYNAMIC_BROKER_CONFIG", alters: may("ALTER"), signal });
  const show = changes(tab === "loggers" ? (found) => drawLoggers(body, id, found, load) : tab === "configs" ? () => {} : (found) => drawDisks(body, found));
  async function load() {
    const found = await factsOf(id, signal);
    facts.textContent = [
      found.is_fenced ? "⊘ fenced" : found.answers ? "● in service" : "◌ does not answer",
      plural(found.leaders, "leader"), plural(found.replicas, "replica"), found.out_of_sync > 0 && `${number(found.out_of_sync)} out of sync`,
      found.rack && `rack ${found.rack}`,
      found.process ? `version ${found.process.version} · up for ${uptime(found)}, since ${time(found.process.started_ms)}` : `version unknown: ${found.process_unknown}`,
      Number(id) === session.me.node_id && "this node",
    ].filter(Boolean).join(" · ");
    show(tab === "loggers" ? found.loggers : [found.disks, found.answers]);
  }
  every(EVERY_MS, signal, load, (error) => error.status > 0 && (facts.textContent = error.message));
}

function drawDisks(root, [disks, answers]) {
  const used = (each) => each.total_bytes - each.usable_bytes;
  put(root, h("section", { class: "card" }, h("h2", {}, "Disks"), table("Disks", [
    ["Log directory", (each) => h("code", {}, each.log_dir), "names"],
    ["State", (each) => (each.is_offline ? h("span", { class: "bad" }, "✕ offline") : each.usable_bytes === 0 ? h("span", { class: "bad" }, "✕ full") : each.usable_bytes < LITTLE * each.total_bytes ? h("span", { class: "warn" }, "◐ nearly full") : h("span", { class: "state" }, "● online"))],
    ["Used", (each) => (each.total_bytes === null ? "–" : `${bytes(used(each))} (${Math.round((100 * used(each)) / Math.max(1, each.total_bytes))} %)`), "number wide"],
    ["Free", (each) => bytes(each.usable_bytes), "number"],
    ["Size", (each) => bytes(each.total_bytes), "number wide"],
  ], disks, answers ? "The broker has no log directory." : "The broker does not answer, so its disks are unknown."),
  h("p", { class: "quiet" }, "Used: everything on the file system of the log directory.")));
}

function drawLoggers(root, id, loggers, look) {
  const set = (name) => async (event) => {
    try {
      await call("PUT", path("v1", "brokers", id, "loggers", name), { level: event.target.value });
      note(`${name} logs from ${event.target.value} on.`);
    } catch (error) {
      note(error.message, "bad");
    }
    await look().catch(() => {});
  };
  put(root, h("section", { class: "card" }, h("h2", {}, "Log levels"), table("Log levels", [
    ["Logger", (each) => h("code", {}, dotted(each.name)), "config"],
    ["Level", (each) => (may("ALTER_CONFIGS") ? select(LEVELS, { value: each.level, "aria-label": `Level of ${each.name}`, onchange: set(each.name) }) : each.level)],
  ], loggers, "The broker does not answer, or you may not see its loggers."), h("p", { class: "quiet" }, "A level holds until the process ends.")));
}
