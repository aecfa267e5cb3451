"""The log's appends and reads (Kafka: UnifiedLog, LocalLog)."""

from __future__ import annotations

import errno
import sys
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftlog.base.config import TopicConfig
from raftlog.base.disk import Buffer
from raftlog.base.errors import (
    CorruptMessage,
    InconsistentTopicId,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from raftlog.base.types import EpochEnd
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    build_batch,
    build_end_marker,
    iter_headers,
    iter_records,
    new_record,
    read_header,
    stamp,
    validate_produced,
)
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.errors import raises_errno
from tests.kit.examples import examples
from tests.records.forged_batches import claiming
from tests.storage.batches import NOW_MS, append, batch_of, read_all
from tests.storage.conftest import OpenLog


class CountingDisk(SimDisk):
    """Counts what is read of its files."""

    bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> Any:
        file = super().open(path, create=create)
        return CountedFile(self, file)


class CountedFile:
    def __init__(self, disk: CountingDisk, file: Any) -> None:
        self._disk, self._file = disk, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.bytes_read += size
        read: bytes = self._file.pread(size, position)
        return read


def sim_log(disk: SimDisk, *, clean: bool = False, recovery_point: int = 0, **config: object) -> Log:
    """Open the log of /data/t-0 on a simulated disk."""
    config.setdefault("segment_bytes", 1000)
    return Log.open(
        disk,
        "/data/t-0",
        config=TopicConfig(**config),  # type: ignore[arg-type]
        recovery_point=recovery_point,
        clean=clean,
        topic_id=None,
        now_ms=NOW_MS,
    )


def test_appended_batches_are_numbered_and_read_back_over_segments(open_log: OpenLog) -> None:
    """Offsets count from 0 without gaps and every record comes back, over segment rolls and a restart."""
    log = open_log()
    for number in range(40):
        placed = append(log, b"a%d" % number, b"b%d" % number)
        assert (placed.base_offset, placed.end_offset) == (2 * number, 2 * number + 2)
    written = read_all(log)
    values = [
        record.value
        for position, header in iter_headers(written)
        for record in iter_records(written[position : position + header.length])
    ]
    assert values == [b"%s%d" % (letter, number) for number in range(40) for letter in (b"a", b"b")]
    assert len(log.segments) > 3
    assert read_all(open_log()) == written


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), counts=st.lists(st.integers(1, 4), min_size=1, max_size=25), reopen=st.booleans())
def test_a_read_gives_whole_batches_from_the_one_that_holds_the_offset(
    data: st.DataObject, counts: list[int], reopen: bool
) -> None:
    """Any offset, size and end: whole batches, at most max_bytes but for a first batch, below the end, in one segment.

    The offset after the last of them is returned too.
    """
    disk = SimDisk(0)
    log = sim_log(disk, index_interval_bytes=150)
    for count in counts:
        append(log, *[b"x" * 20] * count)
    if reopen:
        log.close(clean=True)
        log = sim_log(disk, clean=True, index_interval_bytes=150)
    whole = read_all(log)
    batches = [(header, whole[at : at + header.length]) for at, header in iter_headers(whole)]
    edges = [0, *(header.end_offset for header, _ in batches)]
    for _ in range(10):
        offset = data.draw(st.integers(0, log.log_end_offset))
        end_offset = data.draw(st.sampled_from(edges))
        max_bytes = data.draw(st.integers(0, 700))
        min_one = data.draw(st.booleans())
        segment = next(each for each in reversed(log.segments) if each.base_offset <= offset)
        expected, read_end = b"", offset
        for header, batch in batches:
            inside = header.end_offset > offset and header.end_offset <= min(end_offset, segment.end_offset)
            if not inside or offset >= end_offset:
                continue
            if len(expected) + len(batch) > max_bytes and (expected or not min_one):
                break
            expected, read_end = expected + batch, header.end_offset
        found = log.read_with_end(offset, max_bytes, end_offset=end_offset, min_one=min_one)
        assert found == (expected, read_end)


