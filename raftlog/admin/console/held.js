// What holds back consumers of committed records: the first open transaction of each partition.

import { every, get, path } from "./api.js";
import { changes, h, link, put } from "./dom.js";
import { clock, duration, number, plural, zone } from "./format.js";

const EVERY_MS = 5000;
const AGE_MS = 30_000;
const MOST_TOPICS = 10;
const SHOWN = 6;

/** Keep a section up to date with what holds back the topics that `names` returns; hidden while nothing does. */
export function watchHeld(section, names, signal) {
  const show = changes(({ all }) => {
    section.hidden = !all.length;
    put(section, h("h2", {}, "Held back"), all.map(([topic, found]) => ofTopic(topic, found)));
  });
  section.hidden = true;
  every(EVERY_MS, signal, async () => {
    const found = await Promise.all(names().slice(0, MOST_TOPICS).map(async (topic) => {
      try {
        return [topic, await get(path("v1", "topics", topic, "held-offsets"), signal)];
      } catch (error) {
        if (signal.aborted || error.status === 0) throw error;
        return [topic, { held_partitions: 0 }]; // deleted, or not to be read by this caller
      }
    }));
    show({ all: found.filter(([, each]) => each.held_partitions), at: Math.floor(Date.now() / AGE_MS) });
  });
}

function ofTopic(topic, { held_partitions: held, data }) {
  return [
    h("p", {}, `Consumers of committed records of ${topic} wait in ${plural(held, "partition")}:`),
    h("ul", { class: "plain" }, data.slice(0, SHOWN).map((each) => h("li", { class: "warn" },
      link(["why", topic, each.partition_id], `${topic}-${each.partition_id}`), ` is held at offset ${number(each.last_stable_offset)}, ${number(each.high_watermark - each.last_stable_offset)} before the high watermark, by `, holder(each)))),
    data.length > SHOWN && h("p", { class: "quiet" }, `and ${number(held - SHOWN)} more`),
  ];
}

function holder(each) {
  if (each.transactional_id === null) return each.producer_id === null ? "a transaction that has just ended." : `producer ${each.producer_id}, whose transaction is unknown, or you may not describe it.`;
  return ["transaction ", link(["transactions"], each.transactional_id), each.start_ms >= 0 && each.start_ms !== null ? ` since ${clock(each.start_ms)}${zone(each.start_ms)} (${duration(Math.max(1000, Date.now() - each.start_ms))})` : "", "."];
}
