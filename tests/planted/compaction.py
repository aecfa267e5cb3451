"""Bugs of compaction: what counts as the newest record, what may be forgotten and when, and what a crash leaves."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.disk import Disk
from raftlog.broker.replicas import compaction as driver
from raftlog.broker.replicas.replicas import Replicas
from raftlog.storage import cleaner, swap
from raftlog.storage.cleaned_transactions import CleanedTransactionMetadata
from raftlog.storage.cleaner import Cleaning
from raftlog.storage.offset_map import OffsetMap
from raftlog.storage.segment import Segment
from raftlog_chaos.scenarios.compaction import compaction
from tests.planted.plant import Plant


def let_aborted_records_count(patch: pytest.MonkeyPatch) -> None:
    """The record of an aborted transaction replaces the committed record before it."""
    patch.setattr(CleanedTransactionMetadata, "is_aborted", lambda outcomes, header: False)


def clean_beyond_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    """Written records count before it is known whether their transaction commits, or whether they are committed at
    all.
    """
    find = driver.find_log_to_clean
    patch.setattr(
        driver,
        "find_log_to_clean",
        lambda log, *, end_limit, now_ms: find(log, end_limit=log.log_end_offset, now_ms=now_ms),
    )


def forget_while_a_replica_is_away(patch: pytest.MonkeyPatch) -> None:
    """delete.retention.ms alone decides: a replica that was away longer keeps what was deleted."""
    patch.setattr(Replicas, "is_whole", lambda replicas, partition: True)


def take_older_records_for_newer(patch: pytest.MonkeyPatch) -> None:
    """The first record of a key in the dirty part is kept, not the last."""
    put = OffsetMap.put

    def put_first(offsets: OffsetMap, key: bytes, offset: int) -> None:
        if offsets.newest(key) < 0:
            put(offsets, key, offset)

    def is_wanted(cleaning: Cleaning, record: Any, base_offset: int, horizon_ms: int | None) -> bool:
        newest = cleaning._map.newest(record.key)
        return newest < 0 or newest == base_offset + record.offset_delta

    patch.setattr(OffsetMap, "put", put_first)
    patch.setattr(Cleaning, "_is_wanted", is_wanted)


def swap_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A cleaned segment takes its place before its bytes are on the disk."""

    def seal(disk: Disk, segment: Segment) -> None:
        segment.dirty = False
        for kind, contents in segment.index_file_contents().items():
            disk.write_file(segment.path + kind + swap.SWAP, contents, sync=False)

    patch.setattr(swap, "seal", seal)


def keep_no_last_batch(patch: pytest.MonkeyPatch) -> None:
    """A hole may end a segment: a fetch there finds no records, for ever."""
    patch.setattr(cleaner, "without_records", lambda header: None)
    patch.setattr(cleaner.CleanedSegment, "seal", _seal_short)


def _seal_short(target: cleaner.CleanedSegment) -> None:
    target._write()
    target.segment.end_offset = target.expected_end_offset
    swap.seal(target._disk, target.segment)


PLANTS = [
    Plant("aborted-records-count", "compaction: aborted", compaction, let_aborted_records_count, 6.0),
    Plant(
        "cleaned-beyond-stable", "compaction: undecided", compaction, clean_beyond_the_last_stable_offset, 6.0
    ),
    Plant(
        "forgotten-while-away", "compaction: deleted keys", compaction, forget_while_a_replica_is_away, 6.0
    ),
    Plant("older-record-kept", "compaction: newest", compaction, take_older_records_for_newer, 6.0),
    Plant("swap-before-sync", "compaction: power loss", compaction, swap_before_the_sync, 6.0),
    Plant("no-last-batch", "compaction: holes", compaction, keep_no_last_batch, 6.0),
]
