"""Bugs where a transaction counts as decided though its marker may yet be cut off."""

from __future__ import annotations

import pytest

from raftlog.storage.producers import ProducerState
from raftlog_chaos.scenarios.names_of_one_log import names_of_one_log
from raftlog_chaos.scenarios.pending_markers import pending_markers
from tests.planted.plant import Plant


def leave_pending_transactions_out(patch: pytest.MonkeyPatch) -> None:
    """A snapshot of producers is written while a marker is not committed, and does not hold its transaction."""
    patch.setattr(ProducerState, "has_uncommitted_markers", False)


def end_with_the_marker(patch: pytest.MonkeyPatch) -> None:
    """A transaction is decided once its marker is written, committed or not."""

    def first_unstable_offset(state: ProducerState) -> int | None:
        return min((each.txn_first_offset for each in state._open.values()), default=None)

    patch.setattr(ProducerState, "first_unstable_offset", property(first_unstable_offset))


PLANTS = [
    Plant(
        "pending-markers-forgotten", "compaction: restart", names_of_one_log, leave_pending_transactions_out
    ),
    Plant("markers-decide-at-once", "compaction: marker", pending_markers, end_with_the_marker),
]
