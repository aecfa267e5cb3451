"""Checks whether a hole in a log was left by compaction, or is a rotted base offset, which no CRC covers.

Around a sound hole the batches follow one another, end where the index says, and lie within the segment. With
compaction on both sides of a batch, a wrong offset may still be possible: that case goes undetected.
"""

from __future__ import annotations

import struct
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES
from raftlog.storage.segment import Segment

_BOUNDS: Final = struct.Struct(">qi11xi")
NOWHERE: Final = -1


def check_gap(segment: Segment, offset: int, *, cached: bool) -> bool:
    """Check the batches around an offset where no batch begins, from the index entry before to two batches on.

    False if `cached` and they are not in memory. CorruptMessage if they contradict the hole.
    """
    if not segment.may_have_gaps:
        raise CorruptMessage(f"{segment.path}.log has no record at {offset}, and was never compacted")
    if not segment.load_index(cached=cached):
        return False
    entry = segment.index.entry_before(offset + 1)
    indexed_end, indexed_at = (segment.base_offset, NOWHERE) if entry is None else (entry[0] + 1, entry[1])
    position, size = max(indexed_at, 0), segment.size
    due, beyond = segment.base_offset, 0
    while position < size:
        chunk = segment.read_chunk(position, size, cached=cached)
        if chunk is None:
            return False
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            base_offset, length, delta = _BOUNDS.unpack_from(chunk, at)
            end_offset = base_offset + delta + 1
            is_misplaced = position + at == indexed_at and end_offset != indexed_end
            if is_misplaced or base_offset < due or end_offset > segment.end_offset:
                raise CorruptMessage(f"{segment.path}.log has a wrong offset, at or near {offset}")
            beyond += base_offset > offset
            if beyond > 1:
                return True
            due = end_offset
            at += segment.checked_length(length, position + at)
        position += at
    return True
