"""Offsets and values: each offset holds one value (inconsistent-offsets), each value is at one offset (duplicate)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from raftlog_chaos.checkers.evidence import Evidence, KeyLog
from raftlog_chaos.checkers.findings import Findings, Sighting


def check_offsets(evidence: Evidence, findings: Findings) -> None:
    """Judge every key's log."""
    for log in evidence.keys.values():
        if _is_a_bijection(log):
            continue
        pairs = evidence.placed(log)
        values = log.values()
        for offset, group in groupby(pairs, key=lambda pair: pair[0]):
            _judge_offset(log.name, offset, [values[at] for _, at in group], findings)
        for at, mine in groupby(sorted(pairs, key=lambda pair: pair[1]), key=lambda pair: pair[1]):
            _judge_value(log.name, values[at], [offset for offset, _ in mine], findings)


def _is_a_bijection(log: KeyLog) -> bool:
    """Whether the log is certainly consistent, checked cheaply."""
    if log.strays:
        return False
    known = sum(polled >= 0 or sent >= 0 for polled, sent in zip(log.polled, log.sent, strict=True))
    agree = all(
        polled == sent or polled < 0 or sent < 0 for polled, sent in zip(log.polled, log.sent, strict=True)
    )
    return agree and known == len(log.order)


def _judge_offset(key: str, offset: int, values: list[int | str], findings: Findings) -> None:
    if len(values) > 1:
        findings.add(
            "inconsistent-offsets",
            key,
            f"offset {offset} holds {_listed(values)}",
            about=tuple(values),
            sightings=tuple(Sighting(key, offset, value) for value in values[:4]),
        )


def _judge_value(key: str, value: int | str, offsets: list[int], findings: Findings) -> None:
    if len(offsets) > 1:
        findings.add(
            "duplicate",
            key,
            f"{value!r} lies at offsets {_listed(offsets)}",
            about=(value,),
            sightings=tuple(Sighting(key, offset, value) for offset in offsets[:4]),
        )


def _listed(things: Iterable[int | str]) -> str:
    *rest, last = map(repr, things)
    return f"{', '.join(rest)} and {last}"
