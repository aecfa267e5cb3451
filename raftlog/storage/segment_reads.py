"""Reading batches out of one segment, and what is believed of them: lengths, CRCs, offsets, and holes."""

from __future__ import annotations

import struct
from typing import Final

from raftlog.base.disk import Buffer
from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_OFFSET
from raftlog.records.header import check_crc, read_header
from raftlog.storage import gap_check
from raftlog.storage.segment import Segment

_BASE_OFFSET: Final = struct.Struct(">q")


def find_read_range(
    segment: Segment, offset: int, max_bytes: int, *, end_offset: int, min_one: bool, cached: bool
) -> tuple[int, int, int] | None:
    """Return (start, stop, next offset) of the whole batches from `offset` to below `end_offset`.

    At most `max_bytes`, unless `min_one` and the first batch is larger. None if `cached` and looking would wait.
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
        found = segment.boundary_at_most(start + max_bytes, start, cached=cached, at_least_one=min_one)
        if found is None:
            return None
        stop, following = found
    return start, stop, following


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
    if is_odd and not gap_check.check_gap(segment, offset, cached=cached):
        return None
    if cached:
        segment.remember_boundary(following, stop)
    return chunk


def _verify(segment: Segment, chunk: Buffer, start: int, offset: int, *, cached: bool) -> None:
    """Check whole batches read at `start` for `offset`, unless this process wrote or checked them before.

    One contiguous checked stretch is remembered, so readers that follow each other pay once. But what was not
    `cached` comes from the device, and may have rotted there since: all of it is checked. CorruptMessage.
    """
    end = start + len(chunk)
    first, last = segment.verified
    if cached:
        end = min(end, segment.trusted_from)
        if start >= first and end <= last:
            return
    position = 0
    # where a reader is known to go on, a batch begins; elsewhere the first only holds the offset
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
