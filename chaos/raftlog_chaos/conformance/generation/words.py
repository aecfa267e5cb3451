"""The words of drawn histories, each with what draws its fields, and phrases of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from random import Random
from typing import Any, Final

from raftlog_chaos.conformance.generation import group_transactions, sessions
from raftlog_chaos.conformance.generation.plan import Plan, Step, Theme, Word, draw, mostly
from raftlog_chaos.conformance.generation.scene import PLAIN_GROUPS

PLAIN: Final = ("plain-0", "plain-1")
TRANSACTIONAL: Final = ("txn-0", "txn-1")
PRODUCERS: Final = (None, None, *PLAIN, "plain-0", "plain-0", *TRANSACTIONAL, "txn-0")
USUAL_GROUPS: Final = (PLAIN_GROUPS[0], *PLAIN_GROUPS)
SPECIAL_TIMES: Final = (-1, -2, -3, -4, -5, -6, -7)
CONFIGS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("max.message.bytes", ("200", "1048588", "-1", "0", "many")),
    ("compression.type", ("gzip", "lz4", "snappy", "zstd", "uncompressed", "producer", "brotli")),
    ("message.timestamp.type", ("LogAppendTime", "CreateTime", "Never")),
    ("message.timestamp.before.max.ms", ("60000", "9223372036854775807")),
    ("message.timestamp.after.max.ms", ("60000", "-1")),
    ("min.insync.replicas", ("2", "1", "0")),
    ("retention.ms", ("-1", "604800000", "-2")),
    ("segment.bytes", ("1048576", "1")),
    ("no.such.config", ("1",)),
)
"""Settings of a topic and values, right and wrong, that have no effect later than at once."""


def _partition(random: Random) -> int:
    return int(mostly(random, random.choice((0, 0, 0, 1)), 2, 7, share=0.97))


def _produce(random: Random) -> Mapping[str, Any]:
    codec = mostly(random, 0, 1, 2, 3, 4, share=0.6)
    return {
        "producer": random.choice(PRODUCERS),
        "partition": _partition(random),
        "sequence": mostly(random, "next", "again", "again", "again", "gap", "zero", "behind", share=0.8),
        "back": random.choice((1, 1, 2, 3, 6)),
        "epoch": mostly(random, 0, -1, 1, share=0.95),
        "sizes": [random.choice((1, 5, 40, 150)) for _ in range(random.choice((1, 1, 2, 3, 5)))],
        "after_ms": random.choice((0, 0, 100, 1000, 5000, 5000, -7000)),
        "step_ms": random.choice((0, 1, 1, 300, -50)),
        "keys": random.random() < 0.4,
        "codec": codec,
        "version": random.choice((7, 9, 11, 12, 12, 13) if codec == 4 else (3, 5, 7, 8, 9, 11, 12, 12, 13)),
        "acks": mostly(random, -1, 1),
        "is_transactional": mostly(random, True, False, share=0.95),
    }


def _fetch(random: Random) -> Mapping[str, Any]:
    return {
        "partition": _partition(random),
        "offset": random.choice((0, 0, 0, 1, 2, 3, 5, "end", "end", "start", "beyond", -1)),
        "version": random.randint(4, 17),
        "isolation": random.choice((0, 1, 1)),
        "partition_bytes": random.choice((1 << 20, 1 << 20, 1, 100, 250)),
        "max_bytes": random.choice((1 << 20, 1 << 20, 1, 150)),
        "epoch": mostly(random, -1, 0, 1, share=0.8),
        "is_former": random.random() < 0.2,
    }


def _list_offsets(random: Random) -> Mapping[str, Any]:
    time = random.choice(
        (*SPECIAL_TIMES[:3], *SPECIAL_TIMES, *("at",) * 5),
    )
    return {
        "partition": _partition(random),
        "timestamp": time,
        "after_ms": random.choice((-8000, -7000, 0, 1, 100, 300, 1000, 5001, 60_000)),
        "version": random.randint(1, 11),
        "isolation": random.choice((0, 1)),
    }


def _delete_records(random: Random) -> Mapping[str, Any]:
    return {
        "partition": _partition(random),
        "offset": random.choice((0, 1, 1, 2, 3, -1, -1, "end", "beyond", -2)),
        "version": random.randint(0, 2),
    }


def _init(random: Random, slots: Sequence[str]) -> Mapping[str, Any]:
    return {
        "producer": random.choice(slots),
        "claim": random.choice(("none", "none", "own", "own", "old", "ahead", "no epoch", "another")),
        "timeout_ms": mostly(random, 60_000, 0, -1, 10**9, share=0.95),
        "version": random.choice((0, 1, 2, 3, 4, 4, 5)),
    }


def _of_transaction(random: Random) -> dict[str, Any]:
    return {
        "producer": random.choice(TRANSACTIONAL[:1] * 2 + TRANSACTIONAL),
        "epoch": mostly(random, 0, -1, 1),
    }


def _add_partitions(random: Random) -> Mapping[str, Any]:
    partitions = random.choice(([0], [0], [0], [1], [0, 1], [0, 9]))
    return {**_of_transaction(random), "partitions": partitions, "version": random.randint(0, 3)}


def _add_offsets(random: Random) -> Mapping[str, Any]:
    return {**_of_transaction(random), "group": random.choice(USUAL_GROUPS), "version": random.randint(0, 4)}


def _txn_offset_commit(random: Random) -> Mapping[str, Any]:
    return {
        **_add_offsets(random),
        "partition": _partition(random),
        "offset": random.choice((0, 1, 3, 100)),
        "generation": mostly(random, -1, 3),
        "version": random.choice((0, 1, 2, 3, 4, 5, 5)),
    }


def _end_txn(random: Random) -> Mapping[str, Any]:
    return {
        **_of_transaction(random),
        "committed": random.random() < 0.6,
        "version": random.choice((0, 1, 2, 3, 4, 5, 5)),
    }


def _offset_commit(random: Random) -> Mapping[str, Any]:
    return {
        "group": random.choice(USUAL_GROUPS),
        "partition": _partition(random),
        "offset": random.choice((0, 1, 3, 100, -1, -2)),
        "metadata": random.choice((None, "", "note", "x" * 5000)) if random.random() < 0.3 else "",
        "generation": mostly(random, -1, 3, "own"),
        "version": random.randint(2, 10),
    }


def _offset_fetch(random: Random) -> Mapping[str, Any]:
    return {
        "group": random.choice(USUAL_GROUPS),
        "partitions": random.choice((None, [0], [0, 1], [0, 5])),
        "is_stable": random.random() < 0.4,
        "version": random.randint(1, 10),
    }


def _alter_config(random: Random) -> Mapping[str, Any]:
    name, values = random.choice(CONFIGS)
    return {
        "name": name,
        "value": random.choice(values),
        "operation": mostly(random, 0, 1, 1, 2, 3, 4, share=0.75),
        "validate_only": random.random() < 0.1,
    }


def _create_partitions(random: Random) -> Mapping[str, Any]:
    return {
        "count": random.choice((1, 2, 2, 3, 3, 0)),
        "validate_only": random.random() < 0.15,
        "version": random.randint(0, 3),
    }


def _topic_again(random: Random) -> Mapping[str, Any]:
    return {"partitions": random.choice((1, 1, 2, -1, 0)), "version": random.randint(2, 4)}


def _join(random: Random) -> Mapping[str, Any]:
    return {
        "group": random.choice(USUAL_GROUPS),
        "version": random.choice((2, 3, 4, 5, 7, 9)),
        "member": mostly(random, "own", "", "unknown"),
        "protocol": mostly(random, "range", "other"),
    }


def _group_word(random: Random) -> Mapping[str, Any]:
    return {
        "group": random.choice(USUAL_GROUPS),
        "version": random.randint(1, 3),
        "member": mostly(random, "own", "", "unknown"),
        "generation": mostly(random, "own", -1, 7),
    }


def _nothing(random: Random) -> Mapping[str, Any]:
    return {}


def _transaction(random: Random) -> list[Step]:
    """A whole transaction in either protocol, now and then without one of the steps."""
    slot, version = random.choice(TRANSACTIONAL), random.choice((1, 2))
    usual = {"producer": slot, "epoch": 0, "is_transactional": True, "sequence": "next"}
    group = random.choice(USUAL_GROUPS)
    made = [Step("init_txn", {"producer": slot, "claim": "none", "timeout_ms": 60_000, "version": 4})]
    partition = random.choice((0, 0, 1))
    if version == 1:
        made.append(Step("add_partitions", {**usual_of(usual), "partitions": [partition], "version": 3}))
    for _ in range(random.choice((1, 1, 2))):
        fields = {**_produce(random), **usual, "partition": partition, "version": 10 + version}
        made.append(Step("produce", fields))
    if random.random() < 0.3:
        if version == 1:
            made.append(Step("add_offsets", {**usual_of(usual), "group": group, "version": 3}))
        fields = {**_txn_offset_commit(random), **usual_of(usual), "group": group, "generation": -1}
        made.append(Step("txn_offset_commit", {**fields, "version": 3 + version}))
    made.append(
        Step("end_txn", {**_end_txn(random), **usual_of(usual), "version": 3 + version}),
    )
    return [each for each in made if random.random() < 0.93]


def usual_of(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that say which producer in which epoch."""
    return {name: fields[name] for name in ("producer", "epoch")}


