"""A share partition in numbers, for operators: what is in flight, how often it was delivered, and for how long held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from raftlog.sharing.delivery import DeliveryState
from raftlog.sharing.share_partition import SharePartition


class InFlightSummary(NamedTuple):
    """Offsets are counted, with or without a record.

    `held`: locked by members. `done`: final, but after others that are not. `oldest_acquired_at`: in seconds of the
    machine's clock, None if no record is held. `archiving`: waiting for their dead letters.
    """

    start_offset: int
    end_offset: int
    held: int
    done: int
    oldest_acquired_at: float | None
    deliveries: Mapping[int, int]
    """By delivery count, the records that were delivered and are not done."""
    archiving: int = 0


def summarize(machine: SharePartition) -> InFlightSummary:
    """Return the numbers of now, in a step for each range."""
    held = done = archiving = 0
    oldest: float | None = None
    deliveries: Counter[int] = Counter()
    for each in machine.ranges:
        count = each.end_offset - each.first_offset
        if each.is_final:
            done += count
            continue
        if each.delivery_count:
            deliveries[each.delivery_count] += count
        if each.state is DeliveryState.ARCHIVING:
            archiving += count
        if each.state is DeliveryState.ACQUIRED:
            held += count
            oldest = each.acquired_at if oldest is None else min(oldest, each.acquired_at)
    return InFlightSummary(
        machine.start_offset, machine.end_offset, held, done, oldest, deliveries, archiving
    )
