// Settings of a topic or a broker: what was changed comes first; searched, changed and reset.

import { every, get, post, v3 } from "./api.js";
import { ask, changes, dotted, failedIn, field, h, note, put, table } from "./dom.js";

const ORIGINS = { DYNAMIC_TOPIC_CONFIG: "this topic", DYNAMIC_BROKER_CONFIG: "broker, dynamic", DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, dynamic", STATIC_BROKER_CONFIG: "broker's file", DEFAULT_CONFIG: "default" };

/** Show the settings of a resource. `at`: its path below the cluster; `own`: the source of what is set for it alone. */
export function configs(root, { at, own, alters, signal }) {
  let all = [];
  const search = h("input", { type: "search", placeholder: "Search configs  ( / )", "aria-label": "Search configs", "data-search": true, oninput: draw });
  const changed = h("input", { type: "checkbox", onchange: draw });
  const host = h("div");
  put(root, h("div", { class: "bar" }, search, h("label", { class: "check" }, changed, "changed only")), host);
  const isOwn = (each) => each.source === own;

  function draw() {
    const word = search.value.toLowerCase();
    const shown = all.filter((each) => each.name.includes(word) && !(changed.checked && each.is_default));
    shown.sort((a, b) => isOwn(b) - isOwn(a) || a.is_default - b.is_default || a.name.localeCompare(b.name));
    put(host, table("Configs", [
      ["Name", (each) => h(each.is_default ? "span" : "b", {}, dotted(each.name)), "config"],
      ["Value", (each) => h("code", {}, each.is_sensitive ? "(secret)" : each.value ?? ""), "names"],
      ["Origin", (each) => ORIGINS[each.source] ?? each.source, "wide"],
      ...(alters ? [["", (each) => [!each.is_read_only && h("button", { type: "button", onclick: () => alter(each) }, "Change"), isOwn(each) && h("button", { type: "button", onclick: () => save(each.name, "DELETE") }, "Default")], "act stack"]] : []),
    ], shown, changed.checked ? "Nothing was changed." : "No config has this name."));
  }

  async function save(config, operation, value) {
    await post(v3(...at, "configs:alter"), { data: [{ name: config, operation, value }] });
    note(operation === "SET" ? `${config} is ${value} now.` : `${config} is the default again.`);
    await load();
  }

  function alter(each) {
    ask(each.name, field("Value", h("input", { name: "value", value: each.value ?? "", spellcheck: "false" })), { button: "Change", send: (given) => save(each.name, "SET", given.value) });
  }

  const show = changes((found) => ((all = found), draw()));
  const load = async () => show((await get(`${v3(...at, "configs")}?page_size=1000`, signal)).data);
  every(10_000, signal, load, failedIn(host));
}