def _retry(random: Random) -> list[Step]:
    """Some batches of an idempotent producer, and some of them again."""
    slot, partition = random.choice(PLAIN), random.choice((0, 0, 1))
    usual = {"producer": slot, "epoch": 0, "partition": partition}
    made = [Step("init_plain", {"producer": slot, "claim": "none", "timeout_ms": 60_000, "version": 4})]
    for _ in range(random.choice((1, 2, 3, 6))):
        made.append(Step("produce", {**_produce(random), **usual, "sequence": "next"}))
    made.append(Step("produce", {**_produce(random), **usual, "sequence": "again"}))
    return made


def _again(random: Random) -> list[Step]:
    """A topic that is deleted and made again."""
    return [
        Step("delete_topic", {"version": random.randint(1, 6)}),
        Step("create_topic", {"partitions": random.choice((1, 2)), "version": 4}),
    ]


USUAL: Final = Theme(
    {
        "produce": Word(30, _produce),
        "fetch": Word(12, _fetch),
        "list_offsets": Word(8, _list_offsets),
        "delete_records": Word(5, _delete_records),
        "init_plain": Word(4, lambda random: _init(random, PLAIN)),
        "init_txn": Word(6, lambda random: _init(random, TRANSACTIONAL)),
        "add_partitions": Word(5, _add_partitions),
        "add_offsets": Word(2, _add_offsets),
        "txn_offset_commit": Word(4, _txn_offset_commit),
        "end_txn": Word(7, _end_txn),
        "offset_commit": Word(5, _offset_commit),
        "offset_fetch": Word(5, _offset_fetch),
        "alter_config": Word(4, _alter_config),
        "create_partitions": Word(3, _create_partitions),
        "delete_topic": Word(2, lambda random: {"version": random.randint(1, 6)}),
        "create_topic": Word(2, _topic_again),
        "describe": Word(4, _nothing),
        "join": Word(3, _join),
        "heartbeat": Word(2, _group_word),
        "leave": Word(1, _group_word),
    },
    (
        ({"end_txn", "init_txn"}, _transaction),
        ({"end_txn"}, _transaction),
        ({"init_plain"}, _retry),
        ({"delete_topic"}, _again),
    ),
)
"""The words of all plans. A phrase stands beside the words without which a plan does not have it."""
THEMES: Final = (sessions.THEME, group_transactions.CLASSIC, group_transactions.CONSUMERS)
WORDS: Final[Mapping[str, Word]] = dict(chain.from_iterable(each.words.items() for each in (USUAL, *THEMES)))


def draw_plan(seed: int, number: int) -> Plan:
    """Draw a plan of all words."""
    return draw(seed, number, USUAL, THEMES)
