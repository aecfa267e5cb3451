"""Planted bugs of what a broker keeps of replicas that left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.broker.replicas.touched import TouchedPartitions
from raftlog_chaos.scenarios.endurance import endure
from tests.planted.plant import Plant

if TYPE_CHECKING:
    import pytest

    from raftlog.replication.partition import Partition


def wait_for_the_chore(patch: pytest.MonkeyPatch) -> None:
    """A chore that runs every ten minutes holds the log until then."""

    def discard(touched: TouchedPartitions, partition: Partition) -> None:
        for forget in touched.discard_listeners:
            forget(partition)

    patch.setattr(TouchedPartitions, "discard", discard)


PLANTS = (Plant("departed-log-waits", "a deleted log is held", endure, wait_for_the_chore),)