def test_reads_outside_the_log_are_out_of_range(open_log: OpenLog) -> None:
    """Below the log start and past the log end is OFFSET_OUT_OF_RANGE; the end itself is just empty."""
    log = open_log()
    append(log, b"a", b"b", b"c")
    log.advance_log_start(1)
    assert log.read(3, 100, end_offset=3) == b""
    assert log.read(1, 100, end_offset=1) == b""
    for offset in (0, 4, -1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, end_offset=3)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(4)


def test_a_read_that_would_wait_for_the_disk_says_so() -> None:
    """With cached=True what is not in memory gives None, at every look on the way; cached=False reads it."""
    disk = SimDisk(1)
    log = sim_log(disk, index_interval_bytes=100)
    for _ in range(30):
        append(log, b"x" * 50)
    log.close(clean=True)
    log = sim_log(disk, clean=True, index_interval_bytes=100)
    disk.cold_read_rate = 1.0
    assert log.read(5, 300, end_offset=20) is None
    warm = log.read(5, 300, end_offset=20, cached=False)
    assert warm
    disk.cold_read_rate = 0.5
    answers = [log.read(5, 300, end_offset=20) for _ in range(40)]
    assert set(answers) == {None, warm}


def test_a_short_cached_read_counts_as_cold() -> None:
    """The page cache may hold only the first part of a range: half a batch is never returned."""
    disk = SimDisk(1)
    log = sim_log(disk)
    append(log, b"x" * 100)
    file = log.active_segment.file

    class HalfCached:
        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def pread_cached(self, size: int, position: int) -> Buffer | None:
            whole = file.pread_cached(size, position)
            return whole and whole[: size // 2]

    log.active_segment.file = HalfCached()  # type: ignore[assignment]
    assert log.read(0, 1000, end_offset=1) is None
    assert log.read(0, 1000, end_offset=1, cached=False)


def test_log_append_time_is_stamped_and_returned(open_log: OpenLog) -> None:
    """Under LogAppendTime all records carry the broker's time, whatever the producer said (KIP-32)."""
    log = open_log(message_timestamp_type="LogAppendTime")
    placed = append(log, b"a", b"b", timestamp=5, now_ms=NOW_MS + 7, producer=(3, 0, 0))
    assert placed.log_append_time_ms == NOW_MS + 7
    assert [record.timestamp for record in iter_records(read_all(log))] == [NOW_MS + 7] * 2
    retried = append(log, b"a", b"b", timestamp=5, now_ms=NOW_MS + 9, producer=(3, 0, 0))
    assert retried.duplicate and retried.log_append_time_ms == NOW_MS + 7
    assert read_all(open_log(message_timestamp_type="LogAppendTime")) == read_all(log)


def test_a_retry_answers_with_the_originals_offsets_and_writes_nothing(open_log: OpenLog) -> None:
    """The duplicate of any of the last five batches succeeds with the original's offsets (KIP-98)."""
    log = open_log()
    for sequence in range(0, 14, 2):
        append(log, b"a", b"b", producer=(9, 0, sequence))
    size = log.size_bytes
    for sequence in range(4, 14, 2):
        placed = append(log, b"a", b"b", producer=(9, 0, sequence))
        assert placed.duplicate and (placed.base_offset, placed.end_offset) == (sequence, sequence + 2)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"a", b"b", producer=(9, 0, 2))
    assert (log.size_bytes, log.log_end_offset) == (size, 14)


@pytest.mark.parametrize("clean", [True, False])
def test_retries_are_recognised_after_a_restart(open_log: OpenLog, clean: bool) -> None:
    """All five batches are known again, though a snapshot has a single batch: the log's end brings the others back."""
    log = open_log(segment_bytes=300)
    for sequence in range(8):
        append(log, b"v" * 60, producer=(9, 2, sequence))
    log.close(clean=clean)
    log = open_log(segment_bytes=300, clean=clean)
    for sequence in range(3, 8):
        assert append(log, b"v" * 60, producer=(9, 2, sequence)).base_offset == sequence
    assert append(log, b"v" * 60, producer=(9, 2, 8)).base_offset == 8


