"""Chooses the part of a compacted log to clean, decides whether cleaning pays off, and groups segments for merging.

Only whole segments are cleaned, and never the active segment. The part ends at the recovery point, for two reasons:
recovery need not check cleaned segments, and a truncation into the cleaned part leaves its mark on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.base.config.setting import LONG_MAX
from raftlog.storage.indexes import MAX_RELATIVE_OFFSET, OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from raftlog.storage.segment import Segment
from raftlog.storage.segment_age import is_older_than

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig
    from raftlog.storage.log import Log


MAX_SEGMENTS_PER_GROUP: Final = 32
"""Limit for segments that are merged into one."""


class LogToClean(NamedTuple):
    """A part of a log to clean. Keys are read from [first_dirty, end); then all segments before `end` are rewritten."""

    segments: tuple[Segment, ...]
    first_dirty: int
    end: int
    dirty_bytes: int
    total_bytes: int
    overdue: bool
    """Whether its oldest record is older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Return whether the part is dirty enough (min.cleanable.dirty.ratio), or overdue."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


def is_compacted(config: TopicConfig) -> bool:
    return "compact" in config.cleanup_policy


def find_log_to_clean(log: Log, *, end_limit: int, now_ms: int) -> LogToClean | None:
    """Return the part that may be cleaned below `end_limit` (the last stable offset), or None."""
    if log.damage is not None or not is_compacted(log.config):
        return None
    first_dirty = log.cleaned_until
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    limit = min(end_limit, log.recovery_point)
    found: list[Segment] = []
    dirty_bytes = total_bytes = 0
    oldest = LONG_MAX
    for segment in log.segments[:-1]:
        is_dirty = segment.end_offset > first_dirty
        if segment.end_offset > limit or (is_dirty and _is_too_young(segment, log.config, now_ms)):
            break
        found.append(segment)
        total_bytes += segment.size
        if is_dirty:
            dirty_bytes += segment.size
            oldest = min(oldest, _oldest_ms(segment, log.config))
    if not dirty_bytes:
        return None
    overdue = oldest < now_ms - log.config.max_compaction_lag_ms
    return LogToClean(tuple(found), first_dirty, found[-1].end_offset, dirty_bytes, total_bytes, overdue)


def _is_too_young(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    if config.min_compaction_lag_ms <= 0:
        return False
    return not is_older_than(segment, now_ms - config.min_compaction_lag_ms + 1)


def _oldest_ms(segment: Segment, config: TopicConfig) -> int:
    """Return the timestamp of a segment's first batch, as Kafka. LONG_MAX if it has none or no setting needs it."""
    if config.max_compaction_lag_ms == LONG_MAX:
        return LONG_MAX
    segment.load_time_index()
    return segment.first_timestamp if segment.first_timestamp > 0 else LONG_MAX


def group_segments(segments: tuple[Segment, ...], config: TopicConfig) -> list[tuple[Segment, ...]]:
    """Return groups of adjacent segments. A group fits into one segment (size, index size, and 31 bits of offsets).

    The size of a group is limited, since its files are renamed in one step.
    """
    groups: list[list[Segment]] = []
    size = entries = 0
    most_entries = config.segment_index_bytes // max(OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES)
    for segment in segments:
        more = segment.size // max(config.index_interval_bytes, 1) + 1
        fits = groups and (
            len(groups[-1]) < MAX_SEGMENTS_PER_GROUP
            and size + segment.size <= config.segment_bytes
            and entries + more <= most_entries
            and segment.end_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if not fits:
            groups.append([])
            size = entries = 0
        groups[-1].append(segment)
        size, entries = size + segment.size, entries + more
    return [tuple(group) for group in groups]
