// Nodes of a cluster of `raftlog dev`: kill, pause, stop and restart them.

import { every, get, may, path, post, session } from "./api.js";
import { ask, changes, failedIn, h, note, put, table } from "./dom.js";
import { plural } from "./format.js";

const EVERY_MS = 1000;
const LOST_MS = 2000;
const STATES = { running: "● running", starting: "◌ starting", paused: "‖ paused", down: "✕ down" };
const ACTIONS = { running: ["pause", "kill", "stop", "restart"], starting: ["kill"], paused: ["resume", "kill", "restart"], down: ["restart"] };
const WORDS = { pause: "Pause", kill: "Kill", stop: "Stop", restart: "Restart", resume: "Resume" };
const WILL = { pause: "will be paused", kill: "will be killed", stop: "will be stopped", restart: "will be restarted" };
const DONE = { pause: "is paused", kill: "was killed", stop: "was stopped", restart: "starts", resume: "continues" };
const MEANS = {
  pause: "The process is frozen (SIGSTOP): its connections stay open, without answers.",
  kill: "The process ends at once (kill -9), as by a crash. Its data stays, and restart starts it again.",
  stop: "The process ends in order: its leaderships go to other nodes first.",
  restart: "The process is killed (kill -9) and started again on its data.",
};

/** Return a card of the nodes, kept up to date. */
export function nodesCard(signal) {
  const element = h("section", { class: "card" }, "Asking …");
  const lost = h("div", { role: "status" });
  const rows = h("div");
  let all = [], lostAt = 0;
  put(element, h("h2", {}, "Nodes"), rows, lost, h("p", { class: "quiet" }, "The same as ", h("code", {}, "raftlog dev kill"), ", pause, resume, stop and restart. To cut a node off from the others, see Faults. ", h("code", {}, "raftlog chaos"), " also cuts single links: it runs nodes in networks of their own."));

  const show = changes((found) => {
    all = found.data;
    put(rows, table("Nodes", [
      ["Node", (each) => `${each.node_id}${isOwn(each) ? ", this one" : ""}`],
      ["State", (each) => h("span", { class: `state ${each.state}` }, STATES[each.state] ?? each.state)],
      ["Process", (each) => each.pid ?? "–", "number wide"],
      ["Kafka", (each) => each.kafka, "wide names"],
      ...(may("ALTER") ? [["", (each) => (ACTIONS[each.state] ?? []).map((action) => h("button", { type: "button", class: action === "kill" ? "danger" : "", "aria-label": `${WORDS[action]} node ${each.node_id}`, onclick: () => begin(each, action) }, each.state === "down" ? "Start" : WORDS[action])), "act pack"]] : []),
    ], all));
  });
  const look = async () => {
    const found = await get("/v1/dev/nodes", signal);
    if (Date.now() - lostAt > LOST_MS) put(lost); // the node of this page answers again
    show(found);
  };
  const isOwn = (each) => each.node_id === session.me.node_id;

  /** What loses its node or its majority is confirmed first, and so is each kill. */
  function begin(each, action) {
    const ends = action !== "resume" && each.state !== "down";
    const left = all.filter((one) => one.state === "running" && one.node_id !== each.node_id).length;
    const least = Math.floor(all.length / 2) + 1;
    const noMajority = ends && each.state === "running" && left < least;
    if (action !== "kill" && !(ends && isOwn(each)) && !noMajority) return send(each, action).catch((error) => note(error.message, "bad"));
    const others = all.filter((one) => !isOwn(one));
    ask(`${WORDS[action]} node ${each.node_id}`, [
      h("p", {}, MEANS[action]),
      noMajority && h("p", { class: "warn" }, `${plural(left, "node")} of ${all.length} would be left running. A majority needs ${least}: until then topics cannot be created, and leaders do not move.`),
      isOwn(each) && h("p", { class: "warn" }, `Node ${each.node_id} serves this page, which then gets no answers. It continues when the node does.`, others.length > 0 && [" Watch from ", links(others), "."]),
    ], { button: WORDS[action], danger: true, send: () => send(each, action) });
  }

  async function send(each, action) {
    const found = await post(path("v1", "dev", "nodes", each.node_id), { action });
    note(`Node ${each.node_id} ${isOwn(each) && action !== "resume" ? WILL[action] : DONE[action]}.`);
    if (isOwn(each)) lose(each, action);
    else show(found);
  }

  /** Say how to continue without the node that serves this page. */
  function lose(each, action) {
    const others = all.filter((one) => !isOwn(one));
    lostAt = Date.now();
    const back = action === "pause" ? "resume" : "restart";
    put(lost, h("p", { class: "warn" }, `Node ${each.node_id}, which serves this page, ${DONE[action]}.`, action !== "restart" && [others.length > 0 && [" Open ", links(others), ", or run"], others.length === 0 && " Run", " ", h("code", {}, `raftlog dev ${back} ${each.node_id} -p ${each.kafka.split(":").pop()}`), "."]));
  }

  every(EVERY_MS, signal, look, failedIn(rows));
  return element;
}

const links = (nodes) => nodes.flatMap((each, index) => [index > 0 && ", ", h("a", { href: `${each.http}/#/chaos` }, `node ${each.node_id}`)]);
