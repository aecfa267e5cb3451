"""Retention and compaction: what is left of logs in small segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raftlog.records.batch import Record, new_record
from raftlog_chaos.conformance import batches
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session
from raftlog_chaos.conformance.transacting import Transacting

SEGMENT_MS: Final = 1_000
"""Batches with timestamps further apart than this are in different segments."""
APART_MS: Final = 5_000
HOUR_MS: Final = 3_600_000


def keyed(s: Session, step: int, key: bytes, value: bytes | None) -> Record:
    """Return a record of the batch number `step`."""
    return new_record(key, value, timestamp=s.at(step * APART_MS))


def fill(s: Session, topic: str, *pairs: tuple[bytes, bytes | None]) -> None:
    """Write a segment for each pair of key and value."""
    for step, (key, value) in enumerate(pairs):
        s.produce(topic, s.batch(keyed(s, step, key, value)))


def start_of(s: Session, topic: str) -> int:
    """Look at the log's start."""
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    answer = s.query("ListOffsets", 5, node=s.leader(topic), replica_id=-1, topics=topics)
    return int(answer["topics"][0]["partitions"][0]["offset"])


def records_of(s: Session, topic: str) -> list[Mapping[str, Any]]:
    """Look at the records that are left, control records too. Batches may be left empty, or gone."""
    found: list[Mapping[str, Any]] = []
    offset = start_of(s, topic)
    while offset < (end := s.end_offset(topic)):
        topics = [
            {
                "topic": topic,
                "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 99999}],
            }
        ]
        answer = s.query("Fetch", 12, node=s.leader(topic), max_wait=0, max_bytes=99999, topics=topics)
        records = answer["responses"][0]["partitions"][0]["records"]
        found += [each for batch in batches.read(records) or () for each in batch["records"]]
        offset = max(batches.end_offset(records or b""), offset + 1) if records else end
    return found


def offsets_of(s: Session, topic: str) -> list[int]:
    """Look at the offsets of the records that are left."""
    return [each["offset"] for each in records_of(s, topic)]


def set_config(s: Session, topic: str, configs: Mapping[str, Any]) -> None:
    """Set configs of a topic, once it is filled."""
    wanted = [{"name": name, "config_operation": 0, "value": str(value)} for name, value in configs.items()]
    s.query(
        "IncrementalAlterConfigs",
        1,
        resources=[{"resource_type": 2, "resource_name": topic, "configs": wanted}],
    )


KEPT: Final[dict[str, tuple[Mapping[str, int], int]]] = {
    "by age, all": ({"retention.ms": 60_000}, 4),
    "by size": ({"retention.bytes": 160}, 2),
    "by size, none": ({"retention.bytes": 0}, 4),
    "by size, the last batch": ({"retention.bytes": 1}, 3),
}


@history(KEPT, slow=True)
def retention(s: Session, row: tuple[Mapping[str, int], int]) -> None:
    """Segments that are too old or too many are deleted, the active segment too where it is too old."""
    configs, start = row
    topic = s.topic(configs={"segment.ms": SEGMENT_MS, "retention.ms": -1})
    fill(s, topic, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4"))
    set_config(s, topic, configs)
    s.wait("old segments are deleted", lambda: start_of(s, topic) == start, within_s=60)
    s.list_offsets(topic, -2, version=7)
    s.list_offsets(topic, -1, version=7)
    s.fetch(topic, 0)
    s.read(topic, start)


@history(slow=True)
def retention_by_age(s: Session) -> None:
    """Segments with all records older than retention.ms are deleted, and no others."""
    topic = s.topic(configs={"segment.ms": SEGMENT_MS, "retention.ms": HOUR_MS})
    for after_ms in (-3 * HOUR_MS, -2 * HOUR_MS, 0, APART_MS):
        s.produce(topic, s.batch(new_record(b"a", b"1", timestamp=s.at(after_ms))))
    s.wait("old segments are deleted", lambda: start_of(s, topic) == 2)
    s.observe("the offsets that are left", offsets_of(s, topic))


@history(slow=True)
def retention_of_records_without_times(s: Session) -> None:
    """A record without a timestamp is as old as its segment's file."""
    topic = s.topic(configs={"segment.ms": SEGMENT_MS, "retention.ms": 60_000})
    other = s.topic("other", configs={"segment.ms": SEGMENT_MS, "retention.ms": 60_000})
    s.produce(topic, s.batch(new_record(None, b"a", timestamp=-1)))
    fill(s, other, (b"a", b"1"))
    s.wait("an old record is deleted", lambda: start_of(s, other) == 1, within_s=60)
    s.list_offsets(topic, -2, version=7)


COMPACTED: Final[dict[str, tuple[tuple[tuple[bytes, bytes | None], ...], list[int]]]] = {
    "the last of each key": (((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"z", b"4")), [1, 2, 3]),
    "one key": (((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"a", b"4"), (b"z", b"5")), [3, 4]),
    "the active segment": (((b"a", b"1"), (b"b", b"2"), (b"a", b"3")), [0, 1, 2]),
    "a tombstone": (((b"a", b"1"), (b"b", b"2"), (b"a", None), (b"z", b"4")), [1, 2, 3]),
}
COMPACT: Final[Mapping[str, Any]] = {
    "cleanup.policy": "compact",
    "segment.ms": SEGMENT_MS,
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": 1_000_000,
}


@history(COMPACTED, slow=True)
def compaction(s: Session, row: tuple[tuple[tuple[bytes, bytes | None], ...], list[int]]) -> None:
    """Compaction keeps the last record of each key, and does not change the active segment."""
    pairs, left = row
    topic = s.topic(configs=COMPACT)
    fill(s, topic, *pairs)
    s.wait("it is compacted", lambda: offsets_of(s, topic) == left, within_s=60)
    s.observe("the records that are left", records_of(s, topic))
    for timestamp in (-1, -2, -3, s.at(APART_MS)):
        s.list_offsets(topic, timestamp, version=7)


@history(slow=True)
def a_batch_in_part(s: Session) -> None:
    """A batch keeps the records that are the last of their keys, and its offsets."""
    topic = s.topic(configs=COMPACT)
    s.produce(topic, s.batch(keyed(s, 0, b"a", b"1"), keyed(s, 0, b"b", b"2"), keyed(s, 0, b"c", b"3")))
    s.produce(topic, s.batch(keyed(s, 1, b"a", b"4"), keyed(s, 1, b"c", b"5"), codec=1))
    s.produce(topic, s.batch(keyed(s, 2, b"z", b"6")))
    s.wait("it is compacted", lambda: offsets_of(s, topic) == [1, 3, 4, 5], within_s=60)
    s.observe("the records that are left", records_of(s, topic))


@history({"protocol 1": 1, "protocol 2": 2}, slow=True)
def compacted_transactions(s: Session, protocol: int) -> None:
    """Records of an aborted transaction go, whatever their keys."""
    topic = s.topic(partitions=2, configs=COMPACT)
    t = Transacting(s, protocol, topic=topic)
    s.produce(topic, s.batch(keyed(s, 0, b"a", b"1")))
    t.run("init begin")
    t.send(keyed(s, 1, b"a", b"2"))
    t.run("abort")
    s.produce(topic, s.batch(new_record(b"z", b"6", timestamp=s.at(600_000))))
    s.wait("it is compacted", lambda: 1 not in offsets_of(s, topic), within_s=60)
    s.observe("the offsets that are left", offsets_of(s, topic))
    s.list_offsets(topic, -1, version=7, isolation=1)
