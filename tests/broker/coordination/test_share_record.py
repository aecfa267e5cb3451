"""raftlog.broker.coordination.share_record: deliveries get wall clocks, and members their clients' names."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.broker.coordination.share_record import MOST_CLIENTS, ShareRecord
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.delivery import DeliveryState
from raftlog.sharing.delivery_history import DeliveryEnd, EndedDelivery

KEY = SharePartitionKey("work", UUID(int=1), 0)


def test_a_delivery_is_dated_by_the_wall_clock_of_its_end() -> None:
    """The machine's clock says only how long it took."""
    record = ShareRecord(wall_clock_ms=lambda: 1_000_000)
    ended = EndedDelivery(3, 5, 1, "m", 10.0, DeliveryEnd.LOCK_OVER, DeliveryState.AVAILABLE)
    record.remember(KEY, ended, now=40.0)
    steps = record.history.look(KEY, 4)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    ((_, acquired_ms, ended_ms),) = end.value.value
    assert (acquired_ms, ended_ms) == (970_000, 1_000_000)


def test_clients_are_bounded_and_the_last_ones_are_kept() -> None:
    """By client id, which is cut, and host."""
    record = ShareRecord()
    record.opened("first", "a" * 1_000, "10.0.0.1")
    assert record.clients["first"] == ("a" * 100, "10.0.0.1")
    for number in range(MOST_CLIENTS - 1):
        record.opened(str(number), "c", "h")
    record.opened("first", "again", "10.0.0.2")
    record.opened("new", "c", "h")
    assert len(record.clients) == MOST_CLIENTS
    assert record.clients["first"] == ("again", "10.0.0.2") and "0" not in record.clients
