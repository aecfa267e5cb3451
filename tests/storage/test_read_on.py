"""Consumers' reads go on where a segment ends, and past batches that compaction has emptied."""

from __future__ import annotations

import pytest

from raftlog.base.disk import Buffer
from raftlog.records.batch import iter_headers
from raftlog.storage import log_reads
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.compacted_logs import clean, close_segment, open_compacted, put

MOST = 1 << 20


@pytest.fixture
def log() -> Log:
    return open_compacted(SimDisk(0), segment_bytes=400)


def consumed(
    log: Log, offset: int, max_bytes: int = MOST, *, min_one: bool = True, cached: bool = True
) -> tuple[list[tuple[int, int]] | None, int]:
    """The (base offset, record count) of each batch that a consumer is sent, and where it goes on."""
    limits = {"end_offset": log.log_end_offset, "min_one": min_one, "cached": cached}
    records, end = log.read_on(log.read_with_end(offset, max_bytes, **limits), max_bytes, **limits)
    return None if records is None else batches(records), end


def batches(records: Buffer) -> list[tuple[int, int]]:
    return [(each.base_offset, each.record_count) for _, each in iter_headers(memoryview(records))]


def overwrite(log: Log, times: int) -> None:
    """A segment for each value of a key, and an active segment with the last: all others are emptied."""
    for number in range(times):
        put(log, (b"k", b"%d" % number * 100))
        close_segment(log)
    put(log, (b"other", b"last"))
    clean(log)


def test_a_read_goes_on_in_the_next_segments(log: Log) -> None:
    """Consumers see no ends of segments: the answer is as long as the limit allows."""
    for number in range(9):
        put(log, (b"k%d" % number, b"v" * 100))
    assert len(log.segments) > 3
    assert consumed(log, 0) == ([(each, 1) for each in range(9)], 9)
    size = len(log.read(0, 1, end_offset=9) or b"")
    assert consumed(log, 1, size * 4) == ([(each, 1) for each in range(1, 5)], 5)
    assert consumed(log, 1, size * 4 - 1) == ([(each, 1) for each in range(1, 4)], 4)


def test_batches_without_records_are_left_out_if_records_follow(log: Log) -> None:
    """kafka-go read an answer without records again and again, and some other clients raised their limits."""
    overwrite(log, 6)
    assert [count for _, count in batches(log.read(0, 61, end_offset=7, cached=False) or b"")] == [0]
    found, end = consumed(log, 0)
    assert found == [(5, 1), (6, 1)] and end == 7
    assert consumed(log, 0, 61) == ([(5, 1)], 6)


def test_a_read_without_room_for_the_next_records_still_gets_on(log: Log) -> None:
    """A partition that comes later in an answer brings what fits, be it without records."""
    overwrite(log, 3)
    found, end = consumed(log, 0, 61, min_one=False)
    assert found is not None and found[-1] == (end - 1, 0) and 0 < end < 3


def test_a_batch_without_records_shows_the_end_as_in_kafka(log: Log) -> None:
    """No batch follows: the reader gets on to the end of the log."""
    put(log, (b"k", b"old"))
    close_segment(log)
    put(log, (b"k", b"new"))
    close_segment(log)
    clean(log)
    limits = {"end_offset": 1}
    assert batches(log.read_on(log.read_with_end(0, MOST, **limits), MOST, **limits)[0] or b"") == [(0, 0)]


def test_passing_very_many_emptied_segments_is_no_work_for_the_loop() -> None:
    """The event loop gives up after some reads, and a thread finds the records."""
    log = open_compacted(SimDisk(1), segment_bytes=120)
    overwrite(log, log_reads.READS_ON_LOOP + 5)
    assert len(log.segments) > log_reads.READS_ON_LOOP + 2
    assert consumed(log, 0)[0] is None
    last = log.log_end_offset
    assert consumed(log, 0, cached=False) == ([(last - 2, 1), (last - 1, 1)], last)


def test_a_next_segment_that_has_rotted_is_found_by_the_read_that_begins_there(log: Log) -> None:
    """Sound batches before it are answered."""
    for number in range(9):
        put(log, (b"k%d" % number, b"v" * 100))
    second = log.segments[1]
    second.trusted_from = second.size
    byte = bytes(second.file.pread(1, 80))
    second.file.pwritev([bytes([byte[0] ^ 1])], 80)
    found, end = consumed(log, 0, cached=False)
    assert found == [(each, 1) for each in range(second.base_offset)] and end == second.base_offset
    assert log.damage is not None
