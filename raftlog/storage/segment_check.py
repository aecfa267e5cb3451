"""Checks the bytes of one segment as recovery does, but reports damage to a person instead of repairing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, BatchHeader, read_header
from raftlog.storage.damage import find_next_valid_batch
from raftlog.storage.segment_scanner import SegmentBytes, SegmentScanner

MAX_SCANNED_BYTES: Final = 1 << 20
"""Bytes after the last batch that are scanned to distinguish unwritten blocks from damage."""


class CheckedBatch(NamedTuple):
    """A sound batch, where it begins in the segment, and all its bytes."""

    position: int
    header: BatchHeader
    whole: memoryview


class SegmentFault(NamedTuple):
    """The first fault in a segment; the check stops there."""

    position: int
    reason: str
    is_torn: bool
    """Whether it looks like a write that a crash cut off: a node cuts it when it starts, since it was never
    acknowledged.
    """


def check_segment(segment: SegmentBytes, base_offset: int) -> Iterator[CheckedBatch | SegmentFault]:
    """Yield each batch of a segment with `base_offset` in its name, and the first fault. Raise OSError."""
    window = SegmentScanner(segment)
    position, next_offset, epoch = 0, base_offset, -1
    while position < segment.size:
        try:
            header = window.header_at(position)
        except CorruptMessage as error:
            yield _fault(segment, position, next_offset, str(error))
            return
        if header.base_offset < next_offset:
            reason = f"offset {header.base_offset} comes after offset {next_offset - 1}"
            yield SegmentFault(position, reason, is_torn=False)
            return
        if header.leader_epoch < epoch:
            reason = f"leader epoch {header.leader_epoch} comes after epoch {epoch}"
            yield SegmentFault(position, reason, is_torn=False)
            return
        yield CheckedBatch(position, header, window.batch(position, header))
        position += header.length
        next_offset, epoch = header.end_offset, header.leader_epoch


def _fault(segment: SegmentBytes, position: int, next_offset: int, reason: str) -> SegmentFault:
    """Return the fault of a bad batch. With sound batches behind it, it was written whole once."""
    following = find_next_valid_batch(segment, position, next_offset)
    if following is not None:
        return SegmentFault(
            position, f"{reason}; sound batches follow at position {following}", is_torn=False
        )
    return SegmentFault(position, reason, _is_torn(segment, position))


def _is_torn(segment: SegmentBytes, position: int) -> bool:
    """Return whether a batch is cut off at the end of the file, or was never written though the file had grown."""
    rest = segment.file.pread(MAX_SCANNED_BYTES, position)
    if not any(rest) or len(rest) < HEADER_BYTES:
        return True
    try:
        return position + read_header(rest).length > segment.size
    except CorruptMessage:
        return False
