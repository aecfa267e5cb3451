"""Merges the state batches of a share partition: what was written before with what is written now."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from raftlog.sharing.delivery import DeliveryState, StateBatch


def combine(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches in order that do not overlap, from `start_offset` on. Equal neighbours are joined.

    Where batches overlap, the highest delivery count wins, and among equal counts the latest state. So an older write
    that comes late has no effect.
    """
    waiting = [each for each in batches if each.last_offset >= start_offset]
    heapify(waiting)
    covering: list[tuple[int, int, int]] = []
    """A heap of the batches that have begun, the strongest first: its strength negated, and its last offset."""
    found: list[StateBatch] = []
    offset = start_offset
    while waiting or covering:
        if not covering:
            offset = max(offset, waiting[0].first_offset)
        while waiting and waiting[0].first_offset <= offset:
            begun = heappop(waiting)
            heappush(covering, (-begun.delivery_count, -begun.state, begun.last_offset))
        count, state, last_offset = covering[0]
        if last_offset < offset:
            heappop(covering)
            continue
        if waiting:
            last_offset = min(last_offset, waiting[0].first_offset - 1)
        _append(found, StateBatch(offset, last_offset, DeliveryState(-state), -count))
        offset = last_offset + 1
    return tuple(found)


def _append(found: list[StateBatch], batch: StateBatch) -> None:
    last = found[-1] if found else None
    if last and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        batch = batch._replace(first_offset=last.first_offset)
        found.pop()
    found.append(batch)
