"""ListOffsets: special timestamps, times, versions, and logs of every shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog.records.batch import Record, new_record
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session

SPECIAL: Final = (-1, -2, -3, -4, -5, -6, -7)
TIMES: Final = (-10, -5, 0, 1, 5, 10, 15, 20, 25, 5_000_000)
"""Milliseconds after the history's start."""


def at(s: Session, after_ms: int, value: bytes = b"a") -> Record:
    """Return a record with a time."""
    return new_record(None, value, timestamp=s.at(after_ms))


def ask_all(s: Session, topic: str, version: int, *, isolation: int = 0) -> None:
    """Ask for every special timestamp, and for times around the records'."""
    for timestamp in SPECIAL:
        s.list_offsets(topic, timestamp, version=version, isolation=isolation)
    for after_ms in TIMES:
        s.list_offsets(topic, s.at(after_ms), version=version, isolation=isolation)
    for timestamp in (0, 2**63 - 1):
        s.list_offsets(topic, timestamp, version=version, isolation=isolation)


@history({f"v{version}": version for version in range(1, 12)})
def version(s: Session, version: int) -> None:
    """Every version knows its special timestamps: -3 since 7, -4 since 8, -5 since 9, -6 since 11."""
    topic = s.topic()
    s.produce(topic, s.batch(at(s, 0), at(s, 10)))
    s.produce(topic, s.batch(at(s, 20)))
    ask_all(s, topic, version)


LOGS: Final[dict[str, Callable[[Session, str], object]]] = {
    "empty": lambda s, topic: None,
    "compressed": lambda s, topic: s.produce(topic, s.batch(at(s, 0), at(s, 10), at(s, 20), codec=2)),
    "without times": lambda s, topic: s.produce(topic, s.batch(new_record(None, b"a", timestamp=-1))),
    "times out of order": lambda s, topic: s.produce(topic, s.batch(at(s, 20), at(s, 0), at(s, 10))),
    "batches out of order": lambda s, topic: [
        s.produce(topic, s.batch(at(s, after_ms))) for after_ms in (20, 0, 10)
    ],
    "equal times": lambda s, topic: [
        s.produce(topic, s.batch(at(s, 10), at(s, 10), at(s, 0), at(s, 10))) for _ in range(2)
    ],
    "equal times, compressed": lambda s, topic: s.produce(
        topic, s.batch(at(s, 0), at(s, 10), at(s, 10), codec=1)
    ),
    "some without times": lambda s, topic: s.produce(
        topic, s.batch(at(s, 10), new_record(None, b"a", timestamp=-1))
    ),
    "times of 1970": lambda s, topic: s.produce(
        topic, s.batch(*(new_record(None, b"a", timestamp=each) for each in (0, 1, 5)))
    ),
}


@history(LOGS)
def log(s: Session, fill: Callable[[Session, str], object]) -> None:
    """A time gives the first record that is as late, -3 the first of the latest."""
    topic = s.topic()
    fill(s, topic)
    ask_all(s, topic, 11)


CONFIGS: Final[dict[str, Mapping[str, str | int]]] = {
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "segments": {"segment.ms": 1},
    "compacted": {"cleanup.policy": "compact"},
}


@history(CONFIGS)
def config(s: Session, configs: Mapping[str, str | int]) -> None:
    """A topic's settings do not change what a time is."""
    topic = s.topic(configs=configs)
    for after_ms in (0, 10, 20):
        s.produce(topic, s.batch(new_record(b"key", b"a", timestamp=s.at(after_ms))))
        await_next_millisecond()
    ask_all(s, topic, 11)


def await_next_millisecond() -> None:
    """Return when the next batch gets another append time."""
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now_ms:
        pass


@history({str(offset): offset for offset in (1, 2, 3, 4, 5, -1)})
def after_deleted_records(s: Session, offset: int) -> None:
    """Records below the log's start are not found."""
    topic = s.topic()
    s.produce(topic, s.batch(at(s, 0), at(s, 10)))
    s.produce(topic, s.batch(at(s, 20), at(s, 15), at(s, 5)))
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    s.ask("DeleteRecords", 2, node=s.leader(topic), topics=topics, timeout=10_000)
    ask_all(s, topic, 11)


