"""Produce: every field of a batch's header odd, alone and in pairs, and requests of every shape and version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, Final, NamedTuple

from raftlog.records.batch import new_record
from raftlog.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session

MAX32: Final = 2**31 - 1
MAX64: Final = 2**63 - 1
HOUR_MS: Final = 3_600_000
HEADER_ONLY: Final = HEADER_BYTES - LENGTH_OVERHEAD
CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class At(NamedTuple):
    """A time, so many milliseconds after the history's start."""

    after_ms: int


Odd = Mapping[str, int | At]
"""Fields of a header and their values."""

ODD: Final[dict[str, tuple[int | At, ...]]] = {
    "base_offset": (5, -1, MAX64),
    "batch_length": (HEADER_ONLY - 1, HEADER_ONLY, 0, -1, MAX32),
    "partition_leader_epoch": (5, 0, -2, MAX32),
    "magic": (1, 0, 3, -1),
    "crc": (7,),
    "attributes": (
        *(CONTROL_BIT, TRANSACTIONAL_BIT, LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT),
        *(1, 2, 3, 4, 5, 7, 0x80, 0x4000, -(2**15), TRANSACTIONAL_BIT | CONTROL_BIT),
    ),
    "last_offset_delta": (2, 0, -1, MAX32),
    "base_timestamp": (-1, 0, -2, At(HOUR_MS * 2), MAX64),
    "max_timestamp": (-1, 0, At(-5), At(HOUR_MS * 2), MAX64),
    "producer_id": (77_000_000, 0, -2, MAX64),
    "producer_epoch": (0, 1, -2, 2**15 - 1),
    "base_sequence": (0, 5, -2, MAX32),
    "record_count": (3, 1, 0, -1, MAX32),
}
"""Keyed by field; the first value of each field is also combined with the other fields' values."""

SINGLE: Final[dict[str, Odd]] = {
    f"{field}={value if isinstance(value, int) else f'start+{value.after_ms}'}": {field: value}
    for field, values in ODD.items()
    for value in values
}
PAIRS: Final[dict[str, Odd]] = {
    f"{one} and {two}": {one: ODD[one][0], two: ODD[two][0]} for one, two in combinations(ODD, 2)
}


KEPT_FOR_EVER: Final = {"retention.ms": -1}
"""Records with odd times would be deleted for their age, sooner or later."""


def odd_batch(s: Session, odd: Odd, codec: int = 0) -> bytes:
    """Return a batch of two records with these fields in its header."""
    real = {field: value if isinstance(value, int) else s.at(value.after_ms) for field, value in odd.items()}
    return s.batch(b"a", b"b", codec=codec, **real)


@history(SINGLE)
def header(s: Session, odd: Odd) -> None:
    """A batch with an odd field in its header is refused, or stored as the leader makes it right."""
    topic = s.topic(configs=KEPT_FOR_EVER)
    s.produce(topic, odd_batch(s, odd))
    s.produce(topic, s.batch(b"c"))
    s.read(topic)


@history(PAIRS)
def headers(s: Session, odd: Odd) -> None:
    """A batch with two odd fields is refused for either of them."""
    topic = s.topic(configs=KEPT_FOR_EVER)
    s.produce(topic, odd_batch(s, odd))
    s.read(topic)