def test_a_follower_holds_the_leaders_bytes(open_log: OpenLog) -> None:
    """append_as_follower takes batches as they come: equal bytes, epochs, producers, also over rolls."""
    leader = open_log(name="leader-0")
    for number in range(30):
        append(leader, b"v%d" % number, leader_epoch=number // 10, producer=(9, 0, number))
    follower = open_log(name="follower-0", segment_bytes=700)
    content = read_all(leader)
    cut = len(content) // 2
    whole = [at for at, _ in iter_headers(content[:cut])][-1] + 1
    assert follower.append_as_follower(content[:cut], now_ms=NOW_MS) == next(
        header.end_offset for at, header in iter_headers(content) if at == whole - 1
    )
    rest = leader.log_start_offset + follower.log_end_offset
    position = next(at for at, header in iter_headers(content) if header.base_offset == rest)
    follower.append_as_follower(memoryview(content)[position:], now_ms=NOW_MS)
    assert read_all(follower) == content
    assert len(follower.segments) > len(leader.segments)
    assert follower.epoch_end(1) == leader.epoch_end(1) == EpochEnd(1, 20)
    assert append(follower, b"v29", leader_epoch=3, producer=(9, 0, 29)).duplicate


def test_a_follower_refuses_what_does_not_follow(open_log: OpenLog) -> None:
    """A gap, an overlap, an older epoch or a bad CRC is CorruptMessage; the batches before it are kept."""
    first, second = batch_of(b"a"), batch_of(b"b", b"c")
    good = stamp(0, len(first), 5) + first[16:]

    def next_one(base_offset: int, epoch: int) -> bytes:
        return stamp(base_offset, len(second), epoch) + second[16:]

    rotten = next_one(1, 5)[:-1] + b"!"
    for bad in (next_one(2, 5), next_one(0, 5), next_one(1, 4), rotten):
        log = open_log(name=f"t-{len(bad)}{bad[7]}{bad[15]}{bad[-1]}")
        with pytest.raises(CorruptMessage):
            log.append_as_follower(good + bad, now_ms=NOW_MS)
        assert (log.log_end_offset, read_all(log)) == (1, good)
        assert log.append_as_follower(next_one(1, 5), now_ms=NOW_MS) == 3


def test_segments_roll_by_size_time_index_and_offset_span(open_log: OpenLog) -> None:
    """segment.bytes, segment.ms (by records' time) and segment.index.bytes each begin a new segment."""
    by_size = open_log(name="size-0", segment_bytes=200)
    for _ in range(6):
        append(by_size, b"x" * 10)
    assert all(segment.size <= 200 for segment in by_size.segments) and len(by_size.segments) == 3
    by_time = open_log(name="time-0", segment_bytes=10_000, segment_ms=100)
    for timestamp in (1000, 1100, 1101, 1150, 1202):
        append(by_time, b"x", timestamp=timestamp)
    assert [segment.base_offset for segment in by_time.segments] == [0, 2, 4]
    by_index = open_log(name="index-0", segment_bytes=10_000, segment_index_bytes=24, index_interval_bytes=1)
    for _ in range(7):
        append(by_index, b"x")
    assert [segment.base_offset for segment in by_index.segments] == [0, 3, 6]
    restarted = open_log(name="time-0", segment_bytes=10_000, segment_ms=100)
    append(restarted, b"x", timestamp=1303)
    assert [segment.base_offset for segment in restarted.segments] == [0, 2, 4, 5]


def test_jitter_rolls_logs_at_different_ages_and_a_logs_replicas_at_the_same(open_log: OpenLog) -> None:
    """segment.jitter.ms takes at most so much off segment.ms; which part is a checksum, not chance."""

    def ages(name: str, **config: Any) -> list[int]:
        log = open_log(name=name, segment_bytes=10_000, **config)
        append(log, b"x", timestamp=0)
        return [log.active_segment.roll_after_ms]

    jittered = {"segment_ms": 10_000, "segment_jitter_ms": 4_000}
    found = [ages(f"t-{number}", **jittered)[0] for number in range(20)]
    assert all(6_000 < age <= 10_000 for age in found)
    assert len(set(found)) > 10
    assert ages("elsewhere/t-3", **jittered) == [found[3]]
    assert ages("t-3", segment_ms=10_000) == [10_000]
    wide = ages("t-5", segment_ms=100, segment_jitter_ms=10_000)
    assert 0 < wide[0] <= 100, "no more than all of it"


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(open_log: OpenLog) -> None:
    """segment.bytes never refuses a batch that max.message.bytes allows."""
    log = open_log(segment_bytes=200)
    for size in (1, 1000, 1000, 1):
        append(log, b"x" * size)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]


