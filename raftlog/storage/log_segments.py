"""The segments of one log, oldest first, and the files that leave it. Kafka calls this LogSegments.

Adds, cuts off, drops and replaces whole segments. It does not know producers, log start or damage; `log.py` decides
about those. Ordering law: a new segment's file exists before the list names it, and a dropped segment leaves the list
before its files are renamed. Names reach the disk in any order: see `dropped_segments` for segments that are dropped,
and `swap` for segments that are replaced. An OSError while a segment is added leaves the list unchanged. Any other
OSError leaves a log that must go offline.
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
from raftlog.storage.dropped_segments import HEAD, TAIL
from raftlog.storage.retention import PendingFileDeletes
from raftlog.storage.segment import Segment

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig
    from raftlog.storage.epochs import LeaderEpochs
    from raftlog.storage.flush import FlushState

BASE_OFFSET: Final = attrgetter("base_offset")
START: Final = (0, 0)
"""The base offset of a log's first segment, and a position in it."""


class LogSegments:
    """The list of segments. Another thread may read `all` and `active`: a change replaces the list, never alters it."""

    __slots__ = (
        "_config",
        "_directory",
        "_disk",
        "_epochs",
        "_swapping",
        "_unflushed",
        "active",
        "all",
        "is_drop_waiting",
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
        """The last segment; only it grows."""
        self.is_drop_waiting = False
        """Whether the last drop left segments to be dropped after the next flush."""
        self.pending_deletes = PendingFileDeletes(disk)
        self._swapping: Segment | None = None
        """A cleaned segment that a start would use, though it is not in use yet."""
        self._config: TopicConfig

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.all)

    @property
    def end_position(self) -> tuple[int, int]:
        """The active segment's base offset and size."""
        return self.active.base_offset, self.active.size

    def bytes_since(self, position: tuple[int, int]) -> int:
        """Return the bytes of the active segment that were written since `end_position` was `position`."""
        base_offset, size = position
        return self.active.size - size if self.active.base_offset == base_offset else self.active.size

    def configure(self, config: TopicConfig) -> None:
        """Apply a topic's settings to the active segment and to later segments; required before any change."""
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
        """Add a segment at the log's end and return it. OSError leaves the old segment active.

        It syncs the folder if the log's first segment has no durable name yet. Otherwise a power loss could leave only
        the new segment, and the log would begin there.
        """
        if len(self.all) == 1 and not self._unflushed.has_durable_name(self.active):
            self._disk.sync_dir(self._directory)
        new = Segment(self._disk, self._directory, base_offset=base_offset, create=True, now_ms=now_ms)
        self._unflushed.rolled(self.active)
        self._unflushed.directories.add(self._directory)
        self.all = [*self.all, new]
        self._activate(new)
        return new

    def cut(self, keep: int, *, suffix: str = TAIL) -> Segment:
        """Drop all but the first `keep` segments, durably; return the last that stays."""
        self._revoke_swap()
        renamed = self._drop(keep, len(self.all), suffix)
        self.active = self.all[-1]
        self._disk.sync_dir(self._directory)
        if suffix == TAIL:
            self._remove(renamed)
        return self.active

    def restart_at(self, offset: int) -> None:
        """Drop every segment and begin with an empty segment at `offset`, durably."""
        self._revoke_swap()
        renamed = self._drop(0, len(self.all), TAIL)
        self._disk.sync_dir(self._directory)
        # files that are dropped now or before do not apply to later segments, which may have lower offsets
        self._remove(renamed + self.pending_deletes.take(HEAD))
        segment = Segment(self._disk, self._directory, base_offset=offset, create=True, now_ms=NO_TIMESTAMP)
        self._disk.sync_dir(self._directory)
        self.all = [segment]
        self._activate(segment)

    def drop_oldest(self, count: int) -> int:
        """Drop the first `count` segments; returns how many, none while a cleaned segment is swapped in.

        Fewer while a power loss could take the segment that is to be first, until the next flush.
        """
        due, self.is_drop_waiting = count, False
        if self._swapping is not None:
            return 0
        while count and not self._unflushed.has_durable_name(self.all[count]):
            count -= 1
        self.is_drop_waiting = count < due
        if count:
            self.pending_deletes.add(self._drop(0, count, HEAD))
        return count

    def delete_due_files(self, now_ms: int, *, delay_ms: int) -> int:
        """Remove the files that have waited for `delay_ms`; return how many. A drop must be on the disk before."""
        waiting = HEAD if self._unflushed.has_unsynced_names else None
        return self.pending_deletes.delete_due(now_ms, delay_ms=delay_ms, but=waiting)

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._disk.remove(path)

    def _drop(self, first: int, stop: int, suffix: str) -> list[str]:
        """Return the new paths of the dropped files."""
        dropped = self.all[first:stop]
        self.all = self.all[:first] + self.all[stop:]
        self._unflushed.dropped(dropped)
        if dropped:
            self._unflushed.directories.add(self._directory)
        return [path for segment in dropped for path in segment.rename_for_deletion(suffix)]

    # -- compaction: each of the three steps durable before the next, see `swap` ---------------------------------

    def announce_swap(self, group: Sequence[Segment], cleaned: Segment) -> bool:
        """Announce that a cleaned segment replaces neighbours; False if they are gone or include the active segment."""
        if self._place_of(group) is None:
            return False
        swap.announce(self._disk, cleaned)
        self._swapping = cleaned
        return True

    def replace(self, group: Sequence[Segment], cleaned: Segment) -> bool:
        """Replace neighbours by an announced segment; False if they are gone."""
        place = self._place_of(group)
        if place is None or self._swapping is not cleaned:
            return False
        cleaned.epochs = self._epochs
        self.pending_deletes.replaced(swap.swap_in(self._disk, self._directory, group, cleaned))
        self.all = [*self.all[: place.start], cleaned, *self.all[place.stop :]]
        self._unflushed.directories.add(self._directory)
        self._swapping = None
        return True

    def name_swapped(self, cleaned: Segment) -> None:
        """Give a segment its final name, unless it has left the log since it came in."""
        if cleaned in self.all:
            swap.take_names(self._disk, cleaned)
            self._unflushed.directories.add(self._directory)

    def give_up_swap(self) -> None:
        """Cancel an announced swap: its file is about to be removed."""
        self._swapping = None

    def _revoke_swap(self) -> None:
        if self._swapping is not None:
            swap.revoke(self._disk, self._directory, self._swapping)
            self._swapping = None

    def _place_of(self, group: Sequence[Segment]) -> slice | None:
        first = bisect_left(self.all, group[0].base_offset, key=BASE_OFFSET)
        stop = first + len(group)
        if stop >= len(self.all) or self.all[first:stop] != [*group]:
            return None
        return slice(first, stop)


def segment_of(segments: list[Segment], offset: int) -> Segment:
    """Return the segment that holds `offset`. OffsetOutOfRange if it was dropped, say under a reader's thread."""
    found = bisect_right(segments, offset, key=BASE_OFFSET)
    if not found:
        raise OffsetOutOfRange(f"the segment of offset {offset} was dropped")
    return segments[found - 1]
