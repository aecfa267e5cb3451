"""Whether the bytes of one segment are sound: what recovery looks at, told to a person instead of mended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, BatchHeader, Buffer, check_crc, read_header

ZEROS_LOOKED_AT: Final = 1 << 20
"""Bytes after the last batch that are looked at, to tell blocks that were never written from damage."""


class SegmentFault(NamedTuple):
    """The first thing that is wrong in a segment; nothing after it can be read."""

    position: int
    reason: str
    is_torn: bool
    """Whether it looks like a write that a crash cut off: a node cuts it when it starts, and nobody was told of it."""


def check_segment(segment: Buffer, base_offset: int) -> Iterator[tuple[int, BatchHeader] | SegmentFault]:
    """Yield the position and header of each batch of a segment whose name says `base_offset`, and the first fault."""
    position, next_offset, epoch = 0, base_offset, -1
    while position < len(segment):
        try:
            header = read_header(segment, position)
            check_crc(segment, position, header)
        except CorruptMessage as error:
            yield SegmentFault(position, str(error), _is_torn(segment, position))
            return
        if header.base_offset < next_offset:
            reason = f"offset {header.base_offset} comes after offset {next_offset - 1}"
            yield SegmentFault(position, reason, is_torn=False)
            return
        if header.leader_epoch < epoch:
            reason = f"leader epoch {header.leader_epoch} comes after epoch {epoch}"
            yield SegmentFault(position, reason, is_torn=False)
            return
        yield position, header
        position += header.length
        next_offset, epoch = header.end_offset, header.leader_epoch


def _is_torn(segment: Buffer, position: int) -> bool:
    """Whether a batch is cut off at the end of the file, or was never written though the file had grown."""
    rest = bytes(segment[position : position + ZEROS_LOOKED_AT])
    if not any(rest) or len(rest) < HEADER_BYTES:
        return True
    try:
        return position + read_header(segment, position).length > len(segment)
    except CorruptMessage:
        return False
