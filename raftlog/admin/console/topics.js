// All topics: searched, sorted, and as many as there are.

import { get, may, onMetadata, post, v3 } from "./api.js";
import { ask, field, h, link, note, put } from "./dom.js";
import { number, plural } from "./format.js";
import { list } from "./list.js";

export function topics(root, _parts, signal) {
  let all = [], shown = [], order = null;
  const search = h("input", { type: "search", placeholder: "Search topics  ( / )", "aria-label": "Search topics", "data-search": true, spellcheck: "false", oninput: draw, onkeydown: (event) => event.key === "ArrowDown" && (event.preventDefault(), rows.focus()) });
  const internal = h("input", { type: "checkbox", onchange: draw });
  const count = h("span", { class: "quiet", role: "status" });
  const rows = list({
    label: "Topics",
    empty: "No topic has this name.",
    opened: (each) => (location.hash = `#/topics/${encodeURIComponent(each.topic_name)}`),
    sorted: (by, up) => ((order = { by, up }), draw()),
    columns: [
      { title: "Topic", kind: "name", cell: (each) => link(["topics", each.topic_name], each.topic_name), sort: (each) => each.topic_name },
      { title: "Partitions", kind: "number", cell: (each) => number(each.partitions), sort: (each) => each.partitions },
      { title: "Replicas", kind: "number wide", cell: (each) => each.replication_factor, sort: (each) => each.replication_factor },
      { title: "State", kind: "state-cell", cell: state, sort: (each) => -(each.leaderless * 1e6 + each.under_replicated) },
    ],
  });

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = all.filter((each) => (internal.checked || !each.is_internal) && words.every((word) => each.topic_name.toLowerCase().includes(word)));
    if (order) {
      const { by, up } = order;
      shown.sort((a, b) => ((by(a) > by(b)) - (by(a) < by(b))) * (up ? 1 : -1));
    }
    count.textContent = plural(shown.length, "topic");
    rows.set(shown.length, (index) => shown[index]);
  }

  put(root, h("div", { class: "bar" }, h("h1", {}, "Topics"), search, h("label", { class: "check" }, internal, "internal"), count, may("CREATE") && h("button", { type: "button", class: "primary", onclick: create }, "Create a topic")), rows.element);
  onMetadata(signal, async () => {
    ({ data: all } = await get("/v1/topics", signal));
    draw();
  }, (error) => error.status > 0 && note(error.message, "bad"));
}

function state(each) {
  if (each.leaderless) return h("span", { class: "bad" }, `✕ ${number(each.leaderless)} offline`);
  if (each.under_replicated) return h("span", { class: "warn" }, `◐ ${number(each.under_replicated)} under-replicated`);
  return h("span", {}, "● in sync");
}

function create() {
  const whole = (text) => (text === "" ? null : Number(text));
  ask("Create a topic", [
    field("Name", h("input", { name: "name", required: true, maxlength: 249, spellcheck: "false" })),
    h("div", { class: "pair" }, field("Partitions", h("input", { name: "partitions", type: "number", min: 1, placeholder: "default" })), field("Replicas", h("input", { name: "replicas", type: "number", min: 1, placeholder: "default" }))),
    field("Configs", h("textarea", { name: "configs", rows: 3, spellcheck: "false", placeholder: "cleanup.policy=compact" }), "one name=value in a line"),
  ], { button: "Create", ready: (given) => given.name !== "", send: async (given) => {
    const configs = given.configs.split("\n").filter((line) => line.trim()).map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`Configs: ${line} is not name=value.`);
      return { name: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
    });
    await post(v3("topics"), { topic_name: given.name, partitions_count: whole(given.partitions), replication_factor: whole(given.replicas), configs });
    note(`Topic ${given.name} is created.`);
    location.hash = `#/topics/${encodeURIComponent(given.name)}`;
  } });
}
