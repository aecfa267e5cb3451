"""The metrics of transactions show what was decided and committed, over failovers too."""

from __future__ import annotations

import tracemalloc

from raftlog.coordinator.transactions.transaction import (
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_coordinator import OutcomeCounts, TransactionCoordinator
from tests.coordinator.transactions.transaction_coordinator_setup import TransactionCoordinatorSetup


class SharedCountsSetup(TransactionCoordinatorSetup):
    """A setup with coordinators that count together, as in a broker."""

    def __init__(self, *, autocommit: bool = True) -> None:
        self.ended = OutcomeCounts()
        super().__init__(autocommit=autocommit)

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config, self.append, send=self.sent.append, take_id=self.take_id, ended=self.ended
        )

    def states(self) -> dict[TransactionState, int]:
        return {state: count for state, count in self.coordinator.counts.states.items() if count > 0}


def test_each_end_is_counted_by_its_reason() -> None:
    """Committed, aborted, timed out, fenced; an outcome that a new coordinator repeats counts once."""
    bench = SharedCountsSetup()
    for name, commit in (("a", True), ("b", False)):
        producer = bench.init(name=name)
        bench.add(producer, 0, name=name)
        bench.end(producer, commit=commit, name=name)
    bench.add(bench.init(name="c", timeout_ms=1000), 0, name="c")
    bench.pass_time(2)
    bench.add(bench.init(name="d"), 0, name="d")
    bench.init(name="d")
    bench.fail_over()
    assert len(bench.sent) == 4
    assert bench.ended == OutcomeCounts(committed=1, aborted=3, timed_out=1, fenced=1)


def test_an_end_counts_once_it_is_committed() -> None:
    """Before that it may be lost."""
    bench = SharedCountsSetup(autocommit=False)
    bench.init()
    bench.commit()
    producer = bench.read().producer
    bench.add(producer, 0)
    bench.commit()
    bench.end(producer)
    assert bench.ended.committed == 0
    bench.commit()
    assert bench.ended.committed == 1


def test_ids_are_reported_by_state_with_the_age_of_open_transactions() -> None:
    """The same as read back; what ended is not open, and what begins anew begins then."""
    bench = SharedCountsSetup()
    producer = bench.init()
    began_ms = bench.now_ms
    bench.add(producer, 0)
    bench.init(name="y")
    bench.now += 10
    bench.add(producer, 1)
    for _ in ("decided here", "read back"):
        assert bench.states() == {TransactionState.ONGOING: 1, TransactionState.EMPTY: 1}
        assert bench.coordinator.counts.open_since == {"x": began_ms}
        bench.fail_over()
    bench.end(producer)
    assert bench.states() == {TransactionState.PREPARE_COMMIT: 1, TransactionState.EMPTY: 1}
    assert bench.coordinator.counts.open_since == {"x": began_ms}
    bench.markers_written()
    assert not bench.coordinator.counts.open_since
    bench.add(producer, 0)
    assert bench.coordinator.counts.open_since == {"x": bench.now_ms}


def test_an_id_at_rest_costs_little_beside_its_value() -> None:
    """`raftlog.transaction.max.ids` states the memory of a million ids: no object is made before a request waits."""
    bench, ids = TransactionCoordinatorSetup(), 2_000
    known = [
        Transaction(f"x{each}", ProducerIdAndEpoch(each, 0), TransactionState.EMPTY, 1000)
        for each in range(ids)
    ]
    tracemalloc.start()
    try:
        bench.take_over(*known)
        assert tracemalloc.get_traced_memory()[0] < 300 * ids
    finally:
        tracemalloc.stop()
