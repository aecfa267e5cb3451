"""The memory that a cleaning may take, and its treatment of unreadable batches and of files that go away."""

from __future__ import annotations

import tracemalloc

import pytest
from crc32c import crc32c

from raftlog.records.batch import build_batch, new_record, read_header
from raftlog.records.compression import ZSTD, compress
from raftlog.records.header import CRC_START
from raftlog.storage.log import Log
from raftlog.storage.log_to_clean import MAX_SEGMENTS_PER_GROUP, group_segments
from raftlog.storage.offset_map import ENTRY_BYTES, TABLES, OffsetMap
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS
from tests.storage.compacted_logs import (
    DAY_MS,
    clean,
    cleaning_of,
    close_segment,
    flush_and_checkpoint,
    open_compacted,
    put,
    records_of,
    run_steps,
    table_of,
)

MIB = 1 << 20


@pytest.fixture
def log() -> Log:
    return open_compacted(SimDisk(0))


def peak_of_cleaning(log: Log, **options: int) -> int:
    """Bytes that a cleaning takes at its worst, including the bytes in a simulated disk."""
    cleaning = cleaning_of(log, **options)
    assert cleaning is not None
    tracemalloc.start()
    try:
        run_steps(cleaning.steps())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_few_small_batches_do_not_keep_all_that_was_read_with_them() -> None:
    """One batch in a hundred kilobytes stays: the bytes read with it are released."""
    log = open_compacted(SimDisk(0), segment_bytes=64 * MIB)
    for number in range(60):
        put(log, (b"rare %d" % number, b"x"))
        put(log, (b"often", b"v" * 200_000))
    close_segment(log)
    assert log.segments[0].size > 12_000_000
    assert peak_of_cleaning(log) < 3_000_000
    assert len(records_of(log)) == 61


def test_a_batch_of_very_many_records_costs_its_bytes_not_its_records(log: Log) -> None:
    """A record of ten bytes must not become an object that is kept: a batch has millions of them."""
    log = open_compacted(SimDisk(0), segment_bytes=64 * MIB)
    put(log, *((b"%d" % (number % 7), None if number % 2 else b"") for number in range(6_000)))
    close_segment(log)
    size = log.segments[0].size
    assert peak_of_cleaning(log) < 12 * size + 64 * ENTRY_BYTES
    assert [each.key for each in records_of(log)] == [b"%d" % (each % 7) for each in range(5_993, 6_000)]


def test_the_map_ends_within_a_batch_that_has_more_keys_than_it_may_hold(log: Log) -> None:
    """Each cleaning gets on nevertheless, and all of them together find the newest record of each key."""
    for version in range(3):
        put(log, *((b"key %d" % number, b"%d" % version) for number in range(50)))
    close_segment(log)
    until = []
    while (cleaning := clean(log, map_bytes=20 * ENTRY_BYTES)) is not None:
        assert len(cleaning._map) <= 20
        until.append(cleaning.cleaned_until)
    assert until == [20, 40, 60, 80, 100, 120, 140, 150]
    assert table_of(records_of(log)) == {b"key %d" % number: b"2" for number in range(50)}
    assert len(records_of(log)) < 150


def test_the_map_grows_and_goes_away_in_parts() -> None:
    """A table of all keys would be copied at once when it grows: the largest is a small part of the whole."""
    offsets = OffsetMap(MIB * 100, 0)
    for number in range(20_000):
        offsets.put(b"a key that is longer than a digest %d" % (number % 10_000), number)
    assert len(offsets) == 10_000
    assert max(len(each) for each in offsets._tables) < 10_000 // TABLES * 2
    assert offsets.newest(b"a key that is longer than a digest 7") == 10_007
    assert len([*offsets.released()]) == TABLES and not offsets._tables


def test_a_batch_that_cannot_be_decompressed_stays_and_holds_nothing_up(log: Log) -> None:
    """A topic may have become compact after a producer sent it: its CRC holds, only its contents are nonsense."""
    put(log, (b"k", b"old"))
    batch = bytearray(build_batch([new_record(b"k", b"?", timestamp=NOW_MS)], codec=ZSTD))
    junk = bytearray(compress(ZSTD, b"x" * 40))
    batch[61:] = junk
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[CRC_START - 4 : CRC_START] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    log.append_as_leader(read_header(batch), batch, leader_epoch=0, now_ms=NOW_MS)
    put(log, (b"k", b"new"))
    close_segment(log)
    cleaning = clean(log)
    assert cleaning is not None and (log.cleaned_until, cleaning.records_after) == (3, 2)
    assert log.damage is None


def test_a_full_batch_of_tombstones_gets_its_horizon_and_is_readable(log: Log) -> None:
    """Each record's time is written anew, relative to the horizon."""
    put(log, *((b"key %d" % number, None) for number in range(30)), timestamp=NOW_MS)
    before = [(each.offset, each.timestamp, each.key) for each in records_of(log)]
    close_segment(log)
    clean(log)
    assert [(each.offset, each.timestamp, each.key) for each in records_of(log)] == before
    put(log, (b"x", b"x"))
    close_segment(log)
    clean(log, now_ms=NOW_MS + DAY_MS)
    assert [each.key for each in records_of(log)] == [b"x"]


def test_not_too_many_segments_become_one(log: Log) -> None:
    """All of their names change at once, on the loop."""
    log = open_compacted(SimDisk(0), segment_bytes=MIB)
    for number in range(2 * MAX_SEGMENTS_PER_GROUP + 5):
        put(log, (b"k%d" % number, b"v"))
        log._roll(NOW_MS)
    flush_and_checkpoint(log)
    groups = group_segments(tuple(log.segments[:-1]), log.config)
    assert [len(group) for group in groups] == [MAX_SEGMENTS_PER_GROUP, MAX_SEGMENTS_PER_GROUP, 5]


@pytest.mark.parametrize("taken", range(0, 40, 3))
def test_a_segment_that_retention_drops_under_a_cleaning_ends_it(taken: int) -> None:
    """Its file may be gone, which is no failure of the disk."""
    log = open_compacted(SimDisk(0), cleanup_policy=("compact", "delete"), retention_ms=DAY_MS)
    for number in range(30):
        put(log, (b"k%d" % (number % 3), b"%d" % number))
    close_segment(log)
    cleaning = cleaning_of(log)
    assert cleaning is not None
    steps, answer = cleaning.steps(), None
    for _ in range(taken):
        call = next(steps) if answer is None else steps.send(answer)
        answer = call() if call is not None else None
    assert log.delete_old_segments(NOW_MS + 2 * DAY_MS, end_limit=log.log_end_offset) > 0
    log.flush()
    assert log.delete_due_files(NOW_MS) == 0 and log.delete_due_files(NOW_MS + DAY_MS) > 0
    try:
        while True:
            call = steps.send(answer)
            answer = call() if call is not None else None
    except StopIteration:
        assert not cleaning.is_complete
    except (OSError, AssertionError):
        assert cleaning.is_log_changed
    assert log.damage is None
