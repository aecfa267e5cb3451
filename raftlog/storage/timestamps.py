"""Records by their timestamps, for ListOffsets: from a log's segments down to batches.

Runs in a thread, one batch at a time. A batch is decompressed within bounds, and its records are read one by one, no
further than needed. So a search takes bounded memory and time, however many records a small batch claims or has. A
client may have sent malformed records. From the first of these on, a batch counts as a single record with the header's
largest timestamp. So a search misses no record, and continues with other clients' batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog.base.errors import CorruptMessage, UnsupportedCompressionType
from raftlog.base.types import NO_EPOCH, NO_TIMESTAMP
from raftlog.records.batch import HEADER_BYTES, check_crc
from raftlog.records.compression import decompress
from raftlog.records.header import LOG_APPEND_TIME_BIT, BatchHeader
from raftlog.records.raw_records import RawRecord, iter_raw
from raftlog.storage.index_check import locate, offset_before_time
from raftlog.storage.segment import Segment

PLAIN_MAX_BYTES: Final = 64 * 1024 * 1024
"""The bytes to which a searched batch may decompress; a larger one counts as malformed."""

RECORDS_MAX: Final = 1_000_000
"""Records of a batch that is searched, two seconds of work; a larger one counts as malformed."""


class TimestampAndOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_by_timestamp(
    segments: list[Segment], timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    """Return the first record from `start_offset` on with a timestamp of at least `timestamp` (KIP-33)."""
    for segment in segments:
        segment.load_time_index()
        if segment.end_offset <= start_offset or segment.max_timestamp < timestamp:
            continue
        begin = locate(segment, max(offset_before_time(segment, timestamp), start_offset))
        for position, header in segment.iter_headers(begin):
            if header.max_timestamp < timestamp:
                continue
            for offset, found_at in _times(segment, position, header):
                if found_at >= timestamp and offset >= start_offset:
                    return TimestampAndOffset(offset, found_at, header.leader_epoch)
    return None


def find_max_timestamp(segments: list[Segment], start_offset: int) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp at or after `start_offset` (KIP-734)."""
    newest = TimestampAndOffset(start_offset, NO_TIMESTAMP, NO_EPOCH)
    for segment in segments:
        segment.load_time_index()
        if segment.end_offset <= start_offset or segment.max_timestamp <= newest.timestamp:
            continue
        if segment.base_offset >= start_offset and not segment.may_have_gaps:
            # the time index names this batch, or another batch with a header that promises more than its records have
            newest = _newest_of(segment, start_offset, newest, only_batch_of=segment.max_timestamp_offset)
        if newest.timestamp < segment.max_timestamp:
            newest = _newest_of(segment, start_offset, newest)
    return newest if newest.timestamp >= 0 else None


def _newest_of(
    segment: Segment, start_offset: int, newest: TimestampAndOffset, *, only_batch_of: int | None = None
) -> TimestampAndOffset:
    """Return the first record with the largest timestamp from `start_offset` on if that is above `newest`.

    `only_batch_of` an offset: other batches are not read.
    """
    begin = locate(segment, start_offset if only_batch_of is None else only_batch_of)
    for position, header in segment.iter_headers(begin):
        if header.max_timestamp > newest.timestamp:
            for offset, found_at in _times(segment, position, header):
                if offset >= start_offset and found_at > newest.timestamp:
                    newest = TimestampAndOffset(offset, found_at, header.leader_epoch)
        if only_batch_of is not None:
            break
    return newest


def _times(segment: Segment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Yield offset and timestamp of each record of a batch. Raises CorruptMessage if the batch has rotted.

    Records of most topics are not validated when they are written. So a delta that leads beyond its batch is clamped
    to it. Otherwise the sum could exceed 64 bits, and an offset beyond the log's end would hide the records after it.
    """
    batch = segment.file.pread(header.length, position)
    check_crc(batch, 0, header)
    if len(batch) < header.length:
        raise CorruptMessage(f"{segment.path}.log is shorter than it was")
    offset = header.base_offset - 1
    try:
        for record in _raw_records(header, memoryview(batch)[HEADER_BYTES : header.length]):
            timestamp = header.max_timestamp
            if not header.attributes & LOG_APPEND_TIME_BIT:
                timestamp = max(NO_TIMESTAMP, min(header.base_timestamp + record.timestamp_delta, timestamp))
            offset = header.base_offset + max(0, min(record.offset_delta, header.last_offset_delta))
            yield offset, timestamp
    except (CorruptMessage, UnsupportedCompressionType):
        yield min(offset + 1, header.last_offset), header.max_timestamp


def _raw_records(header: BatchHeader, payload: memoryview) -> Iterator[RawRecord]:
    """Yield the records of a batch. CorruptMessage where they are malformed, or too many."""
    if header.record_count > RECORDS_MAX:
        raise CorruptMessage(f"{header.record_count} records, over the limit of {RECORDS_MAX} for a search")
    plain = decompress(header.codec, payload, max_bytes=PLAIN_MAX_BYTES)
    yield from iter_raw(plain, header.record_count)