@history(
    {f"{isolation} in v{version}": (isolation, version) for isolation in (1, 2, -1) for version in (2, 7, 11)}
)
def isolation(s: Session, row: tuple[int, int]) -> None:
    """Without transactions all that is committed is stable."""
    isolation, version = row
    topic = s.topic()
    s.produce(topic, s.batch(at(s, 0), at(s, 10)))
    for timestamp in (*SPECIAL, s.at(5)):
        s.list_offsets(topic, timestamp, version=version, isolation=isolation)


def wanted(name: str, *partitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a request says of a topic."""
    return {"name": name, "partitions": partitions}


LATEST: Final = {"partition_index": 0, "timestamp": -1}
SHAPES: Final[dict[str, Callable[[Session, str], list[Mapping[str, Any]]]]] = {
    "no topic": lambda s, topic: [],
    "no partition": lambda s, topic: [wanted(topic)],
    "a partition that is not there": lambda s, topic: [
        wanted(topic, {"partition_index": 7, "timestamp": -1}, LATEST)
    ],
    "a partition of -1": lambda s, topic: [wanted(topic, {"partition_index": -1, "timestamp": -1})],
    "a topic that is not there": lambda s, topic: [wanted(s.name("missing"), LATEST), wanted(topic, LATEST)],
    "an empty name": lambda s, topic: [wanted("", LATEST)],
    "a name that no topic can have": lambda s, topic: [wanted("a topic/", LATEST)],
    "a partition twice": lambda s, topic: [wanted(topic, LATEST, {"partition_index": 0, "timestamp": -2})],
    "a topic twice": lambda s, topic: [
        wanted(topic, LATEST),
        wanted(topic, {"partition_index": 1, "timestamp": -2}),
    ],
    "a partition twice in two topics": lambda s, topic: [wanted(topic, LATEST), wanted(topic, LATEST)],
    "an epoch of the leader": lambda s, topic: [wanted(topic, {**LATEST, "current_leader_epoch": 0})],
    "a newer epoch": lambda s, topic: [wanted(topic, {**LATEST, "current_leader_epoch": 1})],
    "an epoch of -2": lambda s, topic: [wanted(topic, {**LATEST, "current_leader_epoch": -2})],
    "a newer epoch and a time": lambda s, topic: [
        wanted(topic, {"current_leader_epoch": 1, "timestamp": s.at(5)})
    ],
}


@history({f"{name} in v{each}": (shape, each) for name, shape in SHAPES.items() for each in (4, 11)})
def shape(s: Session, row: tuple[Callable[[Session, str], list[Mapping[str, Any]]], int]) -> None:
    """Each partition gets its own answer; a partition that is named twice is an error."""
    shape, version = row
    topic = s.topic(partitions=2)
    s.produce(topic, s.batch(at(s, 0), at(s, 10)))
    s.ask("ListOffsets", version, node=s.leader(topic), replica_id=-1, topics=shape(s, topic))


@history({str(replica): replica for replica in (-2, -3, 0, 77)})
def replica_id(s: Session, replica: int) -> None:
    """Replicas ask for the log's end, consumers for the high watermark."""
    topic = s.topic()
    s.produce(topic, s.batch(at(s, 0), at(s, 10)))
    for timestamp in (-1, -2, -3, s.at(5)):
        topics = [wanted(topic, {"partition_index": 0, "timestamp": timestamp})]
        s.ask("ListOffsets", 7, node=s.leader(topic), replica_id=replica, topics=topics)


@history({"none": 0, "negative": -1, "a second": 1000})
def timeout(s: Session, timeout_ms: int) -> None:
    """A timeout is for offsets in remote storage only."""
    topic = s.topic()
    s.produce(topic, s.batch(at(s, 0)))
    topics = [wanted(topic, LATEST)]
    s.ask("ListOffsets", 10, node=s.leader(topic), replica_id=-1, topics=topics, timeout=timeout_ms)
