"""DeleteRecords: offsets of every kind, topics that may not, and what readers see then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session

MAX64: Final = 2**63 - 1


def ask(s: Session, topics: list[Mapping[str, Any]], *, version: int = 2, timeout_ms: int = 10_000) -> None:
    """Delete records."""
    s.ask("DeleteRecords", version, topics=topics, timeout=timeout_ms)


def wanted(name: str, *offsets: int, first: int = 0) -> Mapping[str, Any]:
    """Return what a request says of a topic: offsets for partitions from `first` on."""
    return {
        "name": name,
        "partitions": [
            {"partition_index": first + at, "offset": offset} for at, offset in enumerate(offsets)
        ],
    }


def filled(s: Session, **configs: str | int) -> str:
    """Return a topic of two partitions, the first with four records in two batches."""
    topic = s.topic(partitions=2, configs={name.replace("_", "."): value for name, value in configs.items()})
    for values in ((b"a", b"b"), (b"c", b"d")):
        s.produce(topic, s.batch(*values))
    return topic


def look_at(s: Session, topic: str) -> None:
    """Ask where the log begins and ends, and read it."""
    for timestamp in (-2, -1):
        s.list_offsets(topic, timestamp, version=7)
    for offset in range(5):
        s.fetch(topic, offset)


OFFSETS: Final = (0, 1, 2, 3, 4, 5, -1, -2, MAX64, -(2**63))


@history({f"{offset} in v{version}": (offset, version) for offset in OFFSETS for version in (0, 1, 2)})
def before(s: Session, row: tuple[int, int]) -> None:
    """Records before an offset are gone, also within a batch; -1 is the high watermark."""
    offset, version = row
    topic = filled(s)
    ask(s, [wanted(topic, offset)], version=version)
    look_at(s, topic)


@history(
    {f"{first}, then {second}": (first, second) for first in (1, 3, 4, -1) for second in (0, 2, 3, -1, 5)}
)
def twice(s: Session, row: tuple[int, int]) -> None:
    """The log's start does not go back."""
    topic = filled(s)
    for offset in row:
        ask(s, [wanted(topic, offset)])
    s.produce(topic, s.batch(b"e"))
    s.read(topic, 4)
    s.list_offsets(topic, -2, version=7)


SHAPES: Final[dict[str, Callable[[Session, str], list[Mapping[str, Any]]]]] = {
    "no topic": lambda s, topic: [],
    "no partition": lambda s, topic: [wanted(topic)],
    "two partitions": lambda s, topic: [wanted(topic, 1, 0)],
    "two partitions, one too far": lambda s, topic: [wanted(topic, 1, 9)],
    "a partition that is not there": lambda s, topic: [wanted(topic, 1, 0, 0)],
    "a partition of -1": lambda s, topic: [wanted(topic, 1, first=-1)],
    "a partition twice": lambda s, topic: [wanted(topic, 1), wanted(topic, 2)],
    "a topic that is not there": lambda s, topic: [wanted(s.name("missing"), 0), wanted(topic, 1)],
    "an empty name": lambda s, topic: [wanted("", 0)],
    "a name that no topic can have": lambda s, topic: [wanted("a topic/", 0)],
    "the topic of committed offsets": lambda s, topic: [wanted("__consumer_offsets", 0)],
    "the topic of transactions": lambda s, topic: [wanted("__transaction_state", 0)],
}


@history(SHAPES)
def shape(s: Session, shape: Callable[[Session, str], list[Mapping[str, Any]]]) -> None:
    """Each partition is answered for itself; internal topics are not deleted from."""
    topic = filled(s)
    ask(s, shape(s, topic))
    look_at(s, topic)


@history({"compact": "compact", "compact and delete": "compact,delete", "delete": "delete"})
def policy(s: Session, policy: str) -> None:
    """DeleteRecords is allowed only on topics whose cleanup policy deletes records."""
    topic = s.topic(configs={"cleanup.policy": policy})
    ask(s, [wanted(topic, 0)])
    ask(s, [wanted(topic, -1)])
    ask(s, [wanted(topic, 5)])


@history({"none": 0, "negative": -1})
def timeout(s: Session, timeout_ms: int) -> None:
    """A node that has all replicas answers without a wait."""
    topic = filled(s)
    ask(s, [wanted(topic, 2)], timeout_ms=timeout_ms)
    look_at(s, topic)


@history()
def sequences_go_on(s: Session) -> None:
    """A producer may go on after its records are deleted."""
    topic = s.topic()
    producer = s.init_producer()["producer_id"]
    for sequence in (0, 1):
        s.produce(topic, s.batch(b"a", producer_id=producer, producer_epoch=0, base_sequence=sequence))
    ask(s, [wanted(topic, -1)])
    for sequence in (1, 3, 2):
        s.produce(topic, s.batch(b"b", producer_id=producer, producer_epoch=0, base_sequence=sequence))
    s.read(topic, 2)
