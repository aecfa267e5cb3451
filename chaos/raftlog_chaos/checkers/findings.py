"""Collects the findings of checkers: how often each anomaly occurs, and only its smallest examples.

A checker refers to operations by the position of their lines; the owner of the history fetches them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from raftlog_chaos.history import Op, Value

EXAMPLES = 8
"""How many examples of each anomaly are kept."""


class Sighting(NamedTuple):
    """A value that was seen at an offset of a key: the first operation that saw it is part of the evidence."""

    key: str
    offset: int
    value: Value


@dataclass(slots=True)
class Finding:
    """One example of an anomaly. `ops` is the smallest history that shows it; `about` are the values concerned."""

    name: str
    key: str
    explanation: str
    ops: list[Op] = field(default_factory=list)
    allowed: bool = False
    about: tuple[Value, ...] = ()
    positions: frozenset[int] = frozenset()
    sightings: tuple[Sighting, ...] = ()

    @property
    def size(self) -> int:
        return len(self.positions) + len(self.sightings)


class Findings:
    """All anomalies of one history."""

    def __init__(self) -> None:
        self.cases: dict[str, int] = {}
        self.examples: dict[str, list[Finding]] = {}

    def add(
        self,
        name: str,
        key: str,
        explanation: str,
        *,
        positions: Iterable[int] = (),
        about: tuple[Value, ...] = (),
        sightings: tuple[Sighting, ...] = (),
    ) -> None:
        """Count one case and keep it if it is among the smallest."""
        finding = Finding(
            name,
            key,
            explanation,
            about=about,
            positions=frozenset(each for each in positions if each >= 0),
            sightings=sightings,
        )
        self.cases[name] = self.cases.get(name, 0) + 1
        kept = self.examples.setdefault(name, [])
        if len(kept) == EXAMPLES:
            if finding.size >= kept[-1].size:
                return
            kept.pop()
        kept.append(finding)
        kept.sort(key=lambda each: each.size)

    def count_more(self, name: str, cases: int) -> None:
        """Count further cases that the last example represents as well."""
        self.cases[name] = self.cases.get(name, 0) + cases

    def fetch(self, history: Iterable[Op]) -> None:
        """Look up every example's operations, in one pass over the history they were found in."""
        kept = [finding for findings in self.examples.values() for finding in findings]
        at: dict[int, list[Finding]] = {}
        seen: dict[tuple[str, int], list[tuple[Value, Finding]]] = {}
        for finding in kept:
            for position in finding.positions:
                at.setdefault(position, []).append(finding)
            for key, offset, value in finding.sightings:
                seen.setdefault((key, offset), []).append((value, finding))
        if not at and not seen:
            return
        for position, op in enumerate(history):
            for finding in at.get(position, ()):
                _attach(finding, op)
            if seen and op.type != "invoke" and op.f in ("send", "poll", "txn"):
                _attach_sightings(seen, op)


def _attach(finding: Finding, op: Op) -> None:
    if not (finding.ops and finding.ops[-1] is op):
        finding.ops.append(op)


def _attach_sightings(seen: dict[tuple[str, int], list[tuple[Value, Finding]]], op: Op) -> None:
    for key, offset, value in observations(op):
        waiting = seen.get((key, offset))
        if waiting:
            found = [pair for pair in waiting if pair[0] == value]
            for pair in found:
                waiting.remove(pair)
                _attach(pair[1], op)


def observations(op: Op) -> Iterator[tuple[str, int, Value]]:
    """Yield key, offset and value of all that a completion sent and read, where the offset is known."""
    yield from sent(op)
    for micro in op.value or ():
        if micro[0] == "poll" and len(micro) > 1 and micro[1]:
            for key, pairs in micro[1].items():
                for offset, value in pairs:
                    yield key, offset, value


def sent(op: Op) -> Iterator[tuple[str, int, Value]]:
    """Yield key, offset and value of all that a completion sent, where the offset is known."""
    for micro in op.value or ():
        if micro[0] == "send" and isinstance(micro[2], list | tuple) and micro[2][0] is not None:
            yield micro[1], micro[2][0], micro[2][1]
