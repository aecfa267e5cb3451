"""Decides which segments a log may delete (retention.ms, retention.bytes, log start), and removes their files later.

`Log.delete_old_segments` applies it, and `broker/replicas/housekeeping.py` calls that for each log that is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from raftlog.base.disk import Disk, File
from raftlog.base.types import NO_TIMESTAMP
from raftlog.storage.segment import Segment
from raftlog.storage.segment_age import is_older_than, newest_ms

if TYPE_CHECKING:
    from raftlog.base.config import TopicConfig


def count_deletable_segments(
    segments: list[Segment], config: TopicConfig, *, now_ms: int, log_start_offset: int, end_limit: int
) -> int:
    """Return how many of the oldest segments may go; all of them only if the last segment holds expired records.

    A segment goes only if the whole of it lies below `end_limit` (Kafka: deleteOldSegments). It must end before the log
    start, be older than retention.ms (`segment_age`), or leave a log that still holds retention.bytes.
    """
    by_policy = "delete" in config.cleanup_policy
    excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        last = segment is segments[-1]
        if segment.end_offset > end_limit or (last and not segment.size):
            break
        before_start = not last and segment.end_offset <= log_start_offset
        too_much = config.retention_bytes >= 0 and excess_bytes >= segment.size
        if not (before_start or (by_policy and (too_much or _is_too_old(segment, config, now_ms)))):
            break
        excess_bytes -= segment.size
        count += 1
    return count


def expiry_ms(oldest: Segment, config: TopicConfig) -> int | None:
    """Return when the oldest segment of a log will be too old; None if age alone does not remove it.

    Call `count_deletable_segments` before, since until then its newest timestamp may be unknown.
    """
    if "delete" not in config.cleanup_policy or config.retention_ms < 0 or not oldest.size:
        return None
    return newest_ms(oldest) + config.retention_ms + 1


def roll_ms(config: TopicConfig, directory: str, base_offset: int) -> int:
    """Return the age at which the active segment rolls; only rolled segments are compacted (max.compaction.lag.ms,
    KIP-354).

    segment.jitter.ms subtracts an amount that differs by log and segment, and is the same on every replica: a checksum
    of where the segment begins.
    """
    most = config.segment_ms
    if "compact" in config.cleanup_policy:
        most = min(most, config.max_compaction_lag_ms)
    widest = min(config.segment_jitter_ms, most)
    if widest <= 0:
        return most
    return most - crc32(f"{directory.rpartition('/')[2]}@{base_offset}".encode()) % widest


def _is_too_old(segment: Segment, config: TopicConfig, now_ms: int) -> bool:
    return config.retention_ms >= 0 and is_older_than(segment, now_ms - config.retention_ms)


class PendingFileDeletes:
    """Renamed files that are removed after file.delete.delay.ms: a slow reader may still use them."""

    __slots__ = ("_disk", "_files", "_open")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: list[tuple[int, str]] = []
        self._open: dict[str, File] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def add(self, paths: list[str]) -> None:
        """Start the delay of some files at the next `delete_due`."""
        self._files += [(NO_TIMESTAMP, path) for path in paths]

    def replaced(self, files: dict[str, File | None]) -> None:
        """Start the delay of replaced files; readers may continue in open files."""
        self.add([*files])
        self._open.update({path: file for path, file in files.items() if file is not None})

    def take(self, suffix: str) -> list[str]:
        """Return the files with a suffix; the caller removes them."""
        taken = [path for _, path in self._files if path.endswith(suffix)]
        self._files = [(at, path) for at, path in self._files if not path.endswith(suffix)]
        return taken

    def delete_due(self, now_ms: int, *, delay_ms: int, but: str | None = None) -> int:
        """Remove the files that are due, except for files with a suffix (`but`); return how many."""
        since = [(now_ms if at == NO_TIMESTAMP else at, path) for at, path in self._files]
        due = [
            path for at, path in since if now_ms - at >= delay_ms and (but is None or not path.endswith(but))
        ]
        gone = set(due)
        self._files = [(at, path) for at, path in since if path not in gone]
        for path in due:
            if (file := self._open.pop(path, None)) is not None:
                file.close()
            self._disk.remove(path)
        return len(due)
