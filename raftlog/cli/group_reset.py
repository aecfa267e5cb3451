"""Resetting a group's offsets: the plan, and carrying it out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.group_lookup import PartitionKey
from raftlog.cli.librdkafka import confluent_kafka
from raftlog.cli.partition import offsets_at
from raftlog.cli.target import Admin
from raftlog.cli.timestamps import read_duration_ms, read_moment

AT_ONCE: Final = 5_000
"""Offsets that are committed by one request; a raftlog broker takes 10,000."""


def one_rule(given: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the one rule that was given, with its value. Raises Failure."""
    rules = [(rule, value) for rule, value in given.items() if value is not None]
    if len(rules) != 1:
        raise Failure(
            "say where to, once: --to-earliest, --to-latest, --to-offset, --shift-by, ...", exits.USAGE
        )
    return rules[0]


def plan(
    admin: Admin,
    topic_partitions: Sequence[PartitionKey],
    committed: Mapping[PartitionKey, int],
    rule: tuple[str, Any],
) -> dict[PartitionKey, int]:
    """Return the new offset of each partition, within its log; adjustments are reported. Raise Failure."""
    name, value = rule
    spec = confluent_kafka().admin.OffsetSpec
    first, end = (
        offsets_at(admin, topic_partitions, spec.earliest()),
        offsets_at(admin, topic_partitions, spec.latest()),
    )
    times: dict[PartitionKey, int] = {}
    if name in ("datetime", "duration"):
        times = offsets_at(admin, topic_partitions, spec.for_timestamp(_moment_ms(name, value)))
    wanted: Mapping[str, Callable[[PartitionKey], int]] = {
        "earliest": lambda tp: first[tp],
        "latest": lambda tp: end[tp],
        "current": lambda tp: committed.get(tp, first[tp]),
        "offset": lambda _tp: value,
        "shift": lambda tp: committed.get(tp, first[tp]) + value,
        "datetime": lambda tp: times[tp] if times[tp] >= 0 else end[tp],
        "duration": lambda tp: times[tp] if times[tp] >= 0 else end[tp],
    }
    return {tp: _within(tp, wanted[name](tp), first[tp], end[tp]) for tp in topic_partitions}


def _moment_ms(rule: str, value: str) -> int:
    import time

    if rule == "datetime":
        return read_moment("--to-datetime", value)
    return round(time.time() * 1000) - read_duration_ms("--by-duration", value)


def _within(tp: PartitionKey, wanted: int, first: int, end: int) -> int:
    """Return the nearest possible offset; report on standard error if it differs."""
    nearest = max(first, min(end, wanted))
    if nearest != wanted:
        where = f"{tp[0]} {tp[1]}"
        print(
            f"raftlog: {where} has offsets {first} to {end}, not {wanted}: {nearest} instead", file=sys.stderr
        )
    return nearest


def move(admin: Admin, name: str, planned: Mapping[PartitionKey, int]) -> None:
    """Commit these offsets for a group without members, as many at a time as a request may. Raises Failure."""
    left = list(planned.items())
    while left:
        _move(admin, name, left[:AT_ONCE])
        left = left[AT_ONCE:]


def _move(admin: Admin, name: str, planned: Sequence[tuple[PartitionKey, int]]) -> None:
    library = confluent_kafka()
    request = [
        library.ConsumerGroupTopicPartitions(
            name, [library.TopicPartition(*tp, offset) for tp, offset in planned]
        )
    ]
    (future,) = admin.ask(admin.client.alter_consumer_group_offsets, request).values()
    try:
        done = admin.wait(future, f"{name}: ", needs="READ").topic_partitions
    except Failure as failure:
        raise _refused(name, str(failure), failure.code) from None
    for each in done:
        if each.error is not None:
            raise _refused(name, f"{name}: {each.topic} {each.partition}: {each.error.str()}", exits.FAILED)


def _refused(name: str, said: str, code: int) -> Failure:
    """Return the failure; for a group with members, a coordinator reports an unknown member id."""
    if "member" in said.lower() or "not empty" in said.lower():
        return Failure(f"group {name} has members: stop them first", exits.FAILED)
    return Failure(said, code)
