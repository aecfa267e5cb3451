// Brokers that are decommissioned: begun and ended here, with what moves and what holds it up.

import { ask as call, get, may, path } from "./api.js";
import { ask, field, h, link, note, select, table } from "./dom.js";
import { plural } from "./format.js";

const SHOWN = 8;

const at = (id) => path("v1", "brokers", id, "decommission");

/** Return the progress of each broker that is being decommissioned. A broker that is gone by now has none. */
export async function leavingOf(brokers, signal) {
  const found = await Promise.all(brokers.filter((each) => each.decommissioned).map((each) => get(at(each.broker_id), signal).catch((error) => {
    if (error.status !== 404) throw error;
    return null;
  })));
  return found.filter((each) => each?.decommissioned);
}

/** Return the section of a broker that leaves. */
export function leavingCard(found, look) {
  const { broker_id: id, blocked } = found;
  const name = (each) => link(["why", each.topic, String(each.partition)], `${each.topic}-${each.partition}`);
  const stuck = found.waiting.filter((each) => each.blocked);
  const left = found.replicas - found.moving.length - blocked;
  return h("section", { class: "card leaving", "aria-label": `Broker ${id} leaves` },
    h("div", { class: "bar" }, h("h2", {}, `Broker ${id} leaves `, h("small", {}, `${plural(found.replicas, "replica")} left`)),
      may("ALTER") && h("div", { class: "actions" }, h("button", { type: "button", onclick: () => askStay(id, look) }, "Keep the broker"))),
    blocked > 0 && h("p", { class: "warn" }, `⚠ ${plural(blocked, "partition")} cannot move until you do something:`),
    blocked > 0 && table("Partitions that cannot move", [["Partition", name, "names"], ["Why", (each) => each.reason]], stuck.slice(0, SHOWN)),
    found.moving.length > 0 && table("Partitions that move", [["Moves now", name, "names"], ["To", (each) => each.to.map((to) => `broker ${to}`).join(", ") || "others that have it"]], found.moving.slice(0, SHOWN)),
    h("p", { class: "quiet" }, [
      found.moving.length > SHOWN && `and ${found.moving.length - SHOWN} more that move`,
      blocked > SHOWN && `and ${blocked - SHOWN} more that cannot`,
      left > 0 && `${plural(left, "partition")} whose turn comes`,
      found.replace_with !== null && `broker ${found.replace_with} takes its place`,
      found.replicas === 0 && "it is empty, and will be unregistered",
      found.votes && "its node votes: keep the process running",
    ].filter(Boolean).join(" · ")));
}

/** Ask whether a broker shall leave, and which other gets its replicas. */
export function askLeave(id, brokers, look) {
  const others = brokers.filter((each) => each.broker_id !== id && !each.decommissioned).map((each) => [String(each.broker_id), `broker ${each.broker_id}`]);
  ask(`Decommission broker ${id}`, [
    h("p", {}, "All its replicas move to other brokers, some at a time. Then it is unregistered, and its process may be stopped. Until then it can be kept."),
    field("Its replicas go to", select([["", "any brokers, by rack and load"], ...others], { name: "other" })),
  ], { button: "Decommission", danger: true, send: async ({ other }) => {
    await call("POST", at(id) + (other ? `?replace_with=${other}` : ""));
    note(`Broker ${id} is being decommissioned.`);
    await look();
  } });
}

function askStay(id, look) {
  ask(`Keep broker ${id}`, h("p", {}, "Moves that have begun go on. It keeps its other replicas, and gets new ones again."), { button: "Keep the broker", send: async () => {
    await call("DELETE", at(id));
    note(`Broker ${id} stays.`);
    await look();
  } });
}