@history({f"v{version}": version for version in range(3, 14)})
def version(s: Session, version: int) -> None:
    """Versions from 3 on are served, and say what they can."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"), version=version)
    s.produce(topic, s.batch(b"b", magic=3), version=version)
    s.read(topic)


@history({f"{name} in v{each}": (codec, each) for name, codec in CODECS.items() for each in (3, 6, 7, 12)})
def compressed(s: Session, row: tuple[int, int]) -> None:
    """Every codec is stored as it came; zstd needs version 7."""
    codec, version = row
    topic = s.topic()
    s.produce(topic, s.batch(b"a" * 50, b"b", codec=codec), version=version)
    s.read(topic)


@history({str(acks): acks for acks in (-2, 2, 1, 0, -1, 2**15 - 1)})
def acks(s: Session, acks: int) -> None:
    """-1, 0 and 1 are known; 0 is not answered."""
    topic = s.topic()
    if acks == 0:
        s.send("Produce", 9, answered=False, acks=0, topic_data=data(topic, s.batch(b"a")))
        s.wait("it is stored", lambda: s.end_offset(topic) == 1)
    else:
        answer = s.produce(topic, s.batch(b"a"), acks=acks)
        if answer["error_code"] == "NONE":
            s.wait("it is committed", lambda: s.end_offset(topic) == 1)
    s.read(topic)


@history()
def acks_of_0_with_an_error(s: Session) -> None:
    """An error of a request that is not answered closes its connection."""
    topic = s.topic()
    s.send("Produce", 9, answered=False, acks=0, topic_data=data(topic, s.batch(b"a", magic=3)))
    s.ask("ApiVersions", 0)
    s.read(topic)


def data(topic: str, *records: bytes | None, first: int = 0) -> list[Mapping[str, Any]]:
    """Return what a request says of one topic: these records for partitions from `first` on."""
    partitions = [{"index": first + at, "records": each} for at, each in enumerate(records)]
    return [{"name": topic, "partition_data": partitions}]


SHAPES: Final[dict[str, Callable[[Session, str], list[Mapping[str, Any]]]]] = {
    "no topic": lambda s, topic: [],
    "no partition": lambda s, topic: data(topic),
    "records of null": lambda s, topic: data(topic, None),
    "empty records": lambda s, topic: data(topic, b""),
    "a batch cut off": lambda s, topic: data(topic, s.batch(b"a")[:-1]),
    "a header cut off": lambda s, topic: data(topic, s.batch(b"a")[:17]),
    "a byte too many": lambda s, topic: data(topic, s.batch(b"a") + b"\0"),
    "two batches": lambda s, topic: data(topic, s.batch(b"a") + s.batch(b"b")),
    "no bytes of Kafka's": lambda s, topic: data(topic, b"x" * 100),
    "two partitions": lambda s, topic: data(topic, s.batch(b"a"), s.batch(b"b")),
    "two partitions, one wrong": lambda s, topic: data(topic, s.batch(b"a", crc=7), s.batch(b"b")),
    "two partitions, one missing": lambda s, topic: data(topic, s.batch(b"a"), s.batch(b"b"), s.batch(b"c")),
    "a partition of -1": lambda s, topic: data(topic, s.batch(b"a"), first=-1),
    "a partition twice": lambda s, topic: [
        {"name": topic, "partition_data": data(topic, s.batch(each))[0]["partition_data"]}
        for each in (b"a", b"b")
    ],
    "a topic that is not there": lambda s, topic: data(s.name("missing"), s.batch(b"a")),
    "a topic without a name": lambda s, topic: data("", s.batch(b"a")),
    "a name that no topic can have": lambda s, topic: data("a topic/", s.batch(b"a")),
    "the topic of committed offsets": lambda s, topic: data("__consumer_offsets", s.batch(b"a")),
    "the topic of transactions": lambda s, topic: data("__transaction_state", s.batch(b"a")),
}
"""The topics, partitions and records of a request, by what is odd about them."""


@history(SHAPES)
def shape(s: Session, shape: Callable[[Session, str], list[Mapping[str, Any]]]) -> None:
    """A request's partitions succeed or fail each for itself, if the request can be read."""
    topic = s.topic(partitions=2)
    s.ask("Produce", 9, acks=-1, timeout=10_000, topic_data=shape(s, topic))
    s.read(topic)


@history()
def an_unknown_topic_id(s: Session) -> None:
    """Version 13 names topics by their ids."""
    made_up = "00000000-0000-0000-0000-00000000002a"
    partitions = [{"index": 0, "records": s.batch(b"a")}]
    s.ask(
        "Produce",
        13,
        acks=-1,
        timeout=10_000,
        topic_data=[{"topic_id": made_up, "partition_data": partitions}],
    )


CONFIGS: Final[dict[str, Mapping[str, str | int]]] = {
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "before.max": {"message.timestamp.before.max.ms": 60_000},
    "after.max": {"message.timestamp.after.max.ms": 60_000},
    "max.message.bytes": {"max.message.bytes": 100},
    "compacted": {"cleanup.policy": "compact"},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
}


@history(CONFIGS)
def config(s: Session, configs: Mapping[str, str | int]) -> None:
    """A topic's settings change and judge what is stored."""
    topic = s.topic(configs=configs)
    for batch in (
        s.batch(b"a", b"b"),
        s.batch(b"x" * 100),
        s.batch(b"c" * 30, codec=CODECS["lz4"]),
        s.batch(new_record(b"key", b"a", timestamp=s.at())),
        s.batch(new_record(b"key", b"a", timestamp=s.at(HOUR_MS // 2))),
        s.batch(new_record(b"key", b"a", timestamp=-1)),
    ):
        s.produce(topic, batch)
    s.read(topic)
