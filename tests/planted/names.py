"""Bugs of code that relies on the order in which names of a folder reach the disk: missing syncs and rules."""

from __future__ import annotations

import pytest

from raftlog.base.types import NO_OFFSET
from raftlog.storage import dropped_segments, log_segments, recovery, swap
from raftlog.storage.dropped_segments import HEAD
from raftlog.storage.flush import FlushState
from raftlog.storage.log_segments import LogSegments
from raftlog.storage.producer_snapshots import ProducerSnapshots
from raftlog_chaos.scenarios.names_of_one_log import names_of_one_log
from tests.planted.plant import Plant


def announce_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """An old segment is gone after a power cut, and no start knows of the cleaned segment."""
    patch.setattr(swap, "sync_announcement", lambda disk, directory: None)


def name_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """The cleaned segment has its name after a power cut, and the replaced segments still have theirs."""
    patch.setattr(swap, "sync_exchange", lambda disk, directory: None)


def leave_drops_unfinished(patch: pytest.MonkeyPatch) -> None:
    """A start takes what is left of a drop for the log."""
    patch.setattr(dropped_segments, "dropped_offsets", lambda names, suffix: [])


def drop_without_saying_where(patch: pytest.MonkeyPatch) -> None:
    """Segments that left the head bear Kafka's suffix, which does not say that those before them left too."""
    patch.setattr(log_segments, "HEAD", ".deleted")


def cut_without_saying_where(patch: pytest.MonkeyPatch) -> None:
    """Segments that were cut off bear Kafka's suffix, which does not say that those after them were, too."""
    patch.setattr(log_segments, "TAIL", ".deleted")


def remove_dropped_files_too_early(patch: pytest.MonkeyPatch) -> None:
    """Files that say that others were dropped are gone before those are."""
    drop = LogSegments.drop_oldest

    def drop_and_remove(segments: LogSegments, count: int) -> int:
        dropped = drop(segments, count)
        segments._remove(segments.pending_deletes.take(HEAD))
        return dropped

    patch.setattr(LogSegments, "drop_oldest", drop_and_remove)


def begin_a_second_segment_at_once(patch: pytest.MonkeyPatch) -> None:
    """The second segment's name is on the disk after a power cut, the first's name is not: the log begins there."""
    patch.setattr(FlushState, "has_durable_name", lambda flush_state, segment: True)


_HAZARD = "names reach the disk in any order"


def let_the_newest_cut_count(patch: pytest.MonkeyPatch) -> None:
    """A further cut withdraws the previous cut, though the recovery point is from before both."""
    cut = recovery.TruncationMark.cut

    def cut_anew(mark: recovery.TruncationMark, end_offset: int) -> None:
        mark.until = None
        cut(mark, end_offset)

    patch.setattr(recovery.TruncationMark, "cut", cut_anew)


def count_checkpoints_not_written(patch: pytest.MonkeyPatch) -> None:
    """The mark of a cut goes with the second checkpoint after it, whether or not the recovery point was written."""
    note = recovery.TruncationMark.note_checkpoint

    def note_as_written(mark: recovery.TruncationMark) -> None:
        note(mark)
        mark.note_written_point()

    patch.setattr(recovery.TruncationMark, "note_checkpoint", note_as_written)


def keep_the_producers_of_before(patch: pytest.MonkeyPatch) -> None:
    """A log that begins anew reads the snapshot of producers that lies at that very offset."""
    truncate = ProducerSnapshots.truncate

    def truncate_later(snapshots: ProducerSnapshots, end_offset: int) -> None:
        if end_offset != NO_OFFSET:
            truncate(snapshots, end_offset)

    patch.setattr(ProducerSnapshots, "truncate", truncate_later)


PLANTS = [
    Plant("swap-announced-unsynced", _HAZARD, names_of_one_log, announce_without_a_sync, 4.0),
    Plant("swap-named-unsynced", _HAZARD, names_of_one_log, name_without_a_sync, 4.0),
    Plant("drops-unfinished", _HAZARD, names_of_one_log, leave_drops_unfinished, 4.0),
    Plant("head-unsaid", _HAZARD, names_of_one_log, drop_without_saying_where, 4.0),
    Plant("tail-unsaid", _HAZARD, names_of_one_log, cut_without_saying_where, 4.0),
    Plant("dropped-files-too-early", _HAZARD, names_of_one_log, remove_dropped_files_too_early, 4.0),
    Plant("first-name-unsynced", _HAZARD, names_of_one_log, begin_a_second_segment_at_once, 4.0),
    Plant("newest-cut-counts", _HAZARD, names_of_one_log, let_the_newest_cut_count, 4.0),
    Plant("unwritten-points-count", _HAZARD, names_of_one_log, count_checkpoints_not_written, 4.0),
    Plant("former-producers-kept", _HAZARD, names_of_one_log, keep_the_producers_of_before, 4.0),
]
