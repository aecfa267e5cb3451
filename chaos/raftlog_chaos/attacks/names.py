"""Lists of names: a single name repeated, or a hundred thousand different names, in every API that takes a list."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    Target,
    array,
    compact,
    counted,
    legacy,
    legacy_array,
    outcomes_of,
    raw,
)

METADATA, FIND_COORDINATOR, OFFSET_FETCH, DESCRIBE_GROUPS, DELETE_TOPICS = 3, 10, 9, 15, 20
DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS, DELETE_RECORDS, DELETE_GROUPS, OFFSET_DELETE = 32, 61, 21, 42, 47
ADD_PARTITIONS, DESCRIBE_TRANSACTIONS, CONSUMER_GROUP_DESCRIBE, DESCRIBE_LOG_DIRS = 24, 65, 69, 35
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, ELECT_LEADERS, CREATE_TOPICS, DESCRIBE_TOPICS = 45, 46, 43, 19, 75
INCREMENTAL_ALTER_CONFIGS, CREATE_PARTITIONS, LIST_OFFSETS, ALTER_CONFIGS = 44, 37, 2, 33
MANY: Final = 100_000
"""Names of thirty letters: what the objects of a message may cost grows with its bytes."""
SMALL: Final = 15_000
"""Elements without a name: as many as the decoders let through."""
RESOURCES: Final = 3_000
TIMEOUT: Final = struct.pack(">i", 5_000)


def _same(_: int) -> str:
    return "a-name-as-long-as-it-has-to-be"


def _other(number: int) -> str:
    return f"a-name-as-long-as-it-has-to-be-{number}"


def _ask(target: Target, frames: list[bytes], within_s: float = 10.0) -> str:
    """Send each on a connection of its own, all at once, and wait for all answers."""
    with target.lines(len(frames)) as lines:
        for line, frame in zip(lines, frames, strict=False):
            line.send(frame)
        return counted(outcomes_of(lines, within_s))


def _names(count: int, name: Callable[[int], str], rest: bytes = b"") -> bytes:
    return array([compact(name(number)) + rest for number in range(count)])


@attack("kafka", within_s=40, ci=True)
def delete_topics_by_a_hundred_thousand_names(target: Target) -> str:
    """DeleteTopics with a hundred thousand names, alike or different, takes time that grows with their number."""
    frames = [raw(DELETE_TOPICS, 4, _names(MANY, each) + TIMEOUT + b"\0") for each in (_same, _other)]
    frames.append(raw(DELETE_TOPICS, 1, legacy_array([legacy(_other(n)) for n in range(MANY)]) + TIMEOUT))
    frames.append(raw(DELETE_TOPICS, 6, _names(50_000, _other, bytes(16) + b"\0") + TIMEOUT + b"\0"))
    return _ask(target, frames)


@attack("kafka", within_s=40)
def configs_of_one_resource_again_and_again(target: Target) -> str:
    """DescribeConfigs that names one broker three thousand times answers it once, or in turns and within a bound."""
    resources = [b"\4" + compact("1") + b"\0\0"] * RESOURCES + [
        b"\2" + compact(target.topic) + b"\0\0"
    ] * RESOURCES
    frames = [raw(DESCRIBE_CONFIGS, 4, array(resources) + b"\1\1\0")] * 2
    keys = _names(50_000, _same)
    frames.append(raw(DESCRIBE_CONFIGS, 4, array([b"\4" + compact("1") + keys + b"\0"]) + b"\1\1\0"))
    return _ask(target, frames)


@attack("kafka", within_s=40)
def producers_of_one_partition_again_and_again(target: Target) -> str:
    """DescribeProducers that names one partition a hundred thousand times answers it once, or goes in turns."""
    parts = struct.pack(f">{MANY}i", *([0] * MANY))
    body = array([compact(target.topic) + b"\xa1\x8d\x06" + parts + b"\0"]) + b"\0"
    return _ask(target, [raw(DESCRIBE_PRODUCERS, 0, body)] * 2)


@attack("kafka", within_s=40)
def metadata_of_a_hundred_thousand_names(target: Target) -> str:
    """Metadata for a hundred thousand names, without leave to create them, is answered in turns."""
    no = b"\0\0\0"
    frames = [raw(METADATA, 12, array([bytes(16) + compact(_other(n)) + b"\0" for n in range(60_000)]) + no)]
    frames.append(raw(METADATA, 4, legacy_array([legacy(_other(n)) for n in range(MANY)]) + b"\0"))
    frames.append(raw(METADATA, 12, array([n.to_bytes(16, "big") + b"\0\0" for n in range(1, 4_500)]) + no))
    return _ask(target, frames)


@attack("kafka", within_s=40)
def coordinators_of_a_hundred_thousand_keys(target: Target) -> str:
    """FindCoordinator for a hundred thousand groups goes in turns, and so do descriptions of them."""
    frames = [raw(FIND_COORDINATOR, 4, kind + _names(MANY, _other) + b"\0") for kind in (b"\0", b"\1", b"\7")]
    frames.append(raw(DESCRIBE_GROUPS, 5, _names(MANY, _other) + b"\1\0"))
    frames.append(raw(DELETE_GROUPS, 2, _names(MANY, _other) + b"\0"))
    frames.append(raw(CONSUMER_GROUP_DESCRIBE, 1, _names(MANY, _other) + b"\1\0"))
    frames.append(raw(DESCRIBE_TRANSACTIONS, 0, _names(MANY, _other) + b"\0"))
    return _ask(target, frames, 15)


@attack("kafka", within_s=40)
def offsets_of_a_hundred_thousand_groups(target: Target) -> str:
    """OffsetFetch for very many groups, topics and partitions, known or not, is answered in turns."""
    groups = array([compact(_other(n)) + b"\0\0" for n in range(50_000)])
    topics = array([compact(_other(n)) + b"\2\0\0\0\0\0" for n in range(50_000)])
    frames = [
        raw(OFFSET_FETCH, 8, groups + b"\0\0"),
        raw(OFFSET_FETCH, 8, array([compact("g") + topics + b"\0"]) + b"\0\0"),
        raw(
            OFFSET_DELETE,
            0,
            legacy("g") + legacy_array([legacy(_other(n)) + b"\0\0\0\1\0\0\0\0" for n in range(50_000)]),
        ),
    ]
    return _ask(target, frames, 15)


@attack("kafka", within_s=40)
def partitions_by_the_hundred_thousand(target: Target) -> str:
    """Elections, moves, deletions of records and folders' sizes for very many partitions go in turns."""
    ids = b"\xa1\x8d\x06" + struct.pack(f">{MANY}i", *range(MANY))
    topics = array([compact(_other(n)) + b"\2\0\0\0\0\0" for n in range(50_000)])
    records = array(
        [compact("nowhere") + array([struct.pack(">iq", n, 0) + b"\0" for n in range(SMALL)]) + b"\0"]
    )
    moves = array(
        [compact("nowhere") + array([struct.pack(">i", n) + b"\2\0\0\0\1\0" for n in range(7_000)]) + b"\0"]
    )
    frames = [
        raw(ELECT_LEADERS, 2, b"\0" + array([compact(target.topic) + ids + b"\0"]) + TIMEOUT + b"\0"),
        raw(ELECT_LEADERS, 2, b"\0" + topics + TIMEOUT + b"\0"),
        raw(DELETE_RECORDS, 2, records + TIMEOUT + b"\0"),
        raw(ALTER_REASSIGNMENTS, 0, TIMEOUT + moves + b"\0"),
        raw(LIST_REASSIGNMENTS, 0, TIMEOUT + topics + b"\0"),
        raw(DESCRIBE_LOG_DIRS, 4, topics + b"\0"),
        raw(DESCRIBE_TOPICS, 0, _names(MANY, _other, b"\0") + struct.pack(">i", 2000) + b"\xff\0"),
    ]
    return _ask(target, frames, 15)


