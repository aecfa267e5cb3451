"""Walking the batches of a log's segments from their files, each checked, in steps that never wait for the disk.

Steps are generators. They yield a call that may block on the disk, which the caller runs in a thread and sends the
result of. They yield None where the caller may yield to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from raftlog.base.disk import Buffer
from raftlog.base.errors import CorruptMessage
from raftlog.records.header import HEADER_BYTES, BatchHeader, check_crc, read_header
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.storage.log import Log

READ_BYTES: Final = 256 * 1024

T = TypeVar("T")
OffloadCall = Callable[[], Any] | None
OffloadSteps = Generator[OffloadCall, Any, T]


class LogChanged(Exception):
    """The log was cut, or has dropped the segment that is read."""


class LogBatch(NamedTuple):
    header: BatchHeader
    whole: memoryview


class LogBatchReader:
    """The batches of neighbouring segments, in order. `offset` is where the next batch is due."""

    __slots__ = ("_chunk", "_cuts", "_log", "_number", "_position", "_segments", "_start", "offset")

    def __init__(self, log: Log, segments: Sequence[Segment]) -> None:
        self._log = log
        self._cuts = log.truncation_count
        self._segments = segments
        self._number = self._position = self._start = 0
        self._chunk: Buffer = b""
        self.offset = segments[0].base_offset

    @property
    def is_log_changed(self) -> bool:
        """Whether the log was cut meanwhile, or dropped the segment that is read: its file may be gone."""
        return (
            self._cuts != self._log.truncation_count or self._segments[self._number] not in self._log.segments
        )

    def next(self) -> OffloadSteps[LogBatch | None]:
        """Return the next batch, None after the last. Raise LogChanged, CorruptMessage if it is unsound, or OSError."""
        while self._position >= self._segments[self._number].size:
            if self._number + 1 == len(self._segments):
                return None
            self._number += 1
            self._position, self._start, self._chunk = 0, 0, b""
        segment = self._segments[self._number]
        at = yield from self._reach(segment, HEADER_BYTES)
        header = read_header(self._chunk, at)
        at = yield from self._reach(segment, header.length)
        check_crc(self._chunk, at, header)
        if not segment.follows(header, self.offset):
            raise CorruptMessage(f"a batch at offset {header.base_offset} is not where it belongs")
        self._position += header.length
        self.offset = header.end_offset
        return LogBatch(header, memoryview(self._chunk)[at : at + header.length])

    def _reach(self, segment: Segment, size: int) -> OffloadSteps[int]:
        """Read until the chunk holds `size` bytes from the position on; return where they begin in it."""
        at = self._position - self._start
        if at + size <= len(self._chunk):
            return at
        if self.is_log_changed:
            raise LogChanged
        wanted = min(max(size, READ_BYTES), segment.size - self._position)
        chunk = segment.file.pread_cached(wanted, self._position)
        if chunk is None or len(chunk) < wanted:
            chunk = yield partial(segment.file.pread, wanted, self._position)
        self._chunk, self._start = chunk, self._position
        if len(chunk) < size:
            raise CorruptMessage(f"{segment.path}.log is shorter than it was")
        return 0
