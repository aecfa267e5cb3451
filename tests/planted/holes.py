"""Bugs around the holes that compaction leaves: recording them, and counting offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.base.types import NO_OFFSET
from raftlog.coordinator.group_replay import GroupReplay
from raftlog.coordinator.transactions.transaction_records import TransactionReplay
from raftlog.records.batch import Buffer, iter_headers
from raftlog.storage import fetched_batches, gap_check, recovery
from raftlog.storage.cleaned_transactions import CleanedTransactionMetadata
from raftlog.storage.log import Log
from raftlog.storage.producers import ProducerState
from raftlog_chaos.scenarios.names_of_one_log import names_of_one_log
from raftlog_chaos.scenarios.offsets_cleaned import offsets_cleaned
from raftlog_chaos.scenarios.refused_holes import refused_holes
from raftlog_chaos.scenarios.transactions_cleaned import transactions_cleaned
from tests.planted.plant import Plant


def keep_holes_to_oneself(patch: pytest.MonkeyPatch) -> None:
    """The disk does not record that there may be holes: the next start takes them for lost records."""

    patch.setattr(recovery, "write_gaps_mark", lambda disk, directory: None)


def count_records_for_offsets(patch: pytest.MonkeyPatch) -> None:
    """A coordinator reads on after as many offsets as a batch has records."""
    feeding = GroupReplay.feed_stepwise

    def feeding_by_count(replay: GroupReplay, batches: Buffer) -> Iterator[None]:
        yield from feeding(replay, batches)
        for _, header in iter_headers(memoryview(batches)):
            replay.next_offset = header.base_offset + header.record_count

    patch.setattr(GroupReplay, "feed_stepwise", feeding_by_count)


def leave_out_outcomes(patch: pytest.MonkeyPatch) -> None:
    """A marker goes while its records are left: offsets of a transaction pend for ever, or are ignored."""
    patch.setattr(CleanedTransactionMetadata, "is_empty_transaction_marker", lambda outcomes, header: True)
    patch.setattr(Log, "must_retain_batch", lambda log, header: False)


def give_aborted_offsets_room(patch: pytest.MonkeyPatch) -> None:
    """An offset of an aborted transaction replaces the committed offset before it."""
    patch.setattr(CleanedTransactionMetadata, "is_aborted", lambda outcomes, header: False)


def count_outcomes_for_offsets(patch: pytest.MonkeyPatch) -> None:
    """A coordinator of transactions reads on after as many offsets as a batch has records."""
    feed = TransactionReplay.feed

    def feed_by_count(replay: TransactionReplay, batches: Buffer) -> int:
        feed(replay, batches)
        for _, header in iter_headers(memoryview(batches)):
            replay.next_offset = header.base_offset + header.record_count
        return replay.next_offset

    patch.setattr(TransactionReplay, "feed", feed_by_count)


def believe_every_hole(patch: pytest.MonkeyPatch) -> None:
    """A follower takes the next batch wherever it claims to be, as compaction may have taken those before."""
    patch.setattr(fetched_batches, "_is_believed", lambda records, position, header, gaps: True)


def show_every_hole(patch: pytest.MonkeyPatch) -> None:
    """A leader takes what it cannot find for compacted away."""
    patch.setattr(gap_check, "check_gap", lambda segment, offset, *, cached: True)


def end_for_ever_what_a_cut_marker_ended(patch: pytest.MonkeyPatch) -> None:
    """A marker that was committed is never thought to be cut, though rot may cut it: what it aborted is shown then."""
    roll_back = ProducerState.try_truncate

    def roll_back_batches(state: ProducerState, end_offset: int) -> bool:
        for producer in state._idle.values():
            producer.marker_offset = NO_OFFSET
        return roll_back(state, end_offset)

    patch.setattr(ProducerState, "try_truncate", roll_back_batches)


PLANTS = [
    Plant(
        "cut-markers-count",
        "rot, aborted",
        names_of_one_log,
        end_for_ever_what_a_cut_marker_ended,
        4.0,
        test=(
            "tests/storage/test_transactions.py"
            "::test_a_cut_through_a_transaction_whose_marker_was_committed_leaves_it_open"
        ),
    ),
    Plant("holes-believed", "rot outside the CRC", refused_holes, believe_every_hole, 3.0),
    Plant("holes-not-looked-at", "rot outside the CRC", refused_holes, show_every_hole, 3.0),
    Plant("holes-not-noted", "compaction: restart", offsets_cleaned, keep_holes_to_oneself, 4.0),
    Plant(
        "records-counted-for-offsets",
        "compaction: replay",
        offsets_cleaned,
        count_records_for_offsets,
        4.0,
        test=(
            "tests/broker/coordination/test_group_coordinators.py"
            "::test_the_offsets_topic_stays_small_under_commits_and_is_read_back_with_its_holes"
        ),
    ),
    Plant("markers-left-out", "compaction: outcomes", transactions_cleaned, leave_out_outcomes, 3.0),
    Plant(
        "aborted-offsets-count", "compaction: aborted", transactions_cleaned, give_aborted_offsets_room, 3.0
    ),
    Plant(
        "outcomes-counted-for-offsets",
        "compaction: replay",
        transactions_cleaned,
        count_outcomes_for_offsets,
        3.0,
        test=(
            "tests/broker/coordination/test_transaction_coordinators.py"
            "::test_the_topic_of_transactions_stays_small_and_is_read_back_with_its_holes"
        ),
    ),
]