@attack("kafka", within_s=40)
def transactions_of_a_hundred_thousand_partitions(target: Target) -> str:
    """AddPartitionsToTxn for very many partitions or transactions goes in turns or is refused."""
    topics = array([compact(_other(n)) + b"\2\0\0\0\0\0" for n in range(50_000)])
    one = compact("tx") + struct.pack(">qh", 5, 0)
    frames = [
        raw(ADD_PARTITIONS, 3, one + topics + b"\0"),
        raw(ADD_PARTITIONS, 4, array([one + b"\0" + topics + b"\0"]) + b"\0"),
        raw(
            ADD_PARTITIONS,
            4,
            array([compact(_other(n)) + struct.pack(">qhb", n, 0, 1) + b"\1\0" for n in range(40_000)])
            + b"\0",
        ),
    ]
    return _ask(target, frames)


@attack("kafka", within_s=40)
def alterations_of_a_hundred_thousand_configs(target: Target) -> str:
    """Alterations that name one resource, one key or a hundred thousand of them are refused in time."""
    sets = array([compact(_other(n)) + b"\0" + compact("1") + b"\0" for n in range(30_000)])
    resources = array([b"\2" + compact(_other(n)) + b"\1\0" for n in range(50_000)])
    same = array([b"\2" + compact(_same(0)) + b"\1\0"] * 50_000)
    frames = [
        raw(INCREMENTAL_ALTER_CONFIGS, 1, array([b"\2" + compact(target.topic) + sets + b"\0"]) + b"\1\0"),
        raw(INCREMENTAL_ALTER_CONFIGS, 1, resources + b"\1\0"),
        raw(INCREMENTAL_ALTER_CONFIGS, 1, same + b"\1\0"),
        raw(ALTER_CONFIGS, 2, resources + b"\1\0"),
    ]
    return _ask(target, frames)


@attack("kafka", within_s=40)
def names_of_megabytes(target: Target) -> str:
    """Names of groups, topics, members and configs that are megabytes long are refused where they arrive."""
    long = compact("n" * 3_000_000)
    frames = [
        raw(METADATA, 12, array([bytes(16) + long + b"\0"]) + b"\1\0\0"),
        raw(DELETE_TOPICS, 4, array([long]) + TIMEOUT + b"\0"),
        raw(CREATE_TOPICS, 7, array([long + struct.pack(">ih", 1, 1) + b"\1\1\0"]) + TIMEOUT + b"\0\0"),
        raw(FIND_COORDINATOR, 4, b"\0" + array([long] * 5) + b"\0"),
        raw(DESCRIBE_CONFIGS, 4, array([b"\2" + long + b"\0\0"] * 5) + b"\0\0\0"),
        raw(INCREMENTAL_ALTER_CONFIGS, 1, array([b"\2" + long + b"\1\0"]) + b"\0\0"),
        raw(CREATE_PARTITIONS, 3, array([long + b"\0\0\0\2\0\0"]) + TIMEOUT + b"\0\0"),
        raw(DESCRIBE_GROUPS, 5, array([long] * 5) + b"\0\0"),
        raw(12, 4, long + struct.pack(">i", 1) + long + b"\0\0"),
        raw(68, 1, long + long + struct.pack(">i", 0) + b"\0\0" + TIMEOUT + b"\0" * 6),
    ]
    return _ask(target, frames * 2)
