"""Bugs of transactions in a log: where read_committed ends, and what it must skip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from raftlog.broker.handlers import offset_fetch, write_txn_markers
from raftlog.coordinator.committed_offsets import GroupOffsets
from raftlog.coordinator.group import Group, OffsetCommitted
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.records.header import BatchHeader
from raftlog.replication.partition import Partition
from raftlog.storage.producers import ProducerState, ProducerStateEntry
from raftlog.storage.transaction_index import TransactionIndex
from raftlog_chaos.scenarios.exactly_once import exactly_once, exactly_once_groups
from raftlog_chaos.scenarios.transactions import transactions
from tests.planted.plant import Plant


def stable_offset_one_too_high(patch: pytest.MonkeyPatch) -> None:
    """read_committed sees the first batch of an open transaction."""

    def last_stable_offset(partition: Partition) -> int:
        unstable = partition.log.first_unstable_offset
        return partition.high_watermark if unstable is None else min(unstable + 1, partition.high_watermark)

    patch.setattr(Partition, "last_stable_offset", property(last_stable_offset))


def forget_aborted_on_recovery(patch: pytest.MonkeyPatch) -> None:
    """After a restart it is unknown which transactions were aborted."""
    patch.setattr(TransactionIndex, "load", lambda *arguments, **rest: True)


def list_no_aborted(patch: pytest.MonkeyPatch) -> None:
    """A fetch lists none of the transactions that a consumer must skip."""
    patch.setattr(TransactionIndex, "in_batches", lambda aborted, offset, batches: [])


def forget_open_transactions_on_restart(patch: pytest.MonkeyPatch) -> None:
    """A snapshot brings back a producer, but not that its transaction is open."""
    restore = ProducerState._restore

    def restore_closed(state: ProducerState, producer_id: int, epoch: int, *rest: Any) -> ProducerStateEntry:
        return restore(state, producer_id, epoch, *rest[:-1], -1)

    patch.setattr(ProducerState, "_restore", restore_closed)


def verification_outlives_the_marker(patch: pytest.MonkeyPatch) -> None:
    """The coordinator's confirmation is taken for true although its transaction has ended since (KAFKA-14402)."""
    patch.setattr(ProducerState, "end_verifications", lambda state, producer_id, epoch, **version: None)


def any_coordinator_ends_transactions(patch: pytest.MonkeyPatch) -> None:
    """A marker of a coordinator that was deposed is written."""
    check = ProducerState.check_marker

    def check_as_the_newest(state: ProducerState, producer_id: int, epoch: int, **asked: int) -> bool:
        return check(state, producer_id, epoch, **{**asked, "coordinator_epoch": 1 << 30})

    patch.setattr(ProducerState, "check_marker", check_as_the_newest)


def late_markers_end_the_next_transaction(patch: pytest.MonkeyPatch) -> None:
    """The epoch of a marker may be that of the open transaction, whatever the transaction's version."""
    check = ProducerState.check_marker

    def check_as_before(state: ProducerState, producer_id: int, epoch: int, **asked: int) -> bool:
        return check(state, producer_id, epoch, **{**asked, "transaction_version": 0})

    patch.setattr(ProducerState, "check_marker", check_as_before)


def pending_offsets_read_back_as_committed(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator takes what was committed in a transaction for committed."""

    def move(replay: GroupReplay, header: BatchHeader, record: OffsetCommitted) -> None:
        positions = replay._offsets.setdefault(record.group_id, GroupOffsets())
        positions.put((record.topic, record.partition), record.committed)

    patch.setattr(GroupReplay, "_move", move)


def pending_offsets_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not know which groups a marker concerns."""
    load = GroupCoordinator.load

    def load_without(coordinator: GroupCoordinator, groups: Iterable[Group], *, now: float) -> None:
        load(coordinator, groups, now=now)
        coordinator._open.clear()

    patch.setattr(GroupCoordinator, "load", load_without)


def unstable_offsets_told(patch: pytest.MonkeyPatch) -> None:
    """A transaction's successor reads the offset from before it, though it is decided and its marker on the way."""
    patch.setattr(offset_fetch, "is_unstable", lambda group, tp: False)


def markers_answered_at_the_append(patch: pytest.MonkeyPatch) -> None:
    """A transaction is over for its coordinator although a marker may still be lost with its leader."""

    def await_nothing(partition: Partition, end_offset: int, waiter: Any) -> None:
        waiter.committed(partition)

    original = Partition.await_commit

    def await_commit(partition: Partition, end_offset: int, waiter: Any) -> None:
        wait = await_nothing if isinstance(waiter, write_txn_markers.PendingMarker) else original
        wait(partition, end_offset, waiter)

    patch.setattr(Partition, "await_commit", await_commit)


PLANTS = [
    Plant("stable-offset-one-too-high", "last stable offset", transactions, stable_offset_one_too_high),
    Plant("aborted-not-listed", "aborted read", transactions, list_no_aborted),
    Plant("aborted-lost-on-restart", "aborted read", transactions, forget_aborted_on_recovery),
    Plant("open-lost-on-restart", "open transaction", transactions, forget_open_transactions_on_restart),
    Plant("verified-for-ever", "hanging transaction", transactions, verification_outlives_the_marker),
    Plant("old-coordinator-heard", "zombie coordinator", transactions, any_coordinator_ends_transactions),
    Plant("late-marker-heard", "late marker", transactions, late_markers_end_the_next_transaction),
    Plant(
        "pending-read-back",
        "half a transaction",
        exactly_once,
        pending_offsets_read_back_as_committed,
        6.0,
    ),
    Plant(
        "pending-forgotten",
        "half a transaction",
        exactly_once,
        pending_offsets_forgotten,
        6.0,
    ),
    Plant("unstable-offsets-told", "processed twice", exactly_once_groups, unstable_offsets_told, 6.0),
    Plant(
        "markers-answered-early",
        "lost marker",
        exactly_once,
        markers_answered_at_the_append,
        6.0,
        test=(
            "tests/broker/coordination/test_stuck_partitions.py"
            "::test_markers_that_are_not_committed_in_time_are_answered_so_and_the_others_with_them"
        ),
    ),
]
