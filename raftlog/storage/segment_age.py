"""Computes the age of a segment, for retention and compaction: one rule for leaders, followers and restarted logs.

The largest timestamp of its records counts (Kafka: LogSegment.largestTimestamp). A batch without a timestamp in its
header is as old as the last modification of the file. Kafka asks for that only where no batch has a timestamp. Here it
also counts beside older timestamps, so that a fresh record is never deleted for the age of its neighbours. If the
machine's clock was behind, `Segment.save_indexes` sets the modification time to the believed time of the last batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from raftlog.base.errors import CorruptMessage
from raftlog.records.header import known_max_timestamp
from raftlog.storage.segment import Segment

MAX_SCANNED_HEADERS: Final = 1_000
MAX_SCAN_BYTES: Final = 1024 * 1024
"""Bytes of batches that are scanned in one step: some milliseconds of the event loop.

Retention continues with its next call (`bytes_looked_at`).
"""


def newest_ms(segment: Segment) -> int:
    """Return the segment's newest time, as far as it is known; see `is_older_than`."""
    newest = segment.max_timestamp
    if newest < 0 or segment.has_untimed:
        return max(newest, segment.file.modified_ms(), segment.written_ms)
    return newest


def is_older_than(segment: Segment, time_ms: int) -> bool:
    """Return whether all records of a segment are older; False while that is not known.

    The time index keeps timestamps only. A file that was modified later than it says holds a batch without a timestamp,
    or old data that came late. The headers are read once to find out. Waits for the disk.
    """
    segment.load_time_index()
    if newest_ms(segment) >= time_ms:
        return False
    if segment.has_untimed is not None or segment.file.modified_ms() < time_ms:
        return True
    _find_untimed(segment)
    return segment.has_untimed is False


def bytes_looked_at(segments: Iterable[Segment]) -> int:
    """Return how far incompletely scanned segments were scanned: it grows while there is more to see."""
    return sum(segment.timed_until for segment in segments if segment.has_untimed is None)


def _find_untimed(segment: Segment) -> None:
    begin = segment.timed_until
    try:
        for position, header in islice(segment.iter_headers(begin), MAX_SCANNED_HEADERS):
            if known_max_timestamp(header) < 0:
                segment.has_untimed = True
                return
            segment.timed_until = position + header.length
            if segment.timed_until - begin >= MAX_SCAN_BYTES:
                break
    except CorruptMessage:  # a reader will find and report it; meanwhile the safe answer counts
        segment.has_untimed = True
        return
    if segment.timed_until >= segment.size:
        segment.has_untimed = False
