// Transactional ids, and hanging transactions.

import { every, get, may, path, post, session } from "./api.js";
import { ask, changes, failedIn, h, link, note, put, table } from "./dom.js";
import { duration, number, time } from "./format.js";

const MOST_ASKED = 20;
const SHOWN = 6;
const OLD_MS = 60_000;

export function transactions(root, _parts, signal) {
  const hanging = h("section", { class: "card" }, h("h2", {}, "Hanging"), h("p", {}, "Asking …"));
  const ids = h("section", { class: "card" });
  put(root, h("h1", {}, "Transactions"), hanging, ids);
  const showIds = changes(({ data, wrote }) => put(ids, h("h2", {}, "Transactional ids"), table("Transactional ids", [
    ["Id", (each) => each.transactional_id, "names"],
    ["State", (each) => each.state],
    ["Open for", (each) => age(each.start_ms), "names"],
    ["Wrote to", (each) => places(wrote[each.transactional_id]), "names"],
    ["Timeout", (each) => (each.timeout_ms < 0 ? "–" : duration(each.timeout_ms)), "wide"],
    ["Producer", (each) => each.producer_id, "number wide"],
    ["Coordinator", (each) => each.coordinator, "number wide"],
  ], data, "There are no transactional ids.")));

  /** Add the partitions that the first open transactions wrote to; open transactions come first. */
  async function load() {
    const { data } = await get("/v1/transactions", signal);
    data.sort((a, b) => (b.start_ms > 0) - (a.start_ms > 0) || a.start_ms - b.start_ms);
    const open = data.filter((each) => each.start_ms > 0).slice(0, MOST_ASKED);
    const wrote = await Promise.all(open.map(async ({ transactional_id: id }) => {
      try {
        return [id, (await get(path("v1", "transactions", id), signal)).partitions];
      } catch (error) {
        if (signal.aborted || error.status !== 404) throw error;
        return [id, []]; // it has expired meanwhile
      }
    }));
    showIds({ data, wrote: Object.fromEntries(wrote), at: open.length ? Math.floor(Date.now() / 10_000) : 0 });
  }

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
  every(3000, signal, load, failedIn(ids));
  every(10_000, signal, look, failedIn(hanging));
}

/** How long a transaction is open, in red where consumers of committed records wait long. */
function age(since) {
  if (since < 0) return "–";
  const ms = Math.max(1000, Date.now() - since);
  return h("span", { class: ms > OLD_MS ? "bad" : null, title: time(since) }, duration(ms));
}

function places(partitions) {
  if (!partitions?.length) return "–";
  return [partitions.slice(0, SHOWN).map((each) => [link(["topics", each.topic_name], `${each.topic_name}-${each.partition_id}`), " "]), partitions.length > SHOWN && `and ${partitions.length - SHOWN} more`];
}

function abort(each, look) {
  ask("Abort the transaction", h("p", {}, `What it wrote to ${each.topic_name}-${each.partition_id} since offset ${number(each.start_offset)} will not be shown to consumers of committed records.`), { button: "Abort", danger: true, send: async () => {
    await post(path("v1", "topics", each.topic_name, "partitions", each.partition_id, "abort"), { start_offset: each.start_offset });
    note("The transaction is aborted.");
    await look();
  } });
}
