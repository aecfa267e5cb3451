"""Planted bugs of what a broker keeps of replicas that left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.broker.network.fetch_sessions import FetchSessions
from raftlog.broker.replicas.touched import TouchedPartitions
from raftlog_chaos.scenarios.endurance import endure
from raftlog_chaos.scenarios.fetch_sessions import fetch_sessions
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


def keep_in_sessions(patch: pytest.MonkeyPatch) -> None:
    """The session of a client that is gone holds the log until it is evicted."""
    patch.setattr(FetchSessions, "detach", lambda sessions, partition: None)


PLANTS = (
    Plant("departed-log-waits", "a deleted log is held", endure, wait_for_the_chore),
    Plant("departed-log-in-session", "a deleted log is held", fetch_sessions, keep_in_sessions),
)
