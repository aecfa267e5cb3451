"""Merges the state batches of a share partition: what was written before with what is written now."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from raftlog.sharing.delivery import DeliveryState, StateBatch


def combine(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches in order that do not overlap, from `start_offset` on. Equal neighbours are joined.

    Where batches overlap, the highest delivery count wins, and among equal counts the latest state. So an older write
    that comes late has no effect.
    """
    waiting = sorted(each for each in batches if each.last_offset >= start_offset)
    covering: list[tuple[int, int, int, DeliveryState]] = []
    """A heap of the batches that have begun, the strongest first: its strength negated, its last offset and state."""
    found: list[StateBatch] = []
    offset, begun = start_offset, 0
    while begun < len(waiting) or covering:
        if not covering:
            offset = max(offset, waiting[begun].first_offset)
        while begun < len(waiting) and waiting[begun].first_offset <= offset:
            _, last_offset, state, count = waiting[begun]
            heappush(covering, (-count, -state, last_offset, state))
            begun += 1
        negated, _, last_offset, state = covering[0]
        if last_offset < offset:
            heappop(covering)
            continue
        if begun < len(waiting):
            last_offset = min(last_offset, waiting[begun].first_offset - 1)
        _append(found, StateBatch(offset, last_offset, state, -negated))
        offset = last_offset + 1
    return tuple(found)


def _append(found: list[StateBatch], batch: StateBatch) -> None:
    if found:
        first_offset, last_offset, state, count = found[-1]
        if last_offset + 1 == batch.first_offset and state is batch.state and count == batch.delivery_count:
            found[-1] = batch._replace(first_offset=first_offset)
            return
    found.append(batch)