@pytest.mark.parametrize("room", range(0, 400, 7))
def test_a_full_disk_fails_the_append_and_nothing_else(room: int) -> None:
    """ENOSPC half-way through a batch or a roll: the log is as it was, and goes on when there is room again."""
    disk = SimDisk(3)
    log = sim_log(disk, segment_bytes=250, index_interval_bytes=50)
    for sequence in range(4):
        append(log, b"x" * 30, producer=(9, 0, sequence))
    before = read_all(log)
    full = disk.capacity_bytes - disk.room_bytes() + room
    disk.capacity_bytes = full
    sequence = 4
    with raises_errno(errno.ENOSPC):
        for sequence in range(4, 20):
            append(log, b"x" * 30, producer=(9, 0, sequence))
            before = read_all(log)
    assert (log.log_end_offset, read_all(log)) == (sequence, before)
    disk.capacity_bytes = 1 << 40
    assert append(log, b"x" * 30, producer=(9, 0, sequence)).base_offset == sequence
    whole = read_all(log)
    log.close(clean=True)
    assert read_all(sim_log(disk, clean=True, segment_bytes=250, index_interval_bytes=50)) == whole


@pytest.mark.parametrize("known", [0, 2])
def test_what_follows_a_batch_that_found_no_room_is_refused_like_it(known: int) -> None:
    """Not as out of order: librdkafka would send batches in flight twice; nor in its place, from an unknown producer
    (found by chaos: disk-trouble, duplicates).
    """
    disk = SimDisk(3)
    log = sim_log(disk)
    for sequence in range(known):
        append(log, b"x", producer=(9, 0, sequence))
    disk.fill()
    with raises_errno(errno.ENOSPC):
        append(log, b"x", producer=(9, 0, known))
    disk.make_room()
    for ahead in (known + 1, known + 3):
        reason = f"sequence {ahead} waits for {known}, which was refused: the disk refused it: No space"
        with pytest.raises(KafkaStorageError, match=reason):
            append(log, b"x", producer=(9, 0, ahead))
    if known:
        assert append(log, b"x", producer=(9, 0, known - 1)).duplicate
    assert [append(log, b"x", producer=(9, 0, each)).base_offset for each in (known, known + 1)] == [
        known,
        known + 1,
    ]
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"x", producer=(9, 0, known + 5))


def test_a_truncation_cuts_whole_batches_everywhere(open_log: OpenLog) -> None:
    """truncate_to(o) keeps the batches below o, and epochs, producers and indexes agree with what is left."""
    log = open_log(segment_bytes=300)
    for number in range(20):
        append(log, b"a", b"b", leader_epoch=number // 5, producer=(9, 0, 2 * number))
    content = read_all(log)
    assert log.truncate_to(23) == 22
    left = [header for _, header in iter_headers(content) if header.end_offset <= 22]
    assert read_all(log) == content[: sum(header.length for header in left)]
    assert (log.latest_epoch, log.epoch_end(1)) == (2, EpochEnd(1, 20))
    assert append(log, b"a", b"b", leader_epoch=4, producer=(9, 0, 22)).base_offset == 22
    assert log.truncate_to(1000) == 24
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_end_offset, read_all(log)) == (
        500,
        500,
        0,
        b"",
    )
    assert append(log, b"z", leader_epoch=5).base_offset == 500
    restarted = open_log(segment_bytes=300)
    assert (restarted.log_start_offset, restarted.log_end_offset) == (500, 501)


def test_a_short_cut_does_not_read_the_whole_segment_back() -> None:
    """A follower that cuts its tail does so on the event loop: what it knows of producers stays in memory."""
    disk = CountingDisk(0)
    log = sim_log(disk, segment_bytes=1 << 30)
    for number in range(100):
        append(log, b"x" * 20_000, producer=(9, 0, number))
    disk.bytes_read = 0
    log.truncate_to(98)
    assert disk.bytes_read < 200_000
    assert append(log, b"x" * 20_000, producer=(9, 0, 97)).duplicate
    assert append(log, b"y", producer=(9, 0, 98)).base_offset == 98


