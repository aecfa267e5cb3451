"""Bugs of what a start after a crash trusts: recovery points, and what is read again from before them."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.replicas.housekeeping import Housekeeping
from raftlog.storage import producer_snapshots
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.flush import FlushState, FlushTicket
from raftlog.storage.log import Log
from raftlog.storage.recovery import TruncationMark
from raftlog.storage.segment import Segment
from raftlog_chaos.scenarios.blackouts import blackouts
from raftlog_chaos.scenarios.kip_101 import kip_101
from raftlog_chaos.scenarios.names_of_one_log import names_of_one_log
from raftlog_chaos.scenarios.retry import retry
from tests.planted.plant import Plant

_TESTS = "tests/storage/test_recovery_point.py"
_MARK_TESTS = "tests/broker/replicas/test_housekeeping.py"
_CHORE_TESTS = "tests/broker/replicas/test_recovery_points.py"


def move_to_what_is_written(patch: pytest.MonkeyPatch) -> None:
    """The recovery point runs ahead of the flush."""
    update = Log.update_recovery_point

    def claim_all(log: Log) -> int:
        update(log)
        log.recovery_point = log.log_end_offset
        return log.recovery_point

    patch.setattr(Log, "update_recovery_point", claim_all)


def count_a_sync_that_has_begun(patch: pytest.MonkeyPatch) -> None:
    """The recovery point counts what is being synced: the checkpoint may be on the disk before the data."""
    begin, update = FlushState.begin, Log.update_recovery_point
    begun: dict[FlushState, int] = {}

    def note_begun(state: FlushState, *given: Any) -> FlushTicket | None:
        ticket = begin(state, *given)
        if ticket is not None:
            begun[state] = ticket.end_offset
        return ticket

    def claim_begun(log: Log) -> int:
        known = begun.get(log._unflushed, 0)
        log.recovery_point = max(update(log), min(known, log.log_end_offset))
        return log.recovery_point

    patch.setattr(FlushState, "begin", note_begun)
    patch.setattr(Log, "update_recovery_point", claim_begun)


def leave_it_where_it_was(patch: pytest.MonkeyPatch) -> None:
    """Recovery points move with the recurring checkpoint only, so that a start reads a minute's records again."""
    patch.setattr(Housekeeping, "_update_recovery_point", lambda keeping, partition: None)


def pass_epochs_that_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    """The recovery point does not wait for the checkpoint of leader epochs."""
    change = LeaderEpochs._change_from

    def change_unnoticed(epochs: LeaderEpochs, offset: int) -> None:
        saved_until = epochs.saved_until
        change(epochs, offset)
        epochs.saved_until = saved_until

    patch.setattr(LeaderEpochs, "_change_from", change_unnoticed)


def believe_the_snapshot_alone(patch: pytest.MonkeyPatch) -> None:
    """A start does not read what producers wrote since their snapshot, as if that were as new as the recovery point."""
    replay = producer_snapshots._replay

    def replay_without_snapshot(state: Any, segments: list[Segment], offset: int, aborted: Any) -> None:
        if not state.markers_known_from:
            replay(state, segments, offset, aborted)

    patch.setattr(producer_snapshots, "_replay", replay_without_snapshot)


def trust_all_that_is_read_again(patch: pytest.MonkeyPatch) -> None:
    """A start does not write again what lies beyond the recovery point, though a failed sync may have dropped it."""
    patch.setattr(Segment, "rewrite", lambda segment, start, end: None)


def save_logs_with_the_minute_only(patch: pytest.MonkeyPatch) -> None:
    """However much a log has grown, a start reads all of that for the indexes and the producers."""

    async def none(keeping: Housekeeping) -> list[Any]:
        return []

    patch.setattr(Housekeeping, "_most_unsaved", none)


def save_new_epochs_with_the_minute_only(patch: pytest.MonkeyPatch) -> None:
    """However much is written in the minute after a failover, a start reads all of that."""
    choose = Housekeeping._most_unsaved

    async def choose_without_them(keeping: Housekeeping) -> list[Any]:
        return [each for each in await choose(keeping) if not each.log.has_unsaved_epochs]

    patch.setattr(Housekeeping, "_most_unsaved", choose_without_them)


def forget_the_high_watermark_of_before(patch: pytest.MonkeyPatch) -> None:
    """The mark of a cut goes though the file of high watermarks is from before the cut."""
    note = TruncationMark.note_checkpoint

    def note_as_written(mark: TruncationMark) -> None:
        mark.note_written_high_watermark()
        note(mark)

    patch.setattr(TruncationMark, "note_checkpoint", note_as_written)


PLANTS = [
    Plant(
        "recovery-point-unflushed",
        "recovery point",
        blackouts,
        move_to_what_is_written,
        test=f"{_TESTS}::test_it_never_passes_what_is_flushed",
    ),
    Plant(
        "recovery-point-before-sync",
        "recovery point",
        blackouts,
        count_a_sync_that_has_begun,
        test=f"{_TESTS}::test_it_never_passes_what_is_flushed",
    ),
    Plant(
        "recovery-point-stands-still",
        "recovery point",
        blackouts,
        leave_it_where_it_was,
        test=f"{_CHORE_TESTS}::test_they_follow_within_a_second_by_one_file_for_all_logs",
    ),
    Plant(
        "unsaved-epochs-passed",
        "epoch cache",
        kip_101,
        pass_epochs_that_are_not_saved,
        test=f"{_TESTS}::test_it_stays_before_a_cut_off_epoch_that_the_checkpoint_of_epochs_still_has",
    ),
    Plant("producers-not-replayed", "producer snapshot", retry, believe_the_snapshot_alone),
    Plant(
        "tail-not-rewritten",
        "failed fsync",
        blackouts,
        trust_all_that_is_read_again,
        test=f"{_TESTS}::test_a_start_reads_and_rewrites_only_the_last_part_of_a_log",
    ),
    Plant(
        "unsaved-bytes-grow",
        "recovery time",
        blackouts,
        save_logs_with_the_minute_only,
        test=f"{_CHORE_TESTS}::test_a_log_that_grew_by_much_is_saved_before_its_minute",
    ),
    Plant(
        "failover-holds-points",
        "recovery time",
        blackouts,
        save_new_epochs_with_the_minute_only,
        test=f"{_CHORE_TESTS}::test_logs_with_a_new_leader_epoch_that_grew_by_much_are_saved_a_few_at_a_time",
    ),
    Plant(
        "high-watermark-of-before",
        "cut of committed records",
        names_of_one_log,
        forget_the_high_watermark_of_before,
        test=f"{_MARK_TESTS}::test_mark_of_a_cut_stays_until_the_high_watermark_is_written",
    ),
]
