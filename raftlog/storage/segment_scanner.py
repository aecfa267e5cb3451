"""Sequential reads of a segment's batches, with a check of each CRC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, BatchHeader, check_crc, read_header

SEQUENTIAL_READ_BYTES: Final = 1024 * 1024


class ReadableFile(Protocol):
    """A file, as far as a scanner uses it."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; fewer only at the end of the file."""


class SegmentBytes(Protocol):
    """The bytes of a segment. Its log may be open or not."""

    @property
    def size(self) -> int: ...

    @property
    def file(self) -> ReadableFile: ...


class SegmentScanner:
    """Reads a segment from front to back, `read_bytes` or a batch at a time."""

    __slots__ = ("_chunk", "_read_bytes", "_segment", "_start")

    def __init__(self, segment: SegmentBytes, *, read_bytes: int = SEQUENTIAL_READ_BYTES) -> None:
        self._segment = segment
        self._read_bytes = read_bytes
        self._chunk = b""
        self._start = 0

    def valid_header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`, or None if the batch is cut off or has a wrong CRC."""
        try:
            return self.header_at(position)
        except CorruptMessage:
            return None

    def header_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at `position`. Raise CorruptMessage if it is cut off or has a wrong CRC."""
        header = read_header(self._view(position, HEADER_BYTES), position - self._start)
        if header.length > self._segment.size - position:
            raise CorruptMessage("batch is cut off")
        if header.last_offset_delta < 0:
            raise CorruptMessage(f"its last offset is {-header.last_offset_delta} below its first")
        check_crc(self._view(position, header.length), position - self._start, header)
        return header

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        """Return all bytes of the batch with the header that was found at `position`."""
        view = self._view(position, header.length)
        return memoryview(view)[position - self._start :][: header.length]

    def _view(self, position: int, length: int) -> bytes:
        if position < self._start or position + length > self._start + len(self._chunk):
            wanted = min(max(length, self._read_bytes), self._segment.size - position)
            self._chunk, self._start = self._segment.file.pread(wanted, position), position
        return self._chunk

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch from `position` on. Raise CorruptMessage at a corrupt batch."""
        while position < self._segment.size:
            header = self.header_at(position)
            yield position, header
            position += header.length
