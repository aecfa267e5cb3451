"""raftlog.broker.coordination.led_share_partitions: how large a share partition is in a turn of the loop."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftlog.broker.coordination.led_share_partitions import RANGES_IN_A_PART, LedSharePartitions
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.delivery import DeliveryState, StateBatch
from raftlog.sharing.share_partition import SharePartition
from tests.broker.handlers.one_broker import HandlerSetup

KEY = SharePartitionKey("work", UUID(int=1), 0)


def test_a_share_partition_with_many_ranges_is_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second record is done: 2,000 ranges take a while to sum up."""
    store: Any = None
    led = LedSharePartitions(HandlerSetup().broker, store)
    assert led.parts_of(KEY) == led.parts_of("another") == 1
    done = [StateBatch(at, at, DeliveryState.ACKNOWLEDGED, 1) for at in range(1, 2_000, 2)]
    machine = SharePartition(0, done)
    monkeypatch.setattr(led, "machine_of", lambda key: machine)
    assert machine.range_count == 2_000
    assert led.parts_of(KEY) == 1 + 2_000 // RANGES_IN_A_PART
