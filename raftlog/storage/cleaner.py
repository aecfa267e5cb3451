"""Compaction: one cleaning of one log keeps the newest record of each key (KIP-58, 87, 354, 534; Kafka's Cleaner).

First the keys of the dirty part are gathered, as many as the memory allows. Then all segments up to there are written
anew without what is superseded, group by group, each put in its place at once. These stay, for these reasons:

- offsets, and the bounds of batches: a hole comes before a batch, never after the last one of a segment, so that a
  reader finds the next batch in the same file;
- a batch that producers are known by, emptied of its records if need be, so that their sequences are known for ever;
- the first batch of each leader epoch, likewise: a replica that is made from this log learns where the epochs begin,
  and as a leader makes followers truncate what only they have;
- a tombstone, and the marker of a transaction without batches, until delete.retention.ms after the cleaning that found
  it, and longer while a replica is offline: it would keep the deleted record and serve it later;
- everything from the first undecided transaction on: the last stable offset bounds a cleaning.

Ordering law: a group is replaced only after those before it, and `cleaned_until` moves after all of them. So a
tombstone is never removed before the records that it deletes.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from raftlog.base.errors import CorruptMessage, UnsupportedCompressionType
from raftlog.records.batch import read_end_marker
from raftlog.records.compression import NONE, compress, decompress
from raftlog.records.header import HEADER_BYTES, BatchHeader
from raftlog.records.raw_records import (
    MAX_CLEANED_BYTES,
    RawRecord,
    copy_record,
    delete_horizon,
    iter_raw,
    rebuild_batch,
    without_records,
)
from raftlog.storage import recovery, swap
from raftlog.storage.batch_reader import LogBatch, LogBatchReader, LogChanged, OffloadSteps
from raftlog.storage.cleaned_segment import CleanedSegment
from raftlog.storage.cleaned_transactions import CleanedTransactionMetadata
from raftlog.storage.log_to_clean import LogToClean, group_segments
from raftlog.storage.offset_map import OffsetMap
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.storage.log import Log

_T = TypeVar("_T")

RECORDS_PER_STEP: Final = 100
"""Records between two places where the loop may run other tasks: well below a millisecond."""


NO_DELTA: Final = -(2**63)

REBASABLE_TIMESTAMPS: Final = range(-(2**62), 2**62)
"""Timestamps that can be written relative to any delete horizon. Producers made up the others."""


class RetainedRecords(NamedTuple):
    """The part of a batch that stays. `deletes`: it includes tombstones."""

    records: int
    newest_delta: int
    deletes: bool


class Cleaning:
    """One cleaning. Run through `steps`; `is_complete` says whether it got to its end."""

    def __init__(
        self,
        log: Log,
        bounds: LogToClean,
        *,
        now_ms: int,
        latest_ms: int,
        may_forget: bool,
        map_bytes: int,
    ) -> None:
        """`now_ms` judges age, new delete horizons begin at `latest_ms` (see `raftlog.base.record_ages`).

        `may_forget`: expired tombstones and markers may go, since all replicas have seen them.
        """
        self._log = log
        self._bounds = bounds
        self._now_ms = now_ms
        self._latest_ms = latest_ms
        self._may_forget = may_forget
        self._map = OffsetMap(map_bytes, bounds.first_dirty)
        self._aborted = log.aborted_before(bounds.end)
        self._cuts = log.truncation_count
        self._source = LogBatchReader(log, bounds.segments)
        self.bytes_before = self.bytes_after = 0
        self.records_before = self.records_after = 0
        self.first_malformed: int | None = None
        """Offset of the first batch that a producer sent malformed: such batches stay as they are."""
        self.malformed = 0
        self.is_complete = False

    @property
    def cleaned_until(self) -> int:
        """Every record before this offset was seen."""
        return self._map.end_offset

    @property
    def position(self) -> int:
        """The offset that the cleaning has come to: where a batch is unsound if it fails."""
        return self._source.offset

    @property
    def is_log_changed(self) -> bool:
        """Whether the log was cut or dropped what is read: an error then is not the disk's."""
        return self._source.is_log_changed

    def steps(self) -> OffloadSteps[None]:
        """Clean. Raises CorruptMessage where the log is damaged, OSError; the log is then as it was, or partly done."""
        try:
            yield from self._clean()
        except LogChanged:
            return

    def _clean(self) -> OffloadSteps[None]:
        yield from self._gather_keys()
        segments = tuple(each for each in self._bounds.segments if each.base_offset < self._map.end_offset)
        outcomes = CleanedTransactionMetadata(self._aborted)
        for group in group_segments(segments, self._log.config):
            if not (yield from self._clean_group(group, outcomes)):
                return
        yield from self._map.released()
        if self._is_uncut:
            self._log.cleaned_until = self._map.end_offset
            self.is_complete = True

    # -- the keys ------------------------------------------------------------------------------------------------

    def _gather_keys(self) -> OffloadSteps[None]:
        """Fill the map from the dirty part, until it is full: the rest waits for the next cleaning."""
        bounds, outcomes = self._bounds, CleanedTransactionMetadata(self._aborted)
        dirty = [each for each in bounds.segments if each.end_offset > bounds.first_dirty]
        self._source = source = LogBatchReader(self._log, dirty)
        while (batch := (yield from source.next())) is not None:
            header = batch.header
            if header.end_offset <= bounds.first_dirty:
                continue
            if not header.is_control and not outcomes.is_aborted(header):
                plain = yield from _plain(batch)
                if plain is None:
                    self._note_malformed(header)
                elif not (yield from self._gather_batch(header, plain)):
                    return
            self._map.end_offset = header.end_offset
            yield None
        self._map.end_offset = bounds.end

    def _note_malformed(self, header: BatchHeader) -> None:
        self.malformed += 1
        if self.first_malformed is None:
            self.first_malformed = header.base_offset

    def _gather_batch(self, header: BatchHeader, plain: bytes) -> OffloadSteps[bool]:
        """Take in a batch's keys; False if the map had no room for all."""
        for number, record in enumerate(iter_raw(plain, header.record_count), 1):
            offset = header.base_offset + record.offset_delta
            if record.key is not None and offset >= self._bounds.first_dirty:
                if self._map.is_full:
                    self._map.end_offset = offset
                    return False
                self._map.put(record.key, offset)
            if number % RECORDS_PER_STEP == 0:
                yield None
        return True

    # -- the segments --------------------------------------------------------------------------------------------

    def _clean_group(
        self, group: tuple[Segment, ...], outcomes: CleanedTransactionMetadata
    ) -> OffloadSteps[bool]:
        """Write a group anew and put that in its place; False if the log was cut meanwhile."""
        log = self._log
        target = CleanedSegment(log.disk, log.directory, group, config=log.config)
        replaced = False
        try:
            self._source = source = LogBatchReader(log, group)
            while (batch := (yield from source.next())) is not None:
                if log.truncation_count != self._cuts:
                    return False
                kept = yield from self._filter(
                    batch, outcomes, is_last=batch.header.end_offset == target.expected_end_offset
                )
                if kept is not None:
                    target.add(kept)
                yield None
            yield target.seal
            if not log.active_segment.may_have_gaps:
                yield partial(recovery.write_gaps_mark, log.disk, log.directory)
                log.note_gaps()
            if self._is_uncut and self._change_names(log.swaps.announce_swap, group, target.segment):
                yield partial(swap.sync_announcement, log.disk, log.directory)
                replaced = self._is_uncut and self._change_names(log.replace_segments, group, target.segment)
        finally:
            if not replaced:
                log.swaps.give_up_swap()
                target.discard()
        self.bytes_before += sum(each.size for each in group)
        self.bytes_after += target.segment.size
        if replaced:
            yield partial(swap.sync_exchange, log.disk, log.directory)
            self._change_names(log.swaps.name_swapped, target.segment)
        return replaced

    @property
    def _is_uncut(self) -> bool:
        return self._log.truncation_count == self._cuts

    @staticmethod
    def _change_names(change: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return change(*arguments)
        except OSError as error:  # whatever it was: names may be half changed
            raise OSError(EIO, "segments could not be replaced") from error

    def _filter(
        self, batch: LogBatch, outcomes: CleanedTransactionMetadata, *, is_last: bool
    ) -> OffloadSteps[bytes | memoryview | None]:
        """Return what is left of a batch, None if it is empty."""
        header = batch.header
        self.records_before += header.record_count
        if header.is_control:
            kept = self._filter_marker(batch, outcomes, is_last=is_last)
        else:
            kept = yield from self._filter_data(batch, is_aborted=outcomes.is_aborted(header))
            if kept is None and (is_last or self._log.must_retain_batch(header)):
                kept = without_records(header)
        return kept

    def _filter_marker(
        self, batch: LogBatch, outcomes: CleanedTransactionMetadata, *, is_last: bool
    ) -> bytes | memoryview | None:
        """Return a marker whole, or None: an empty marker would lose its producer's epoch."""
        header = batch.header
        is_marker = read_end_marker(batch.whole) is not None
        ends_nothing = outcomes.is_empty_transaction_marker(header)
        self.records_after += header.record_count
        if not is_marker or not ends_nothing:
            return batch.whole
        horizon_ms = delete_horizon(header)
        if horizon_ms is None:
            return self._with_horizon(batch)
        if is_last or self._log.must_retain_batch(header) or not self._is_over(horizon_ms):
            return batch.whole
        self.records_after -= header.record_count
        return None

    def _with_horizon(self, marker: LogBatch) -> bytes:
        header, plain = marker.header, bytes(marker.whole[HEADER_BYTES:])
        horizon_ms, out = self._new_horizon(), bytearray()
        for record in iter_raw(plain, header.record_count):
            copy_record(out, header, plain, record, horizon_ms=horizon_ms)
        count, newest = header.record_count, header.max_timestamp - header.base_timestamp
        return rebuild_batch(header, bytes(out), count=count, newest_delta=newest, horizon_ms=horizon_ms)

    def _filter_data(self, batch: LogBatch, *, is_aborted: bool) -> OffloadSteps[bytes | memoryview | None]:
        header = batch.header
        if is_aborted or not header.record_count:
            return None
        plain = None
        if header.base_offset < self._map.end_offset:
            plain = yield from _plain(batch)
        if plain is None:
            self.records_after += header.record_count
            return batch.whole
        left = yield from self._count(header, plain)
        self.records_after += left.records
        if not left.records:
            return None
        sets_horizon = left.deletes and delete_horizon(header) is None
        if left.records == header.record_count and not sets_horizon:
            return batch.whole
        return (yield from self._rebuild(header, plain, left, self._new_horizon() if sets_horizon else None))

    def _count(self, header: BatchHeader, plain: bytes) -> OffloadSteps[RetainedRecords]:
        """Find out what is left of a batch, without keeping it: a batch may have very many records."""
        count, newest, deletes = 0, NO_DELTA, False
        horizon_ms = delete_horizon(header)
        for number, record in enumerate(iter_raw(plain, header.record_count), 1):
            if self._is_wanted(record, header.base_offset, horizon_ms):
                count += 1
                newest = max(newest, record.timestamp_delta)
                deletes = deletes or not record.has_value
            if number % RECORDS_PER_STEP == 0:
                yield None
        return RetainedRecords(count, newest, deletes)

    def _rebuild(
        self, header: BatchHeader, plain: bytes, left: RetainedRecords, new_horizon_ms: int | None
    ) -> OffloadSteps[bytes]:
        out = bytearray()
        horizon_ms = delete_horizon(header)
        for number, record in enumerate(iter_raw(plain, header.record_count), 1):
            if self._is_wanted(record, header.base_offset, horizon_ms):
                copy_record(out, header, plain, record, horizon_ms=new_horizon_ms)
            if number % RECORDS_PER_STEP == 0:
                yield None
        payload = bytes(out)
        if header.codec != NONE:
            payload = yield partial(compress, header.codec, payload)
        return rebuild_batch(
            header, payload, count=left.records, newest_delta=left.newest_delta, horizon_ms=new_horizon_ms
        )

    def _is_wanted(self, record: RawRecord, base_offset: int, horizon_ms: int | None) -> bool:
        """Return whether a record stays. One without a key does not: no reader of a compacted topic can look it up."""
        if record.key is None or self._map.newest(record.key) > base_offset + record.offset_delta:
            return False
        return record.has_value or horizon_ms is None or not self._is_over(horizon_ms)

    def _is_over(self, horizon_ms: int) -> bool:
        return self._may_forget and self._now_ms >= horizon_ms

    def _new_horizon(self) -> int:
        return min(self._latest_ms + self._log.config.delete_retention_ms, REBASABLE_TIMESTAMPS[-1])


def _plain(batch: LogBatch) -> OffloadSteps[bytes | None]:
    """Return a batch's plain bytes; None if its records are malformed, as a producer may send them. Such a batch stays.

    So does a batch with offsets or timestamps that a rewritten batch could not hold. Decompression may take long: a
    small batch may become a large one.
    """
    header, payload = batch.header, batch.whole[HEADER_BYTES:]
    plain: bytes | None = bytes(payload)
    if header.codec != NONE:
        plain = yield partial(_decompressed, header.codec, payload)
    last_delta = -1
    try:
        for number, record in enumerate(iter_raw(plain or b"", header.record_count), 1):
            if not (
                last_delta < record.offset_delta <= header.last_offset_delta
                and header.base_timestamp + record.timestamp_delta in REBASABLE_TIMESTAMPS
            ):
                return None
            last_delta = record.offset_delta
            if number % RECORDS_PER_STEP == 0:
                yield None
    except CorruptMessage:
        return None
    return plain


def _decompressed(codec: int, payload: memoryview) -> bytes | None:
    try:
        return decompress(codec, payload, max_bytes=MAX_CLEANED_BYTES)
    except (CorruptMessage, UnsupportedCompressionType):
        return None
