"""Is a cluster healthy? What its nodes say over the wire, judged: green, yellow or red, with reasons in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 3
"""Partitions named in a reason."""
VOTER_LAG_MS: Final = 10_000
"""A voter this far behind can't be counted on when another one fails."""

GREEN, YELLOW, RED = "green", "yellow", "red"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the metadata shows it; `leader` < 0: none."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a cluster. `voter_lag_ms`: how long ago each voter had all metadata."""

    brokers: Collection[int]
    partitions: Collection[Partition]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    voter_lag_ms: Mapping[int, int] = field(default_factory=dict)
    quorum_leader: int = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it is, and why it is not green."""

    status: str
    reasons: tuple[str, ...]


def judge(seen: Seen) -> Verdict:
    """Judge a cluster. Red: something can't be read or written; yellow: another failure could make it so."""
    red = list(_red(seen))
    yellow = list(_yellow(seen))
    return Verdict(RED if red else YELLOW if yellow else GREEN, tuple(red + yellow))


def _red(seen: Seen) -> Iterable[str]:
    if seen.quorum_leader < 0:
        yield "the metadata quorum has no leader that answers: topics, leaders and in-sync replicas can't change"
    if leaderless := [each for each in seen.partitions if each.leader < 0]:
        yield f"{_count(leaderless)} without a leader, can't be read or written: {_names(leaderless)}"
    if closed := [
        each
        for each in seen.partitions
        if each.leader >= 0 and len(each.isr) < seen.min_isr.get(each.topic, 1)
    ]:
        yield f"{_count(closed)} below min.insync.replicas, refuse acks=all: {_names(closed)}"


def _yellow(seen: Seen) -> Iterable[str]:
    expected = {replica for each in seen.partitions for replica in each.replicas} | set(seen.voter_lag_ms)
    if missing := sorted(expected - set(seen.brokers)):
        yield f"{'broker' if len(missing) == 1 else 'brokers'} {', '.join(map(str, missing))} not there"
    if behind := [each for each in seen.partitions if len(each.isr) < len(each.replicas)]:
        yield f"{_count(behind)} under-replicated: {_names(behind)}"
    for voter, lag_ms in sorted(seen.voter_lag_ms.items()):
        if lag_ms > VOTER_LAG_MS:
            yield f"voter {voter} has been behind in the metadata for {lag_ms / 1000:.0f} s"


def _count(partitions: Collection[Partition]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"


def _names(partitions: Collection[Partition]) -> str:
    names = [each.label for each in sorted(partitions, key=lambda each: (each.topic, each.number))]
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
