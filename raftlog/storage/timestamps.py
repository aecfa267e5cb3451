"""Finding records by time: the part of ListOffsets that looks into batches."""

from __future__ import annotations

from typing import NamedTuple

from raftlog.base.errors import CorruptMessage
from raftlog.records.batch import Record, check_crc, iter_records
from raftlog.records.header import BatchHeader
from raftlog.storage.segment import Segment


class Found(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(segments: list[Segment], timestamp: int, start_offset: int) -> Found | None:
    """Return the first record from `start_offset` on whose timestamp is at least `timestamp` (KIP-33)."""
    for segment in segments:
        segment.load_time_index()
        if segment.end_offset <= start_offset or segment.max_timestamp < timestamp:
            continue
        begin = segment.locate(max(segment.time_index.offset_for(timestamp), start_offset), cached=False)
        assert begin is not None
        for position, header in segment.headers(begin[0]):
            if header.max_timestamp < timestamp:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return Found(record.offset, record.timestamp, header.leader_epoch)
    return None


def latest(segments: list[Segment], start_offset: int) -> Found | None:
    """Return the first record with the largest timestamp at or after `start_offset` (KIP-734)."""
    newest: Found | None = None
    for segment in segments:
        segment.load_time_index()
        if segment.end_offset <= start_offset or (newest and segment.max_timestamp <= newest.timestamp):
            continue
        whole = segment.base_offset >= start_offset and not segment.gaps
        found = segment.locate(segment.max_timestamp_offset if whole else start_offset, cached=False)
        assert found is not None
        for position, header in segment.headers(found[0]):
            if newest is None or header.max_timestamp > newest.timestamp:
                live = [each for each in _records(segment, position, header) if each.offset >= start_offset]
                newest = _newest_of(live, header.leader_epoch, newest)
            if whole:
                break  # the time index names the batch
    return newest


def _newest_of(records: list[Record], epoch: int, newest: Found | None) -> Found | None:
    for record in records:
        if newest is None or record.timestamp > newest.timestamp:
            newest = Found(record.offset, record.timestamp, epoch)
    return newest


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    batch = segment.file.pread(header.length, position)
    check_crc(batch, 0, header)
    if len(batch) < header.length:
        raise CorruptMessage(f"{segment.path}.log is shorter than it was")
    return list(iter_records(batch))
