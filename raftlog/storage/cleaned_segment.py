"""The segment that a group of segments becomes when it is cleaned, while it is being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from raftlog.base.disk import Buffer, Disk
from raftlog.records.header import BatchHeader, read_header
from raftlog.storage import retention, swap
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig

WRITE_BYTES: Final = 256 * 1024


class CleanedSegment:
    """Takes batches in order; `seal` it, then `Log.replace_segments` the group by `segment`, or `discard` it."""

    __slots__ = ("_buffered", "_disk", "_group", "_headers", "_pending", "expected_end_offset", "segment")

    def __init__(self, disk: Disk, directory: str, group: Sequence[Segment], *, config: TopicConfig) -> None:
        self._disk = disk
        self._group = group
        self.expected_end_offset = group[-1].end_offset
        """The offset at which it must end."""
        self.segment = segment = swap.begin(disk, directory, group[0].base_offset)
        segment.created_ms = group[-1].created_ms
        segment.may_have_gaps = True
        segment.configure(
            index_interval_bytes=config.index_interval_bytes,
            index_bytes=config.segment_index_bytes,
            segment_bytes=config.segment_bytes,
            roll_ms=retention.roll_ms(config, directory, group[0].base_offset),
        )
        self._pending: list[bytes] = []
        self._headers: list[BatchHeader] = []
        self._buffered = 0

    def add(self, batch: Buffer) -> None:
        """Append a batch. OSError if the disk refuses the batches before it."""
        self._pending.append(bytes(batch))  # a view would keep all that was read with it
        self._headers.append(read_header(batch))
        self._buffered += len(batch)
        if self._buffered >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._headers:
            now_ms = self.segment.created_ms
            self.segment.append_batches(b"".join(self._pending), self._headers, now_ms=now_ms)
        self._pending, self._headers, self._buffered = [], [], 0

    def seal(self) -> None:
        """Make it durable under its passing names. Waits for the disk."""
        self._write()
        assert self.segment.end_offset == self.expected_end_offset, (
            "the last batch of a segment is always kept"
        )
        # records without timestamps age by it, and are as old as they were (Kafka: Cleaner.cleanSegments)
        self.segment.file.set_modified_ms(max(each.file.modified_ms() for each in self._group))
        swap.seal(self._disk, self.segment)

    def discard(self) -> None:
        """Remove it. A file that the disk refuses to remove now is removed by the next start."""
        try:
            swap.discard(self._disk, self.segment)
        except OSError:
            pass
