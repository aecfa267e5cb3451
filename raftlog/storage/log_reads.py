"""The read side of a log: batches by offset, records by time, leader epochs. It finds damage, but does not cut it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raftlog.base.disk import Buffer
from raftlog.base.errors import CorruptMessage, KafkaError, KafkaStorageError, OffsetOutOfRange
from raftlog.base.types import EpochEnd
from raftlog.storage import damage as damages
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.log_segments import LogSegments, segment_of
from raftlog.storage.segment import Segment
from raftlog.storage.segment_reads import find_read_range, holds_records, read_batches

if TYPE_CHECKING:
    from raftlog.storage.timestamps import TimestampAndOffset

READ_ON_BYTES: Final = 64 * 1024
"""A read that ends with its segment continues in the next segments up to this many bytes, which are copied."""

READS_ON_LOOP: Final = 16
"""Further reads of one call on the event loop, some 20 µs each."""


class LogReads:
    """The state that reads use. `Log` sets it."""

    log_start_offset: int
    log_end_offset: int
    damage: damages.Damage | None
    has_old_reads: bool
    _segments: LogSegments
    _epochs: LeaderEpochs
    _uncut_from: int | None
    truncation_count: int

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        cached: bool = True,
        checked: bool = False,
    ) -> Buffer | None:
        """Return whole batches of one segment, from the batch that holds `offset` to below `end_offset`.

        At most `max_bytes`, but `min_one` lets a first batch be larger; b"" if there are none. None if `cached` and it
        would wait for the disk. `checked`: check also what this process wrote. Raise OffsetOutOfRange outside [log
        start, log end]; CorruptMessage or KafkaStorageError where the log is damaged (see `damage`).
        """
        return self.read_with_end(
            offset, max_bytes, end_offset=end_offset, min_one=min_one, cached=cached, checked=checked
        )[0]

    def read_with_end(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        cached: bool = True,
        checked: bool = False,
    ) -> tuple[Buffer | None, int]:
        """Return what `read` returns, and the offset after its last batch, which is `offset` if there is none."""
        log_end = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end:
            raise OffsetOutOfRange(f"offset {offset} is not in [{self.log_start_offset}, {log_end}]")
        sound_end = log_end if self._uncut_from is None else self._uncut_from
        if sound_end <= offset < log_end:
            raise KafkaStorageError(f"the log is damaged from offset {sound_end} on")
        end_offset = min(end_offset, sound_end)
        if offset >= end_offset:
            return b"", offset
        segment = self._segments.active
        if offset < segment.base_offset:
            segment = segment_of(self._segments.all, offset)
            self.has_old_reads = True
        try:
            bounds = find_read_range(
                segment, offset, max_bytes, end_offset=end_offset, min_one=min_one, cached=cached
            )
            if bounds is None:
                return None, offset
            records = read_batches(segment, offset, bounds, cached=cached, checked=checked)
            return records, bounds[2] if records else offset
        except CorruptMessage:
            if self._find_damage(segment, offset):
                raise
            return None if cached else b"", offset

    def read_on(
        self,
        read: tuple[Buffer | None, int],
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        cached: bool = True,
    ) -> tuple[Buffer | None, int]:
        """Extend a read of `read_with_end` into the next segments, for consumers.

        Compaction empties the last batch of a segment and keeps it. A part with only such batches is left out if
        records follow, since some clients repeat such a fetch for ever. None for the records if `cached` and finding
        the first would take long.
        """
        records, read_end = read
        if not records:
            return read
        parts, total, has_any, reads = [records], len(records), holds_records(records), 0
        while read_end < end_offset and not (has_any and total >= READ_ON_BYTES):
            if reads == READS_ON_LOOP and cached:
                break
            room = min(max_bytes, READ_ON_BYTES) - total if has_any else max_bytes
            try:
                more, more_end = self.read_with_end(
                    read_end, room, end_offset=end_offset, min_one=min_one and not has_any, cached=cached
                )
            except (KafkaError, OSError):
                break  # the next read begins there, and reports it
            if not more:
                if more is None and not has_any:
                    return None, read_end
                break
            if not has_any:
                parts, total, has_any = [], 0, holds_records(more)
            parts.append(more)
            total, read_end, reads = total + len(more), more_end, reads + 1
        if reads == READS_ON_LOOP and cached and not has_any:
            return None, read_end
        return parts[0] if len(parts) == 1 else b"".join(parts), read_end

    def _find_damage(self, segment: Segment, offset: int) -> bool:
        """Find the first bad batch. False if all are sound: the index had misled, and is rebuilt."""
        if segment not in self._segments.all:
            raise FileNotFoundError(f"{segment.path}.log was replaced during the read")
        end_offset, cuts = segment.end_offset, self.truncation_count
        bad = damages.first_bad_offset(segment, offset)
        if bad >= end_offset:
            segment.rebuild_indexes()
            return False
        if self.truncation_count == cuts and (self._uncut_from is None or bad < self._uncut_from):
            # In this order: the loop may cut the log between any two of these lines, while another thread finds the
            # damage. It takes a log for repaired only if there is nothing to cut.
            damage = damages.Damage(bad, self.log_end_offset)
            self._uncut_from = bad
            self.damage = damages.merge_damage(self.damage, damage)
        return True

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Return the largest known leader epoch ≤ `epoch` and its exclusive end (KIP-279); (-1, -1) if unknown."""
        return self._epochs.end_of(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, -1 if unknown."""
        return self._epochs.epoch_at(offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """Return the first record at or after a time, from the log start on. Reads and may decompress a batch."""
        from raftlog.storage import timestamps

        self.has_old_reads = True
        return timestamps.find_by_timestamp(self._segments.all, timestamp, self.log_start_offset)

    def max_timestamp(self) -> TimestampAndOffset | None:
        """Return the record with the largest timestamp (ListOffsets -3). Reads and may decompress a batch."""
        from raftlog.storage import timestamps

        self.has_old_reads = True
        return timestamps.find_max_timestamp(self._segments.all, self.log_start_offset)
