"""Reads of batches from one segment, and their checks: lengths, CRCs, offsets and holes."""

from __future__ import annotations

import struct
from typing import Final

from raftlog.base.disk import Buffer
from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_OFFSET
from raftlog.records.header import HEADER_BYTES, LENGTH_OVERHEAD, check_crc, read_header
from raftlog.storage import index_check
from raftlog.storage.segment import BOUNDS, Segment

_BASE_OFFSET: Final = struct.Struct(">q")
REMEMBERED_POSITIONS: Final = 16
"""Batch boundaries remembered per segment: the positions of this many readers."""


def find_read_range(
    segment: Segment, offset: int, max_bytes: int, *, end_offset: int, min_one: bool, cached: bool
) -> tuple[int, int, int] | None:
    """Return (start, stop, next offset) of the whole batches from `offset` to below `end_offset`.

    At most `max_bytes`, unless `min_one` and the first batch is larger. None if `cached` and a lookup would wait.
    """
    stop = segment.size  # taken before end_offset: another thread may append
    following = segment.end_offset
    found: tuple[int, int] | None
    start = segment.boundaries.get(offset)
    if start is None:
        found = segment.locate(offset, cached=cached)
        if found is None:
            return None
        start = found[0]
    if end_offset < following:
        known = segment.boundaries.get(end_offset)
        found = segment.locate(end_offset, cached=cached) if known is None else (known, end_offset)
        if found is None:
            return None
        stop, following = found
    if stop - start > max_bytes:
        found = _boundary_at_most(segment, start + max_bytes, start, cached=cached, at_least_one=min_one)
        if found is None:
            return None
        stop, following = found
    return start, stop, following


def holds_records(batches: Buffer) -> bool:
    """Return whether any of these whole batches has records: compaction leaves some as a header alone."""
    empty = HEADER_BYTES - LENGTH_OVERHEAD
    return any(
        BOUNDS.unpack_from(batches, at)[1] > empty
        for at in range(0, len(batches) - HEADER_BYTES, HEADER_BYTES)
    )


def _is_gap(segment: Segment, offset: int, *, cached: bool) -> bool:
    """Return whether compaction took the batch of that offset; False if `cached` and that is not in memory."""
    from raftlog.storage import gap_check  # few nodes meet a gap

    return gap_check.check_gap(segment, offset, cached=cached)


def _boundary_at_most(
    segment: Segment, limit: int, start: int, *, cached: bool, at_least_one: bool
) -> tuple[int, int] | None:
    """Return (position, base offset) of the last batch boundary in [start, limit]; `start` must be a boundary.

    `at_least_one` returns the end of the batch at `start` when that alone passes `limit`. None if `cached` and the
    bytes are not in memory.
    """
    size = segment.size
    if not segment.load_index(cached=cached):
        return None
    indexed_end, position = segment.index.entry_at_position(limit) or (NO_OFFSET, 0)
    if position < start:
        indexed_end, position = NO_OFFSET, start
    while True:
        chunk = segment.read_chunk(position, size, cached=cached)
        if chunk is None:
            return None
        if indexed_end != NO_OFFSET and not index_check.ends_with(chunk, indexed_end):
            # if either has rotted, a reader finds out there
            indexed_end, position = NO_OFFSET, start
            continue
        indexed_end = NO_OFFSET
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            base_offset, batch_length, delta = BOUNDS.unpack_from(chunk, at)
            following = at + segment.checked_length(batch_length, position + at)
            if position + following > limit:
                if position + at > start or not at_least_one:
                    return position + at, base_offset
                return position + following, base_offset + delta + 1
            at = following
        position += at


def read_batches(
    segment: Segment, offset: int, bounds: tuple[int, int, int], *, cached: bool, checked: bool
) -> Buffer | None:
    """Return the whole batches in what `find_read_range` found for an offset; `cached`, `checked`: as in `Log.read`.

    None if `cached` and it would wait for the disk. CorruptMessage where the segment, or its index, is not sound.
    """
    start, stop, following = bounds
    if stop <= start:
        return b""
    read = segment.file.pread_cached if cached else segment.file.pread
    chunk = read(stop - start, start)
    if chunk is None or len(chunk) < stop - start:
        if cached:
            return None
        raise CorruptMessage(f"{segment.path}.log is shorter than it was")
    if not cached or checked or start < segment.trusted_from:
        _verify(segment, chunk, start, offset, cached=cached and not checked)
    base_offset: int = _BASE_OFFSET.unpack_from(chunk)[0]
    is_odd = base_offset != offset and (segment.may_have_gaps or base_offset > offset)
    if is_odd and not _is_gap(segment, offset, cached=cached):
        return None
    if cached:
        _remember_boundary(segment, following, stop)
    return chunk


def _remember_boundary(segment: Segment, offset: int, position: int) -> None:
    """Remember where the batch with this base offset starts, for the next reader."""
    boundaries = segment.boundaries
    if offset not in boundaries and len(boundaries) >= REMEMBERED_POSITIONS:
        boundaries.pop(next(iter(boundaries)), None)
    boundaries[offset] = position


def _verify(segment: Segment, chunk: Buffer, start: int, offset: int, *, cached: bool) -> None:
    """Check whole batches read at `start` for `offset`, unless this process wrote or checked them before.

    One contiguous checked stretch is remembered, so consecutive readers pay once. Bytes that were not `cached` come
    from the device, and may have rotted there, so all are checked. Raise CorruptMessage.
    """
    end = start + len(chunk)
    first, last = segment.verified
    if cached:
        end = min(end, segment.trusted_from)
        if start >= first and end <= last:
            return
    position = 0
    # a batch begins at a remembered position; elsewhere the first batch only contains the offset
    expected = offset if segment.boundaries.get(offset) == start else NO_OFFSET
    while start + position < end:
        header = read_header(chunk, position)
        check_crc(chunk, position, header)
        if expected == NO_OFFSET and (
            header.base_offset <= offset <= header.last_offset or segment.may_have_gaps
        ):
            expected = header.base_offset
        if not segment.follows(header, expected):
            raise CorruptMessage(f"a batch at offset {header.base_offset} is not where it belongs")
        expected = header.end_offset
        position += header.length
    if not cached:
        return
    end = start + position
    segment.verified = (min(first, start), max(last, end)) if start <= last and end >= first else (start, end)
