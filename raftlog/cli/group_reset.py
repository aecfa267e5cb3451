"""Resetting a group's offsets: the plan, and carrying it out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog.base.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.partition import offsets_at
from raftlog.cli.target import Target
from raftlog.cli.timestamps import read_duration_ms, read_moment
from raftlog.client.metadata import EARLIEST, LATEST, PartitionKey

HAS_MEMBERS: Final = (
    UnknownMemberId,
    IllegalGeneration,
    RebalanceInProgress,
    NonEmptyGroup,
    StaleMemberEpoch,
)
"""What a coordinator answers to a commit from outside of a group with members."""
SHOWN: Final = 3
"""Partitions that an error names."""
AT_ONCE: Final = 5_000
"""Offsets that are committed by one request; a raftlog broker takes 10,000."""


def one_rule(given: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the one rule that was given, with its value. Raises Failure."""
    rules = [(rule, value) for rule, value in given.items() if value is not None]
    if len(rules) != 1:
        raise Failure(
            "choose one target: --to-earliest, --to-latest, --to-offset, --shift-by, ...", exits.USAGE
        )
    return rules[0]


def plan(
    target: Target,
    topic_partitions: Sequence[PartitionKey],
    committed: Mapping[PartitionKey, int],
    rule: tuple[str, Any],
    *,
    is_final: bool = False,
) -> dict[PartitionKey, int]:
    """Return the new offset of each partition, within its log; adjustments are reported. Raise Failure.

    If it `is_final`, an offset beyond the ends of all partitions is a Failure.
    """
    name, value = rule
    first = offsets_at(target, topic_partitions, EARLIEST)
    end = offsets_at(target, topic_partitions, LATEST)
    if is_final and name == "offset":
        _check_ends(topic_partitions, value, end)
    times: dict[PartitionKey, int] = {}
    if name in ("datetime", "duration"):
        times = offsets_at(target, topic_partitions, _moment_ms(name, value))
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


def _check_ends(
    topic_partitions: Sequence[PartitionKey], wanted: int, end: Mapping[PartitionKey, int]
) -> None:
    """Raise Failure if all partitions end before an offset: it is mistyped."""
    if all(end[tp] < wanted for tp in topic_partitions):
        shown = topic_partitions[:SHOWN]
        ends = ", ".join(f"{topic} {number} ends at {end[topic, number]}" for topic, number in shown)
        left = len(topic_partitions) - SHOWN
        more = f", and {left} more end before it" if left > 0 else ""
        raise Failure(f"--to-offset {wanted}: {ends}{more}; no offset was changed")


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


def move(target: Target, name: str, planned: Mapping[PartitionKey, int]) -> None:
    """Commit these offsets for a group without members, as many at a time as a request may. Raise Failure."""
    from raftlog.client.member import commit_offsets

    left = list(planned.items())
    while left:
        with target.failures(f"{name}: ", needs="READ"):
            try:
                commit_offsets(target.cluster, name, dict(left[:AT_ONCE]))
            except HAS_MEMBERS:
                raise Failure(f"group {name} has members: stop its consumers first") from None
        left = left[AT_ONCE:]
