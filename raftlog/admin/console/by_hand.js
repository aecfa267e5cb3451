// Records of a queue that an operator releases or archives, whichever members hold them.

import { path, post } from "./api.js";
import { ask, field, h, note } from "./dom.js";
import { number, plural } from "./format.js";

const ACTIONS = {
  release: { title: "Release records", button: "Release", done: "released", says: "Members that hold these records lose them, and other members get them. A record after its last delivery is archived." },
  archive: { title: "Archive records", button: "Archive", done: "archived", danger: true, says: "No member gets these records again, and members that hold them lose them. They get dead letters if the group has a topic for these." },
};
const LEFT = { released: "released", archived: "archived", available: "left as they are", pending: "acknowledged just now", done: "done before", not_fetched: "not fetched yet" };

/** Return the two buttons for records of a partition, disabled if none is in flight; `offset` is that of a single record. */
export const buttons = (id, partition, offset = null) => Object.entries(ACTIONS).map(([action, { button, danger }]) => {
  const what = `${button} ${offset === null ? "records" : `offset ${offset}`} of ${partition.topic_name}, partition ${partition.partition_id}`;
  return h("button", { type: "button", class: danger && "danger", "aria-label": what, disabled: (partition.in_flight ?? partition.lag) === 0, onclick: () => open(action, id, partition, offset) }, button);
});

function open(action, id, { topic_name: topic, partition_id: partition }, offset) {
  const { title, button, done, danger, says } = ACTIONS[action];
  const first = h("input", { name: "first", type: "number", min: 0, value: offset ?? "", placeholder: "all in flight" });
  const last = h("input", { name: "last", type: "number", min: 0, value: offset ?? "", placeholder: "the same" });
  const sentence = h("p", { role: "status" });
  function say() {
    const count = last.value === "" ? 1 : Number(last.value) - Number(first.value) + 1;
    const from = number(Number(first.value));
    const which = first.value === "" ? "All that is in flight" : count === 1 ? `Offset ${from}` : `${plural(count, "offset")} from ${from} on`;
    sentence.textContent = `${which} of ${topic}, partition ${partition}. ${says}`;
  }
  say();
  ask(`${title} of ${id}`, [h("div", { class: "bar", oninput: say }, field("First offset", first), field("Last offset", last)), sentence], {
    button,
    danger,
    ready: (given) => (given.first === "" ? given.last === "" : given.last === "" || Number(given.last) >= Number(given.first)),
    send: async (given) => {
      const body = given.first === "" ? {} : { first_offset: Number(given.first), last_offset: Number(given.last === "" ? given.first : given.last) };
      const found = await post(path("v1", "share-groups", id, "topics", topic, "partitions", partition, action), body);
      const counts = Object.entries(LEFT).filter(([name]) => found[name]).map(([name, words]) => `${number(found[name])} ${words}`);
      note(`${topic}, partition ${partition}: ${counts.join(", ") || "nothing is in flight"}.`, found[done] ? "good" : "bad");
    },
  });
}
