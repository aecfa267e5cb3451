"""The segments of one log, oldest first, and the files that leave it. Kafka calls this LogSegments.

Adds, cuts off, drops and replaces whole segments. Knows nothing of producers, log start or damage: `log.py` does, and
decides. Ordering law: a new segment's file exists before the list names it, and a dropped segment leaves the list
before its files are renamed. An OSError while a segment is added leaves the list as it was; one while segments are cut
off, dropped or replaced leaves a log that must go offline.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from raftlog.base.disk import Disk
from raftlog.base.errors import OffsetOutOfRange
from raftlog.base.types import NO_TIMESTAMP
from raftlog.storage import retention, swap
from raftlog.storage.retention import PendingFileDeletes
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig
    from raftlog.storage.epochs import LeaderEpochs
    from raftlog.storage.flush import FlushState

BASE_OFFSET: Final = attrgetter("base_offset")


class LogSegments:
    """The list of segments. Another thread may read `all` and `active`: a change replaces the list, never alters it."""

    __slots__ = (
        "_config",
        "_directory",
        "_disk",
        "_epochs",
        "_unflushed",
        "active",
        "all",
        "pending_deletes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        *,
        epochs: LeaderEpochs,
        unflushed: FlushState,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._epochs = epochs
        self._unflushed = unflushed
        self.all = segments
        self.active = segments[-1]
        """The last segment, the only one that grows."""
        self.pending_deletes = PendingFileDeletes(disk)
        self._config: TopicConfig

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.all)

    def configure(self, config: TopicConfig) -> None:
        """Apply a topic's settings to the active segment and to those added later; needed once before any change."""
        self._config = config
        self._activate(self.active)

    def _activate(self, segment: Segment) -> None:
        segment.epochs = self._epochs
        segment.may_have_gaps = self.all[0].may_have_gaps
        segment.configure(
            index_interval_bytes=self._config.index_interval_bytes,
            index_bytes=self._config.segment_index_bytes,
            segment_bytes=self._config.segment_bytes,
            roll_ms=retention.roll_ms(self._config, self._directory, segment.base_offset),
        )
        self.active = segment

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Add a segment at the log's end and return it. OSError leaves the old one active."""
        new = Segment(self._disk, self._directory, base_offset=base_offset, create=True, now_ms=now_ms)
        self._unflushed.rolled(self.active)
        self._unflushed.directories.add(self._directory)
        self.all = [*self.all, new]
        self._activate(new)
        return new

    def cut(self, keep: int, *, suffix: str = ".deleted") -> Segment:
        """Drop all but the first `keep` segments, durably; return the last of those."""
        self._drop(keep, len(self.all), suffix)
        self.active = self.all[-1]
        self._disk.sync_dir(self._directory)
        return self.active

    def restart_at(self, offset: int) -> None:
        """Drop every segment and begin with an empty one at `offset`, durably."""
        self._drop(0, len(self.all), ".deleted")
        segment = Segment(self._disk, self._directory, base_offset=offset, create=True, now_ms=NO_TIMESTAMP)
        self._disk.sync_dir(self._directory)
        self.all = [segment]
        self._activate(segment)

    def drop_oldest(self, count: int) -> None:
        """Drop the first `count` segments."""
        self._drop(0, count, ".deleted")

    def _drop(self, first: int, stop: int, suffix: str) -> None:
        dropped = self.all[first:stop]
        if not dropped:
            return
        self.all = self.all[:first] + self.all[stop:]
        self._unflushed.dropped(dropped)
        self._unflushed.directories.add(self._directory)
        # From the outside in, so that a crash half-way leaves one stretch of offsets.
        for segment in dropped if first == 0 < len(self.all) else reversed(dropped):
            paths = segment.rename_for_deletion(suffix)
            if suffix == ".deleted":
                self.pending_deletes.add(paths)

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> bool:
        """Put a cleaned segment in the place of neighbours; False if they are gone or one of them is active."""
        first = bisect_left(self.all, group[0].base_offset, key=BASE_OFFSET)
        stop = first + len(group)
        if stop >= len(self.all) or self.all[first:stop] != [*group]:
            return False
        cleaned.epochs = self._epochs
        self.pending_deletes.replaced(swap.swap_in(self._disk, self._directory, group, cleaned))
        self.all = [*self.all[:first], cleaned, *self.all[stop:]]
        self._unflushed.directories.add(self._directory)
        return True


def segment_of(segments: list[Segment], offset: int) -> Segment:
    """Return the segment that holds `offset`. OffsetOutOfRange if it was dropped, say under a reader's thread."""
    found = bisect_right(segments, offset, key=BASE_OFFSET)
    if not found:
        raise OffsetOutOfRange(f"the segment of offset {offset} was dropped")
    return segments[found - 1]
