"""Maps offsets of the source to offsets of the target cluster, as a mirror job records them (MirrorMaker's
offset syncs).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """`count` records with offsets side by side: from `source` on at the source, from `target` on at the target."""

    topic: str
    partition: int
    source: int
    target: int
    count: int


def runs(topic: str, partition: int, pairs: Iterable[tuple[int, int]]) -> list[Run]:
    """Return pairs of source and target offset, in rising order, as runs."""
    found: list[Run] = []
    for source, target in sorted(pairs):
        last = found[-1] if found else None
        if last and source - last.source == target - last.target == last.count:
            found[-1] = Run(topic, partition, last.source, last.target, last.count + 1)
        else:
            found.append(Run(topic, partition, source, target, 1))
    return found


def translate(known: Iterable[Run], topic: str, partition: int, *, offset: int) -> int | None:
    """Return the target offset of a reader that has read the source up to `offset` (exclusive).

    None if no record at or below it was copied: then begin at the beginning. Later runs win over earlier runs.
    """
    best: Run | None = None
    for run in known:
        if (run.topic, run.partition) == (topic, partition) and run.source < offset:
            best = run if best is None or run.source >= best.source else best
    return None if best is None else best.target + min(offset - best.source, best.count)
