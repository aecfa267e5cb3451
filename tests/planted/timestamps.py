"""Bugs of records' times: trust in the largest timestamp, and the age of a batch without timestamps."""

from __future__ import annotations

import pytest

from raftlog.records import header as headers
from raftlog.records.header import BatchHeader, Buffer
from raftlog.records.validation import WalkRules
from raftlog.replication import leader_role
from raftlog.storage import log as logs
from raftlog.storage import log_to_clean, retention, segment_age
from raftlog.storage.segment import NEVER_MS, Segment
from raftlog_chaos.scenarios.odd_headers import odd_headers
from tests.planted.plant import Plant


def believe_max_timestamp(patch: pytest.MonkeyPatch) -> None:
    """The largest timestamp is what the client says, as in raftlog 0.3.0."""

    def claims_more_records_than_bytes(header: BatchHeader, rules: WalkRules, now_ms: int) -> bool:
        return rules.walks_all or header.record_count > header.length - headers.HEADER_BYTES

    patch.setattr(leader_role, "must_be_walked", claims_more_records_than_bytes)


def correct_without_a_new_crc(patch: pytest.MonkeyPatch) -> None:
    """The header is put right, and its CRC is that of the client's."""
    stamp = headers.stamp_max_timestamp

    def stamp_only(header: BatchHeader, batch: Buffer, **fields: int) -> bytes:
        head = bytearray(stamp(header, batch, **fields))  # type: ignore[arg-type]
        head[headers.CRC_START - 4 : headers.CRC_START] = header.crc.to_bytes(4, "big")
        return bytes(head)

    patch.setattr(logs, "stamp_max_timestamp", stamp_only)


def _is_older_by_timestamps(segment: Segment, time_ms: int) -> bool:
    segment.load_time_index()
    return segment.max_timestamp < time_ms


def retain_from_1970(patch: pytest.MonkeyPatch) -> None:
    """Retention takes -1 for a time."""
    patch.setattr(retention, "is_older_than", _is_older_by_timestamps)


def lag_from_1970(patch: pytest.MonkeyPatch) -> None:
    """min.compaction.lag.ms takes -1 for a time."""
    patch.setattr(log_to_clean, "is_older_than", _is_older_by_timestamps)


def roll_from_1970(patch: pytest.MonkeyPatch) -> None:
    """A segment that begins without a timestamp is older than segment.ms from its first batch on."""

    def set_roll_time(segment: Segment) -> None:
        segment.roll_after_ms = segment.first_timestamp + segment.roll_ms

    patch.setattr(Segment, "_set_roll_time", set_roll_time)


def never_roll(patch: pytest.MonkeyPatch) -> None:
    """A segment that begins without a timestamp never ends by time."""

    def set_roll_time(segment: Segment) -> None:
        is_known = segment.first_timestamp >= 0
        segment.roll_after_ms = segment.first_timestamp + segment.roll_ms if is_known else NEVER_MS

    patch.setattr(Segment, "_set_roll_time", set_roll_time)


def trust_the_time_index(patch: pytest.MonkeyPatch) -> None:
    """After a restart a segment is as old as its time index says, which knows of timestamps only."""

    def look(segment: Segment) -> None:
        segment.has_untimed = False

    patch.setattr(segment_age, "_find_untimed", look)


PLANTS = [
    Plant("max-timestamp-believed", "timestamps: header", odd_headers, believe_max_timestamp),
    Plant("corrected-without-crc", "timestamps: header", odd_headers, correct_without_a_new_crc),
    Plant("retained-from-1970", "timestamps: none", odd_headers, retain_from_1970),
    Plant("compacted-from-1970", "timestamps: none", odd_headers, lag_from_1970),
    Plant("rolled-from-1970", "timestamps: none", odd_headers, roll_from_1970),
    Plant("untimed-never-rolls", "timestamps: none", odd_headers, never_roll),
    Plant("time-index-trusted", "timestamps: restart", odd_headers, trust_the_time_index),
]