def test_a_folder_of_another_topic_is_refused(open_log: OpenLog) -> None:
    """partition.metadata names the topic id; opening with another id is INCONSISTENT_TOPIC_ID."""
    ours, other = UUID(int=77), UUID(int=78)
    open_log(topic_id=ours)
    assert open_log().topic_id == ours
    with pytest.raises(InconsistentTopicId):
        open_log(topic_id=other)


def test_aborted_transactions_are_listed_and_survive(open_log: OpenLog) -> None:
    """A read_committed reader learns which producers' records to skip, after a restart too (.txnindex, KIP-98)."""
    log = open_log(segment_bytes=300)

    def in_transaction(sequence: int, producer_id: int = 9) -> None:
        records = [new_record(None, b"v" * 50, timestamp=NOW_MS)]
        batch = build_batch(
            records, producer=ProducerIdAndSequence(producer_id, 0, sequence), attributes=TRANSACTIONAL_BIT
        )
        log.append_as_leader(validate_produced(batch, 1 << 20), batch, leader_epoch=0, now_ms=NOW_MS)

    def end(commit: bool, producer_id: int = 9) -> None:
        marker = build_end_marker(producer_id, 0, marker=EndTransactionMarker(commit, 0), now_ms=NOW_MS)
        log.append_as_leader(read_header(marker), marker, leader_epoch=0, now_ms=NOW_MS)

    in_transaction(0)
    in_transaction(0, producer_id=8)
    end(False)
    end(True, producer_id=8)
    for sequence in range(1, 4):
        in_transaction(sequence)
    end(False)
    assert log.first_unstable_offset == 0
    log.on_high_watermark_updated(log.log_end_offset)
    assert log.first_unstable_offset is None
    expected = [(0, 1), (0, 8), (4, 5), (7, 8)]
    listed = [log.transaction_index.between(*bounds) for bounds in expected]
    assert listed == [[(9, 0)], [(9, 0), (9, 4)], [(9, 4)], [(9, 4)]]
    log.close(clean=True)
    for clean in (True, False):
        again = open_log(segment_bytes=300, clean=clean)
        assert [again.transaction_index.between(*bounds) for bounds in expected] == listed


def python_calls(action: object) -> int:
    """Return how many Python functions an action calls, itself not counted."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        action()  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    return calls - 1


def test_the_hot_paths_keep_their_call_budget(open_log: OpenLog) -> None:
    """A produced batch costs at most 10 Python calls in records and storage, a read at a known offset at most 8."""
    log = open_log(segment_bytes=1 << 20, index_interval_bytes=4096)
    append(log, b"x" * 5000, producer=(9, 0, 0))
    batch = memoryview(batch_of(b"x" * 5000, producer=(9, 0, 1)))

    def produce() -> None:
        header = validate_produced(batch, 1 << 20)
        log.append_as_leader(header, batch, leader_epoch=0, now_ms=NOW_MS)

    assert python_calls(produce) <= 10
    log.read(0, 1 << 20, end_offset=2)
    append(log, b"y", producer=(9, 0, 2))
    assert python_calls(lambda: log.read(2, 1 << 20, end_offset=3)) - 1 <= 8


def test_a_log_that_holds_a_batch_which_claims_everything_is_followed_and_recovered() -> None:
    """Such batches were accepted before they were refused: each fills a segment's offsets, and no more."""
    leader, follower = sim_log(SimDisk(0)), sim_log(SimDisk(1))
    for _ in range(3):
        append(leader, b"sound")
        forged = claiming(2**31 - 1, timestamp=NOW_MS)
        leader.append_as_leader(read_header(forged), forged, leader_epoch=0, now_ms=NOW_MS)
    assert leader.log_end_offset == 3 * 2**31
    follower.append_as_follower(read_all(leader), now_ms=NOW_MS)
    assert follower.log_end_offset == leader.log_end_offset
    for each in (leader, follower):
        each.flush()
        each.disk.release()  # type: ignore[attr-defined]
        again = sim_log(each.disk)  # type: ignore[arg-type]
        assert (again.log_end_offset, again.damage) == (3 * 2**31, None)
        assert [header.base_offset for _, header in iter_headers(read_all(again))][-1] == 2 * 2**31 + 1
