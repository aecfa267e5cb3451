"""The end of a log going back: to an offset, to an empty log, or to before damage that a reader found.

Ordering law: the cut is announced durably first, where a checkpoint reaches beyond it (`TruncationMark`), then the
files are cut, then the log's state follows. An OSError in between leaves a log that must go offline.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from raftlog.base.disk import Disk, half_changed
from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_OFFSET
from raftlog.storage import damage as damages
from raftlog.storage import recovery
from raftlog.storage.flush import FlushState
from raftlog.storage.index_check import check_time_before
from raftlog.storage.log_reads import LogReads
from raftlog.storage.log_segments import BASE_OFFSET, START
from raftlog.storage.producer_snapshots import ProducerSnapshots
from raftlog.storage.producers import ProducerState
from raftlog.storage.segment import Segment
from raftlog.storage.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig


class LogTruncation(LogReads):
    """The state that truncation uses. `Log` sets it."""

    disk: Disk
    directory: str
    producers: ProducerState
    recovery_point: int
    cleaned_until: int
    truncation_count: int
    transaction_index: TransactionIndex
    _config: TopicConfig
    _snapshots: ProducerSnapshots
    _truncation_mark: recovery.TruncationMark
    _unflushed: FlushState
    _checkpointed: tuple[int, int]

    def truncate_to(self, offset: int, *, committed: bool = False) -> int:
        """Cut every batch that reaches `offset` or beyond, durably; returns the new log end offset.

        `committed`: the cut removes committed records, so checkpoints of the high watermark are beyond the log's end.
        """
        self.truncate_damage()
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        if offset >= self.log_end_offset:
            return self.log_end_offset
        segments = self._segments
        keep = bisect_left(segments.all, offset, key=BASE_OFFSET)
        found = self._find_cut(segments.all[keep - 1], offset)
        if found is None:
            return self.truncate_to(offset, committed=committed)
        position, end_offset = found
        self._announce_cut(end_offset, always=committed)
        with half_changed(self.directory):
            segments.cut(keep).truncate(position, end_offset)
            segments.configure(self._config)
            self._forget_beyond(end_offset)
        return self.log_end_offset

    def _find_cut(self, segment: Segment, offset: int) -> tuple[int, int] | None:
        """Return the position and the offset where a cut ends a segment. None: search again, without the damage found.

        If the index had misled, it is rebuilt, and there is no damage.
        """
        try:
            found = segment.cut_point(offset)
        except CorruptMessage:
            self._find_damage(segment, segment.base_offset)
            return None
        return None if self._has_damage_before(segment, found[1]) else found

    def _has_damage_before(self, segment: Segment, end_offset: int) -> bool:
        """Return whether a cut at `end_offset` finds rot in the part that stays: that damage is cut first."""
        try:
            segment.load_time_index()
            check_time_before(segment, end_offset)
        except CorruptMessage:
            start = segment.base_offset
            return damages.first_bad_offset(segment, start) < end_offset and self._find_damage(segment, start)
        return False

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`, durably. OSError leaves a log that must go offline.

        Leader epochs and producers go before the records: later records may be of an older epoch and of other
        transactions.
        """
        self._announce_cut(offset, always=True)
        with half_changed(self.directory):
            self._epochs.clear()
            recovery.remove_epoch_checkpoint(self.disk, self.directory)
            self._snapshots.truncate(NO_OFFSET)
            self._segments.restart_at(offset)
            self.log_start_offset = offset
            self._forget_beyond(offset)

    def _announce_cut(self, end_offset: int, *, always: bool = False) -> None:
        """Write durably that a checkpointed part is cut, before it is cut: else the next start reports it missing.

        `always`: even if no checkpoint reaches it, since a start that finds no segment begins the log there.
        """
        if always or end_offset < self.recovery_point:
            self._truncation_mark.cut(end_offset)
            self.recovery_point = min(self.recovery_point, end_offset)

    def _forget_beyond(self, end_offset: int) -> None:
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)  # rot in records that were deleted
        self.cleaned_until = min(self.cleaned_until, end_offset)
        self.truncation_count += 1
        self._checkpointed = START
        self._unflushed.truncate(end_offset)
        self._announce_cut(end_offset)
        self._epochs.truncate(end_offset)
        self._snapshots.truncate(end_offset)
        self.transaction_index.truncate(end_offset)
        self.transaction_index.save(self.disk, self._segments.all[-1])
        if end_offset > self._segments.all[0].base_offset and self.producers.try_truncate(end_offset):
            return
        self._load_producers()

    def _load_producers(self) -> None:
        """Read the producers back from the log. Damage found on the way is cut off first."""
        segments = self._segments.all
        try:
            self.producers = self._snapshots.load(segments, aborted=self.transaction_index)
        except CorruptMessage:
            if any(self._find_damage(each, each.base_offset) for each in reversed(segments)):
                self.truncate_damage()
            else:  # a wrong index had misled, and all are rebuilt
                self.producers = self._snapshots.load(segments, aborted=self.transaction_index)

    def truncate_damage(self) -> None:
        """Set damage that a reader found aside (`.damaged` files) and cut it off, so that a follower can refetch it.

        A log without damage is left alone. The mark stays, over restarts too, until the log reaches its former end or
        `accept_damage`.
        """
        if self._uncut_from is None:
            return
        if not self._segments.all[0].base_offset <= self._uncut_from < self.log_end_offset:
            # The loop took this part away while a reader on another thread noted the damage.
            self._uncut_from = None
            return
        keep = bisect_right(self._segments.all, self._uncut_from, key=BASE_OFFSET)
        self._has_damage_before(self._segments.all[keep - 1], self._uncut_from)  # there is less to keep then
        if self.damage is None:  # a reader on another thread is about to note it
            self.damage = damages.Damage(self._uncut_from, self.log_end_offset)
        damages.write_damage_mark(self.disk, self.directory, self.damage)
        offset, self._uncut_from = self._uncut_from, None
        with half_changed(self.directory):
            last = self._segments.cut(keep, suffix=".damaged")
            damages.set_aside(self.disk, last, offset)
            self._segments.configure(self._config)
            self._forget_beyond(offset)

    def accept_damage(self) -> None:
        """Take the log as it is: the replica has caught up with its leader, or an unclean election chose it."""
        self.truncate_damage()
        self.damage = None
        damages.remove_damage_mark(self.disk, self.directory)
