"""Records by time: the log's part of ListOffsets (KIP-33, KIP-79, KIP-734)."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftlog.base.config import TopicConfig
from raftlog.records.batch import build_batch, iter_headers, iter_records, new_record, validate_produced
from raftlog.records.compression import GZIP, NONE
from raftlog.storage import timestamps
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.examples import examples
from tests.storage.batches import NOW_MS, read_all

CRC_AT, TIMES_AT = 17, 27
"""Bytes of a batch's header, after which its first and its largest timestamp stand."""

DELTA_AT = 64
"""Of the first record's offset delta, where that and what stands before it are small."""

TIMES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=20)


def log_of(disk: SimDisk, *, clean: bool) -> Log:
    """Open a log of small segments."""
    config = TopicConfig(segment_bytes=400, index_interval_bytes=100)
    return Log.open(
        disk, "/data/t-0", config=config, recovery_point=0, clean=clean, topic_id=None, now_ms=NOW_MS
    )


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    times=TIMES,
    asked=st.integers(-1, 65),
    start=st.floats(0, 1),
    codec=st.sampled_from([NONE, GZIP]),
    reopen=st.none() | st.booleans(),
)
def test_a_time_finds_the_first_record_that_is_not_older(
    times: list[list[int]], asked: int, start: float, codec: int, reopen: bool | None
) -> None:
    """The answer is that of a search through all records, whatever the order of times inside and between batches."""
    disk = SimDisk(0)
    log = log_of(disk, clean=False)
    for epoch, batch_times in enumerate(times):
        records = [new_record(None, b"v" * 20, timestamp=time) for time in batch_times]
        batch = build_batch(records, codec=codec)
        log.append_as_leader(validate_produced(batch, 1 << 20), batch, leader_epoch=epoch, now_ms=NOW_MS)
    if reopen is not None:
        log.close(clean=reopen)
        log = log_of(disk, clean=reopen)
    log.advance_log_start(int(start * log.log_end_offset))
    content = read_all(log)
    records = [
        (record.offset, record.timestamp, header.leader_epoch)
        for at, header in iter_headers(content)
        for record in iter_records(content[at : at + header.length])
        if record.offset >= log.log_start_offset
    ]
    expected = next((record for record in records if record[1] >= asked), None)
    assert log.offset_for_timestamp(asked) == expected
    newest = max(records, key=lambda record: record[1], default=None)
    found = log.max_timestamp()
    assert (found and found.timestamp) == (newest and newest[1])
    assert found is None or tuple(found) in records


def log_with(batch: bytes) -> Log:
    """Open a log of one batch."""
    log = log_of(SimDisk(0), clean=False)
    log.append_as_leader(validate_produced(batch, 1 << 20), batch, leader_epoch=0, now_ms=NOW_MS)
    return log


def sealed(batch: bytearray) -> bytes:
    """Return the batch with the checksum that fits it."""
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(batch[CRC_AT + 4 :]))
    return bytes(batch)


def test_a_small_batch_of_very_many_records_is_searched_in_little_memory() -> None:
    """40,000 records take kilobytes on the disk; the search holds one record, and the plain bytes."""
    records = [new_record(None, b"", timestamp=1_000)] * 40_000
    log = log_with(build_batch(records, codec=GZIP))
    tracemalloc.start()
    try:
        assert log.offset_for_timestamp(1_001) is None
        assert log.max_timestamp() == (0, 1_000, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


def test_a_time_beyond_64_bits_is_that_of_its_batch() -> None:
    """A sum of two numbers that a client chose could not be answered: the connection was closed."""
    records = [new_record(None, b"v", timestamp=time) for time in (-(1 << 62), (1 << 62) - 1)]
    batch = bytearray(build_batch(records))
    struct.pack_into(">qq", batch, TIMES_AT, NOW_MS, NOW_MS + 5)
    log = log_with(sealed(batch))
    assert log.offset_for_timestamp(NOW_MS + 1) == log.max_timestamp() == (1, NOW_MS + 5, 0)


@pytest.mark.parametrize("zigzag", [1, 2, 120])
def test_a_record_that_claims_an_offset_outside_its_batch_hides_no_other(zigzag: int) -> None:
    """Its answer would lie beyond the end of the log, as if no record were so new."""
    batch = bytearray(build_batch([new_record(None, b"liar", timestamp=NOW_MS)]))
    assert batch[DELTA_AT] == 0
    batch[DELTA_AT] = zigzag  # -1, 1 or 60
    log = log_with(sealed(batch))
    honest = build_batch([new_record(None, b"v", timestamp=NOW_MS)])
    log.append_as_leader(validate_produced(honest, 1 << 20), honest, leader_epoch=0, now_ms=NOW_MS)
    assert log.offset_for_timestamp(NOW_MS) == log.max_timestamp() == (0, NOW_MS, 0)


def test_a_search_goes_no_further_than_to_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records behind the wanted record are not read."""
    read = 0
    iter_raw = timestamps.iter_raw

    def counted(plain: bytes, count: int) -> Iterator[Any]:
        nonlocal read
        for record in iter_raw(plain, count):
            read += 1
            yield record

    monkeypatch.setattr(timestamps, "iter_raw", counted)
    log = log_with(build_batch([new_record(None, b"", timestamp=time) for time in range(1_000)]))
    assert log.offset_for_timestamp(2) == (2, 2, 0)
    assert read == 3


def test_a_batch_is_searched_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that decompresses to more than it may, or that claims more records, is found by its header."""
    log = log_with(
        build_batch([new_record(None, b"v" * 2_000, timestamp=time) for time in (*range(9), 5)], codec=GZIP)
    )
    assert log.offset_for_timestamp(5) == (5, 5, 0)
    monkeypatch.setattr(timestamps, "PLAIN_MAX_BYTES", 10_000)
    assert log.offset_for_timestamp(5) == (0, 8, 0)
    monkeypatch.undo()
    monkeypatch.setattr(timestamps, "RECORDS_MAX", 9)
    assert log.offset_for_timestamp(5) == (0, 8, 0)


def test_records_without_timestamps_have_no_newest_one() -> None:
    """ListOffsets -3 finds none (Kafka: offsetOfMaxTimestamp is empty), and those beside them."""
    log = log_with(build_batch([new_record(None, b"v", timestamp=-1)] * 2))
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    honest = build_batch([new_record(None, b"v", timestamp=time) for time in (-1, 0)])
    log.append_as_leader(validate_produced(honest, 1 << 20), honest, leader_epoch=0, now_ms=NOW_MS)
    assert log.max_timestamp() == log.offset_for_timestamp(0) == (3, 0, 0)


def test_a_header_that_promises_a_time_hides_no_newer_record() -> None:
    """The time index names the batch of the largest claim, and its records may be older than others."""
    log = log_with(build_batch([new_record(None, b"v", timestamp=NOW_MS)]))
    batch = bytearray(build_batch([new_record(None, b"liar", timestamp=5)]))
    struct.pack_into(">qq", batch, TIMES_AT, 5, NOW_MS + 5)
    liar = sealed(batch)
    log.append_as_leader(validate_produced(liar, 1 << 20), liar, leader_epoch=0, now_ms=NOW_MS)
    assert log.max_timestamp() == (0, NOW_MS, 0)
