"""Checks the entries of a segment's indexes: no checksum covers those files, but the batches they name have some.

An entry is checked whenever a search uses it. A rotted entry that no search uses does no harm. A wrong index is rebuilt
from the batches.
"""

from __future__ import annotations

from struct import Struct
from typing import Protocol

from raftlog.base.disk import Buffer
from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, known_max_timestamp, read_header
from raftlog.storage.indexes import OffsetIndex, TimeIndex
from raftlog.storage.segment_scanner import ReadableFile

_BOUNDS = Struct(">q15xi")
"""Two fields of a batch header: base offset, last offset delta."""


class IndexedSegment(Protocol):
    """A segment with its indexes in memory."""

    base_offset: int
    index: OffsetIndex
    time_index: TimeIndex

    @property
    def file(self) -> ReadableFile: ...

    def locate(self, offset: int, *, cached: bool) -> tuple[int, int] | None:
        """Return (position, base offset) of the first batch that ends after `offset`."""

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batches. CorruptMessage if they are not sound."""


def ends_with(batch: Buffer, last_offset: int) -> bool:
    """Return whether a batch, given from its header on, ends with an offset."""
    base_offset, delta = _BOUNDS.unpack_from(batch)
    return bool(base_offset + delta == last_offset)


def is_offset_entry_true(segment: IndexedSegment, entry: tuple[int, int]) -> bool:
    """Return whether an entry (last offset, position) points to a batch that ends with that offset. May wait."""
    offset, position = entry
    header = segment.file.pread(HEADER_BYTES, position)
    return len(header) == HEADER_BYTES and ends_with(header, offset)


def is_time_entry_true(segment: IndexedSegment, entry: tuple[int, int]) -> bool:
    """Return whether an entry (timestamp, last offset) names a batch that has both. May wait."""
    timestamp, offset = entry
    try:
        found = segment.locate(offset, cached=False)
        assert found is not None
        header = read_header(segment.file.pread(HEADER_BYTES, found[0]))
    except CorruptMessage:
        return False
    # raftlog 0.3.0 stored and indexed what clients sent, even where the header now gives no timestamp
    is_its_time = timestamp in (header.max_timestamp, known_max_timestamp(header))
    return is_its_time and header.last_offset == offset


def boundary_before(segment: IndexedSegment, position: int) -> int:
    """Return an indexed batch boundary at or before a position, 0 if there is none. May wait."""
    entry = segment.index.entry_at_position(position)
    if entry is not None and not is_offset_entry_true(segment, entry):
        segment.rebuild_indexes()
        entry = segment.index.entry_at_position(position)
    return 0 if entry is None else entry[1]


def check_time_before(segment: IndexedSegment, offset: int) -> None:
    """Rebuild the indexes if the last time entry before an offset is wrong. May wait."""
    entry = segment.time_index.entry_before(offset)
    if entry is not None and not is_time_entry_true(segment, entry):
        segment.rebuild_indexes()


def locate(segment: IndexedSegment, offset: int) -> int:
    """Return the position of the first batch that ends after an offset. May wait. CorruptMessage."""
    try:
        found = segment.locate(offset, cached=False)
    except CorruptMessage:
        segment.rebuild_indexes()
        found = segment.locate(offset, cached=False)
    assert found is not None
    return found[0]


def offset_before_time(segment: IndexedSegment, timestamp: int) -> int:
    """Return an offset before which every record is older than a time. May wait."""
    entry = segment.time_index.entry_before_time(timestamp)
    if entry is not None and not is_time_entry_true(segment, entry):
        segment.rebuild_indexes()
        entry = segment.time_index.entry_before_time(timestamp)
    return segment.base_offset if entry is None else entry[1]
