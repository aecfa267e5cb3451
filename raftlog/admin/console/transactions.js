// Transactional ids, and hanging transactions.

import { every, get, may, path, post, session } from "./api.js";
import { ask, changes, h, link, note, put, table } from "./dom.js";
import { number, time } from "./format.js";

export function transactions(root, _parts, signal) {
  const hanging = h("section", { class: "card" }, h("h2", {}, "Hanging"), h("p", {}, "Asking …"));
  const ids = h("section", { class: "card" });
  put(root, h("h1", {}, "Transactions"), hanging, ids);
  const showIds = changes((found) => put(ids, h("h2", {}, "Transactional ids"), table("Transactional ids", [
    ["Id", (each) => each.transactional_id, "names"],
    ["State", (each) => each.state],
    ["Open since", (each) => time(each.start_ms), "when"],
    ["Timeout", (each) => (each.timeout_ms < 0 ? "–" : `${number(each.timeout_ms)} ms`), "number wide"],
    ["Producer", (each) => each.producer_id, "number wide"],
    ["Coordinator", (each) => each.coordinator, "number wide"],
  ], found, "There are no transactional ids.")));
  const showHanging = changes((found) => put(hanging, h("h2", {}, "Hanging"), h("p", { class: "quiet" }, "Open in a partition while no coordinator knows of them: consumers of committed records wait for ever."),
    table("Hanging transactions", [
      ["Topic", (each) => link(["topics", each.topic_name], each.topic_name), "names"],
      ["Partition", (each) => each.partition_id, "number"],
      ["Since offset", (each) => number(each.start_offset), "number"],
      ["Last written", (each) => time(each.last_ms), "wide when"],
      ["Producer", (each) => each.producer_id, "number wide"],
      ...(may("ALTER", session.me) ? [["", (each) => h("button", { type: "button", class: "danger", onclick: () => abort(each, look) }, "Abort"), "act"]] : []),
    ], found, "No hanging transactions.")));
  const look = async () => showHanging((await get("/v1/hanging-transactions", signal)).data);
  const failed = (section) => (error) => error.status > 0 && put(section, h("p", { class: "failure", role: "alert" }, error.message));
  every(3000, signal, async () => showIds((await get("/v1/transactions", signal)).data), failed(ids));
  every(10_000, signal, look, failed(hanging));
}

function abort(each, look) {
  ask("Abort the transaction", h("p", {}, `What it wrote to ${each.topic_name}-${each.partition_id} since offset ${number(each.start_offset)} will not be shown to consumers of committed records.`), { button: "Abort", danger: true, send: async () => {
    await post(path("v1", "topics", each.topic_name, "partitions", each.partition_id, "abort"), { start_offset: each.start_offset });
    note("The transaction is aborted.");
    await look();
  } });
}
