// Nodes of a cluster of `raftlog dev`: kill, pause, cut off, stop and restart them.

import { ask as call, every, get, may, path, post, session } from "./api.js";
import { ask, changes, failedIn, h, note, put, table } from "./dom.js";
import { plural } from "./format.js";

const EVERY_MS = 1000;
const LOST_MS = 2000;
const CUTS_EVERY_MS = 2000;
const CUT_S = 60;
const STATES = { running: "● running", starting: "◌ starting", paused: "‖ paused", down: "✕ down" };
const ACTIONS = { running: ["pause", "cut", "kill", "stop", "restart"], cut: ["heal", "kill", "restart"], starting: ["kill"], paused: ["resume", "kill", "restart"], down: ["restart"] };
const WORDS = { pause: "Pause", cut: "Cut off", heal: "Heal", kill: "Kill", stop: "Stop", restart: "Restart", resume: "Resume" };
const WILL = { pause: "will be paused", kill: "will be killed", stop: "will be stopped", restart: "will be restarted" };
const DONE = { pause: "is paused", cut: `is cut off for ${CUT_S} seconds`, heal: "reaches the others again", kill: "was killed", stop: "was stopped", restart: "starts", resume: "continues" };
const MEANS = {
  pause: "The process is frozen (SIGSTOP): its connections stay open, without answers.",
  cut: `For ${CUT_S} seconds its connections with the other nodes are closed and refused, as if the network between them were broken. Clients and consoles still reach it. Its partitions get other leaders once its session ends. After that time, or with Heal, it catches up.`,
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
  const cuts = new Map(); // the seconds that are left of cuts, by node
  put(element, h("h2", {}, "Nodes"), rows, lost, h("p", { class: "quiet" }, "The same as ", h("code", {}, "raftlog dev kill"), ", pause, resume, stop and restart. A node that is cut off keeps its clients and its console; the cut ends by itself. ", h("code", {}, "raftlog chaos"), " also cuts single links: it runs nodes in networks of their own."));

  const show = changes((found) => {
    all = found;
    put(rows, table("Nodes", [
      ["Node", (each) => `${each.node_id}${isOwn(each) ? ", this one" : ""}`],
      ["State", (each) => h("span", { class: `state ${each.state}` }, STATES[each.state] ?? each.state, isCut(each) && ` ✂ cut off${cuts.get(each.node_id) ? `, ${cuts.get(each.node_id)} s left` : ""}`)],
      ["Process", (each) => each.pid ?? "–", "number wide"],
      ["Kafka", (each) => each.kafka, "wide names"],
      ...(may("ALTER") ? [["", (each) => (ACTIONS[isCut(each) ? "cut" : each.state] ?? []).map((action) => h("button", { type: "button", class: action === "kill" ? "danger" : "", "aria-label": `${WORDS[action]} node ${each.node_id}`, onclick: () => begin(each, action) }, each.state === "down" ? "Start" : WORDS[action])), "act pack"]] : []),
    ], all));
  });
  const look = async () => {
    const found = await get("/v1/dev/nodes", signal);
    if (Date.now() - lostAt > LOST_MS) put(lost); // the node of this page answers again
    draw(found);
  };
  const draw = (found) => show(found.data.map((each) => ({ ...each, left_s: cuts.get(each.node_id) })));
  const lookForCuts = async () => {
    await Promise.allSettled(all.filter((each) => each.state === "running").map(lookForCut));
    await look();
  };
  const lookForCut = async (each) => {
    const { active } = await get(`/v1/faults?node_id=${each.node_id}`, signal);
    const cut = active.find((one) => one.fault === "cut-off");
    cut ? cuts.set(each.node_id, cut.seconds ?? 0) : cuts.delete(each.node_id);
  };
  const isCut = (each) => each.state === "running" && cuts.has(each.node_id);
  const isOwn = (each) => each.node_id === session.me.node_id;

  /** What loses its node or its majority is confirmed first, and so is each kill. */
  function begin(each, action) {
    const ends = !["resume", "heal"].includes(action) && each.state !== "down";
    const left = all.filter((one) => one.state === "running" && !isCut(one) && one.node_id !== each.node_id).length;
    const least = Math.floor(all.length / 2) + 1;
    const noMajority = ends && each.state === "running" && !isCut(each) && left < least;
    if (!["kill", "cut"].includes(action) && !(ends && isOwn(each)) && !noMajority) return send(each, action).catch((error) => note(error.message, "bad"));
    const others = all.filter((one) => !isOwn(one));
    ask(`${WORDS[action]} node ${each.node_id}`, [
      h("p", {}, MEANS[action]),
      noMajority && h("p", { class: "warn" }, `${plural(left, "node")} of ${all.length} would be left ${action === "cut" ? "together" : "running"}. A majority needs ${least}: until then topics cannot be created, and leaders do not move.`),
      isOwn(each) && action !== "cut" && h("p", { class: "warn" }, `Node ${each.node_id} serves this page, which then gets no answers. It continues when the node does.`, others.length > 0 && [" Watch from ", links(others), "."]),
    ], { button: WORDS[action], danger: true, send: () => send(each, action) });
  }

  async function send(each, action) {
    if (action === "cut" || action === "heal") return sendCut(each, action);
    const found = await post(path("v1", "dev", "nodes", each.node_id), { action });
    note(`Node ${each.node_id} ${isOwn(each) && action !== "resume" ? WILL[action] : DONE[action]}.`);
    if (isOwn(each)) lose(each, action);
    else draw(found);
  }

  async function sendCut(each, action) {
    const where = `?node_id=${each.node_id}`;
    await (action === "cut" ? post(`/v1/faults${where}`, { fault: "cut-off", seconds: CUT_S }) : call("DELETE", `/v1/faults/cut-off${where}`));
    note(`Node ${each.node_id} ${DONE[action]}.`);
    await lookForCuts();
  }

  /** Say how to continue without the node that serves this page. */
  function lose(each, action) {
    const others = all.filter((one) => !isOwn(one));
    lostAt = Date.now();
    const back = action === "pause" ? "resume" : "restart";
    put(lost, h("p", { class: "warn" }, `Node ${each.node_id}, which serves this page, ${DONE[action]}.`, action !== "restart" && [others.length > 0 && [" Open ", links(others), ", or run"], others.length === 0 && " Run", " ", h("code", {}, `raftlog dev ${back} ${each.node_id} -p ${each.kafka.split(":").pop()}`), "."]));
  }

  every(EVERY_MS, signal, look, failedIn(rows));
  every(CUTS_EVERY_MS, signal, lookForCuts);
  return element;
}

const links = (nodes) => nodes.flatMap((each, index) => [index > 0 && ", ", h("a", { href: `${each.http}/#/chaos` }, `node ${each.node_id}`)]);
