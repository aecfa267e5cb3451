"""Compaction: what stays of a log, what goes and when (KIP-58, 87, 354, 534)."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.errors import CorruptMessage
from raftlog.records.batch import (
    HEADER_BYTES,
    ProducerIdAndSequence,
    build_batch,
    iter_records,
    new_record,
    read_header,
)
from raftlog.records.compression import GZIP, LZ4, NONE, ZSTD, compress
from raftlog.records.raw_records import delete_horizon
from raftlog.storage.fetched_batches import GapPolicy
from raftlog.storage.log import Log
from raftlog.storage.log_to_clean import find_log_to_clean, group_segments
from raftlog.storage.offset_map import ENTRY_BYTES, OffsetMap
from raftlog.storage.partition_files import GAPS_MARK
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.examples import examples
from tests.records.forged_batches import with_deltas, with_payload
from tests.storage.batches import NOW_MS
from tests.storage.compacted_logs import (
    DAY_MS,
    FOLDER,
    batches_of,
    clean,
    cleaning_of,
    close_segment,
    committed_of,
    end,
    flush_and_checkpoint,
    open_compacted,
    pairs_of,
    put,
    records_of,
    run_steps,
    table_of,
)


@pytest.fixture
def log() -> Log:
    return open_compacted(SimDisk(0))


def reopened(log: Log, *, lose_power: bool = False) -> Log:
    """The log as a process finds it that starts after a kill or a power loss."""
    point = log.recovery_point
    log.disk.crash() if lose_power else log.disk.release()  # type: ignore[attr-defined]
    again = open_compacted(log.disk, recovery_point=point)
    assert again.damage is None
    return again


def test_only_the_newest_record_of_each_key_stays_at_its_offset(log: Log) -> None:
    """Offsets never change, nor do the order of records and where batches begin and end."""
    for number in range(10):
        put(log, (b"a", b"%d" % number), (b"b%d" % (number % 2), b"%d" % number))
    close_segment(log)
    bounds = [(header.base_offset, header.last_offset) for header, _ in batches_of(log)]
    cleaning = clean(log)
    assert cleaning is not None and cleaning.bytes_after < cleaning.bytes_before
    assert pairs_of(records_of(log)) == [(17, b"b0", b"8"), (18, b"a", b"9"), (19, b"b1", b"9")]
    assert {(header.base_offset, header.last_offset) for header, _ in batches_of(log)} <= {*bounds}
    assert (log.log_end_offset, log.cleaned_until, log.damage) == (20, 20, None)


def test_the_active_segment_and_what_is_not_stable_is_left_alone(log: Log) -> None:
    """No record goes at or beyond the last stable offset, nor out of the active segment."""
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    put(log, (b"k", b"active"))
    flush_and_checkpoint(log)
    assert find_log_to_clean(log, end_limit=3, now_ms=NOW_MS) is None
    bounds = find_log_to_clean(log, end_limit=9, now_ms=NOW_MS)
    assert bounds is not None and bounds.end <= 9
    clean(log)
    assert pairs_of(records_of(log)) == [(9, b"k", b"9"), (10, b"k", b"active")]


def test_nothing_beyond_the_recovery_point_is_cleaned(log: Log) -> None:
    """Recovery doubts what lies there, and a truncation into it would leave no mark on the disk."""
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    log._roll(NOW_MS)
    log.flush()
    assert cleaning_of(log) is None
    log.checkpoint()
    assert cleaning_of(log) is not None


def test_a_tombstone_stays_until_its_horizon_and_goes_then() -> None:
    """delete.retention.ms counts from the cleaning that first found it, not from its timestamp (KIP-534)."""
    log = open_compacted(SimDisk(0), delete_retention_ms=DAY_MS)
    put(log, (b"k", b"value"))
    put(log, (b"k", None), (b"other", b"stays"), timestamp=NOW_MS - 30 * DAY_MS)
    close_segment(log)
    clean(log)
    assert pairs_of(records_of(log)) == [(1, b"k", None), (2, b"other", b"stays")]
    header = next(header for header, _ in batches_of(log) if header.record_count == 2)
    assert delete_horizon(header) == NOW_MS + DAY_MS
    assert [each.timestamp for each in records_of(log)] == [NOW_MS - 30 * DAY_MS, NOW_MS - 30 * DAY_MS + 1]
    for now_ms, found in ((NOW_MS + DAY_MS - 1, 2), (NOW_MS + DAY_MS, 1)):
        put(log, (b"z", b"%d" % now_ms))
        close_segment(log)
        clean(log, now_ms=now_ms)
        assert len([each for each in records_of(log) if each.offset in (1, 2)]) == found
    assert table_of(records_of(log)) == {b"other": b"stays", b"z": b"%d" % (NOW_MS + DAY_MS)}


def test_a_tombstone_stays_while_a_replica_is_away() -> None:
    """It would else keep what was deleted, and show it one day as the leader."""
    log = open_compacted(SimDisk(0), delete_retention_ms=0)
    put(log, (b"k", None))
    for may_forget in (False, False, True):
        put(log, (b"z", b"z"))
        close_segment(log)
        clean(log, may_forget=may_forget, now_ms=NOW_MS + DAY_MS)
        assert (b"k" in {each.key for each in records_of(log)}) is not may_forget


def test_records_of_aborted_transactions_go_and_committed_records_stay(log: Log) -> None:
    """An aborted value neither shows nor hides an older value."""
    put(log, (b"k", b"old"), (b"gone", b"old"))
    put(log, (b"k", b"aborted"), (b"new", b"aborted"), producer=(7, 0, 0), transactional=True)
    end(log, 7, commit=False)
    put(log, (b"gone", b"committed"), producer=(8, 0, 0), transactional=True)
    end(log, 8, commit=True)
    close_segment(log)
    before = table_of(committed_of(log))
    clean(log)
    assert table_of(committed_of(log)) == table_of(records_of(log)) == before
    assert before == {b"k": b"old", b"gone": b"committed"}
    assert log.transaction_index.between(0, log.log_end_offset) == []


def test_an_open_transaction_holds_up_cleaning_from_its_first_record(log: Log) -> None:
    """An undecided transaction is neither kept for good nor dropped."""
    for number in range(8):
        put(log, (b"k", b"%d" % number))
    log._roll(NOW_MS)
    opened_at = put(log, (b"k", b"open"), producer=(7, 0, 0), transactional=True)
    for number in range(8):
        put(log, (b"k", b"later %d" % number))
    close_segment(log)
    clean(log)
    assert [each.offset for each in records_of(log)] == [7, *range(opened_at, opened_at + 9)]
    end(log, 7, commit=True)
    close_segment(log)
    clean(log)
    assert pairs_of(records_of(log)) == [(opened_at + 8, b"k", b"later 7")]


def test_a_marker_goes_after_its_horizon_once_nothing_of_its_transaction_is_left() -> None:
    """Not while a batch of it is there, even an emptied batch: that would look open for ever."""
    log = open_compacted(SimDisk(0), delete_retention_ms=DAY_MS)
    put(log, (b"first of its epoch", b"f"))
    put(log, (b"k", b"t"), producer=(7, 0, 0), transactional=True)
    end(log, 7, commit=True)
    scenario = [(0, 1, 1), (1, 1, 0), (2, 1, 0), (DAY_MS + 1, 1, 0), (DAY_MS + 2, 0, 0)]
    for step, (later_ms, markers, data) in enumerate(scenario):
        if step == 1:  # the producer goes on: its first batch is no longer what it is known by
            for sequence in range(1, 6):
                put(log, (b"k", b"t"), producer=(7, 0, sequence), transactional=True)
            end(log, 7, commit=True)
        put(log, (b"k", b"x"))
        close_segment(log)
        clean(log, now_ms=NOW_MS + later_ms)
        headers = [header for header, _ in batches_of(log)]
        assert len([each for each in headers if each.base_offset == 2]) == markers, step
        assert len([each for each in headers if each.base_offset == 1]) == data, step
        log = reopened(log)
        log.on_high_watermark_updated(log.log_end_offset)
        assert log.first_unstable_offset is None


def test_producers_are_known_after_their_records_are_gone(log: Log) -> None:
    """A retry of any of the last five batches is recognised, and the next sequence is in order, from the log alone."""
    for number in range(7):
        put(log, (b"k", b"%d" % number), producer=(7, 2, number))
    put(log, (b"k", b"last"))
    end(log, 9, commit=False, producer_epoch=4)
    close_segment(log)
    for _ in range(3):
        put(log, (b"k", b"again"))
        close_segment(log)
        clean(log, now_ms=NOW_MS + 10 * DAY_MS)
    for name in log.disk.listdir(FOLDER):
        if name.endswith(".snapshot"):
            log.disk.remove(f"{FOLDER}/{name}")
    again = reopened(log)
    for number in range(2, 7):
        batch = build_batch(
            [new_record(b"k", b"x", timestamp=1)], producer=ProducerIdAndSequence(7, 2, number)
        )
        placed = again.append_as_leader(read_header(batch), batch, leader_epoch=0, now_ms=NOW_MS)
        assert (placed.duplicate, placed.base_offset) == (True, number)
    assert put(again, (b"k", b"next"), producer=(7, 2, 7)) == again.log_end_offset - 1
    assert again.producers.get(9).epoch == 4


def test_of_markers_that_ended_what_has_no_sequence_only_a_producers_last_one_is_kept() -> None:
    """A group's offsets in transactions: a producer that never changes its epoch would otherwise leave a marker for
    each.
    """
    log = open_compacted(SimDisk(0), delete_retention_ms=0, segment_bytes=10_000)
    put(log, (b"first of its epoch", b"f"))
    for number in range(10):
        for producer_id in (7, 8):
            put(log, (b"k", b"%d" % number), producer=(producer_id, 3, -1), transactional=True)
            last = end(log, producer_id, commit=True, producer_epoch=3)
    for _ in range(3):
        put(log, (b"k", b"x"))
        close_segment(log)
        clean(log)
    markers = [header.base_offset for header, _ in batches_of(log) if header.is_control]
    assert markers == [last - 2, last]
    for name in log.disk.listdir(FOLDER):
        if name.endswith(".snapshot"):
            log.disk.remove(f"{FOLDER}/{name}")
    again = reopened(log)
    assert [again.producers.get(each).epoch for each in (7, 8)] == [3, 3]
    assert again.first_unstable_offset is None


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD, LZ4])
def test_a_batch_that_loses_records_is_compressed_as_it_was(codec: int) -> None:
    """So that no segment outgrows its limit; a batch that loses no record keeps its bytes."""
    log = open_compacted(SimDisk(0), compression_type="uncompressed")
    put(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec)
    put(log, (b"b", b"4"), (b"d", b"5"), codec=codec)
    close_segment(log)
    untouched = batches_of(log)[1]
    clean(log)
    (header, batch), last = batches_of(log)
    assert (header.codec, header.last_offset, header.record_count) == (codec, 2, 2)
    assert pairs_of([*iter_records(batch)]) == [(0, b"a", b"1"), (2, b"c", b"3")]
    assert last == untouched


def test_a_full_map_cleans_what_it_holds_and_the_next_cleaning_goes_on(log: Log) -> None:
    """Memory is bounded by log.cleaner.dedupe.buffer.size, however many keys there are."""
    for number in range(60):
        put(log, (b"key %d" % (number % 30), b"%d" % number))
    close_segment(log)
    until = [cleaning.cleaned_until for _ in range(20) if (cleaning := clean(log, map_bytes=7 * ENTRY_BYTES))]
    assert until == sorted(until) and until[0] == 7 and until[-1] == 60
    while (cleaning := clean(log)) is not None:
        assert cleaning.is_complete
    assert len(records_of(log)) == 30
    assert table_of(records_of(log)) == {b"key %d" % (each % 30): b"%d" % each for each in range(30, 60)}


def test_a_key_costs_no_more_memory_than_is_counted_for_it() -> None:
    """The limit in bytes holds: measured with long keys, at the worst size of a table."""
    tracemalloc.start()
    try:
        most = 0.0
        offsets = OffsetMap(1 << 30, 0)
        for number in range(50_000):
            offsets.put(b"a key that is longer than a digest %d" % number, number + (1 << 40))
            if number > 20_000 and number % 1000 == 0:
                most = max(most, tracemalloc.get_traced_memory()[0] / number)
    finally:
        tracemalloc.stop()
    assert most <= ENTRY_BYTES


def test_small_segments_are_joined_up_to_segment_bytes(log: Log) -> None:
    """Shrunk segments do not stay a heap of small files; a group never spans more than one segment may."""
    for number in range(60):
        put(log, (b"k%d" % (number % 10), b"v" * 20))
        if number % 3 == 2:
            log._roll(NOW_MS)
    flush_and_checkpoint(log)
    before = len(log.segments)
    for _ in range(2):
        put(log, (b"x", b"x"))
        close_segment(log)
        clean(log)
    assert len(log.segments) < before / 2
    assert all(each.size <= 400 for each in log.segments)
    assert all(
        sum(each.size for each in group) <= 400 for group in group_segments(tuple(log.segments), log.config)
    )


def test_a_log_is_due_by_its_dirty_share_or_its_oldest_dirty_record(log: Log) -> None:
    """min.cleanable.dirty.ratio, max.compaction.lag.ms; min.compaction.lag.ms keeps the newest from being looked at."""
    for number in range(30):
        put(log, (b"k%d" % number, b"v" * 20))
    close_segment(log)
    clean(log)
    for number in range(4):
        put(log, (b"k%d" % number, b"v" * 20))
    close_segment(log)
    bounds = find_log_to_clean(log, end_limit=34, now_ms=NOW_MS)
    assert bounds is not None and 0 < bounds.ratio < 0.3
    assert not bounds.is_due(log.config)
    assert bounds.is_due(replace(log.config, min_cleanable_dirty_ratio=0.01))
    log.config = replace(log.config, max_compaction_lag_ms=1000)
    for now_ms, due in ((NOW_MS + 900, False), (NOW_MS + 1100, True)):
        bounds = find_log_to_clean(log, end_limit=34, now_ms=now_ms)
        assert bounds is not None and bounds.is_due(log.config) is due
    log.config = replace(log.config, min_compaction_lag_ms=500)
    assert find_log_to_clean(log, end_limit=34, now_ms=NOW_MS + 100) is None
    assert find_log_to_clean(log, end_limit=34, now_ms=NOW_MS + 600) is not None


def test_a_reader_that_began_before_goes_on_in_what_was_replaced(log: Log) -> None:
    """A cold read on another thread holds the old segment while its files are renamed; they go after their delay."""
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    old = log.segments[0]
    before = old.file.pread(old.size, 0)
    clean(log)
    assert old not in log.segments
    assert old.file.pread(old.size, 0) == before
    put(log, (b"k", b"more"))
    close_segment(log)
    clean(log)  # files of the same name are replaced again before the first files went
    assert log.delete_due_files(NOW_MS) == 0
    assert log.delete_due_files(NOW_MS + 60_000) > 0
    assert not [name for name in log.disk.listdir(FOLDER) if name.endswith(".deleted")]


def test_a_follower_takes_over_a_cleaned_log_with_its_holes(log: Log) -> None:
    """Its fetch offset falls into a hole: the next batch comes, and a restart finds the same log."""
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number), leader_epoch=number // 5)
    close_segment(log)
    clean(log)
    put(log, (b"k0", b"end"), leader_epoch=3)
    disk = SimDisk(1)
    follower = open_compacted(disk)
    while follower.log_end_offset < log.log_end_offset:
        chunk = log.read(follower.log_end_offset, 200, end_offset=log.log_end_offset, cached=False)
        assert chunk
        follower.append_as_follower(memoryview(bytes(chunk)), gaps=GapPolicy.IF_REPEATED, now_ms=NOW_MS)
    flush_and_checkpoint(follower)
    for lose_power in (False, True):
        assert batches_of(follower) == batches_of(log)
        assert follower.log_end_offset == log.log_end_offset
        follower = reopened(follower, lose_power=lose_power)
    assert batches_of(follower) == batches_of(log)


def test_a_log_without_compaction_takes_no_batch_after_a_hole() -> None:
    """There a batch with a jump of its offset has a rotten offset: no CRC covers it."""
    log = open_compacted(SimDisk(0), cleanup_policy=("delete",))
    batch = build_batch([new_record(b"k", b"v", timestamp=1)], base_offset=5, leader_epoch=0)
    with pytest.raises(CorruptMessage):
        log.append_as_follower(memoryview(batch), now_ms=NOW_MS)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("target", range(1, 14))
def test_a_cleaned_log_is_cut_where_a_hole_begins(log: Log, target: int) -> None:
    """The log's end is the end of a batch, at most where it was to be cut, now and after a restart."""
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    close_segment(log)
    put(log, (b"k9", b"x"), (b"k9", b"y"))
    flush_and_checkpoint(log)
    clean(log)
    whole = batches_of(log)
    log.truncate_to(target)
    kept = [each for each in whole if each[0].end_offset <= target]
    assert batches_of(log) == kept
    assert log.log_end_offset == (kept[-1][0].end_offset if kept else 0)
    assert log.cleaned_until <= log.log_end_offset
    end_offset = log.log_end_offset
    log.flush()
    again = reopened(log)
    assert (again.log_end_offset, batches_of(again)) == (end_offset, kept)


def test_a_cut_under_a_cleaning_ends_it_with_nothing_replaced(log: Log) -> None:
    """Bytes read before the cut must not come back."""
    for number in range(12):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    for taken in range(200):
        cleaning = cleaning_of(log)
        assert cleaning is not None
        steps, answer = cleaning.steps(), None
        try:
            for _ in range(taken):
                call = steps.send(answer)
                answer = call() if call is not None else None
        except StopIteration:
            raise AssertionError("nothing was replaced") from None
        if log.active_segment.may_have_gaps:  # something was replaced: from now on a cut goes back to a hole
            assert taken > 10
            return
        log.truncate_to(11)
        run_rest(steps, answer)
        assert not cleaning.is_complete
        assert log.log_end_offset == 11
        assert not [name for name in log.disk.listdir(FOLDER) if name.endswith((".cleaned", ".swap"))]
        put(log, (b"k", b"11 again"))
        close_segment(log)
        log.cleaned_until = 0


def run_rest(steps: object, answer: object) -> None:
    """Go on with steps that have begun."""
    while True:
        try:
            call = steps.send(answer)  # type: ignore[attr-defined]
        except StopIteration:
            return
        answer = call() if call is not None else None


def test_the_policies_compact_and_delete_hold_together() -> None:
    """cleanup.policy=compact,delete: retention takes whole segments of what compaction left."""
    log = open_compacted(SimDisk(0), cleanup_policy=("compact", "delete"), retention_ms=DAY_MS)
    for number in range(20):
        put(log, (b"k%d" % (number % 4), b"%d" % number), timestamp=NOW_MS + number)
    close_segment(log)
    clean(log)
    assert len(records_of(log)) == 4
    log.flush()
    assert log.delete_old_segments(NOW_MS + DAY_MS, end_limit=20) == 0
    assert log.delete_old_segments(NOW_MS + 2 * DAY_MS, end_limit=20) > 0
    assert records_of(log) == [] and log.log_start_offset == 20


def test_times_are_found_in_a_cleaned_log(log: Log) -> None:
    """Both indexes are made anew; the newest record is still there."""
    for number in range(20):
        put(log, (b"k%d" % (number % 5), b"%d" % number), timestamp=NOW_MS + 10 * number)
    put(log, (b"k0", b"last"), timestamp=NOW_MS - 5)
    put(log, (b"x", b"x"), timestamp=NOW_MS - 9)
    close_segment(log)
    put(log, (b"k4", b"superseded"), timestamp=NOW_MS - 9)
    close_segment(log)
    clean(log)
    for _ in range(2):
        found = log.offset_for_timestamp(NOW_MS + 165)
        assert found is not None and (found.offset, found.timestamp) == (17, NOW_MS + 170)
        newest = log.max_timestamp()
        assert newest is not None and (newest.offset, newest.timestamp) == (18, NOW_MS + 180)
        log = reopened(log)


def test_a_topic_that_is_no_longer_compacted_keeps_its_holes(log: Log) -> None:
    """Its log is still sound: that there may be gaps is written down beside it."""
    for number in range(12):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    clean(log)
    held = batches_of(log)
    log.disk.release()  # type: ignore[attr-defined]
    again = open_compacted(log.disk, cleanup_policy=("delete",))
    assert again.damage is None
    assert batches_of(again) == held


class WitnessDisk(SimDisk):
    """Notes which names of a folder a power cut would have left when its first cleaned segment is put in place."""

    durable: frozenset[str] | None = None

    def rename(self, source: str, target: str) -> None:
        if source.endswith(".cleaned") and self.durable is None:
            self.durable = frozenset(self._parent(source)[0].durable)
        super().rename(source, target)


def test_the_mark_for_holes_is_durable_before_the_first_hole() -> None:
    """A real power cut on btrfs left the cleaned segment, with its file synced, and not the mark before it."""
    log = open_compacted(WitnessDisk(0))
    for number in range(12):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    clean(log)
    assert isinstance(log.disk, WitnessDisk) and log.disk.durable is not None
    assert GAPS_MARK in log.disk.durable


def test_rot_that_a_cleaning_meets_stops_it(log: Log) -> None:
    """A bad batch is not written anew as if it were good."""
    for number in range(12):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    log.disk.flip_bit(log.segments[0].path + ".log", 65)  # type: ignore[attr-defined]
    cleaning = cleaning_of(log)
    assert cleaning is not None
    with pytest.raises(CorruptMessage):
        run_steps(cleaning.steps())
    assert (cleaning.position, log.cleaned_until) == (0, 0)


def test_a_cleaning_takes_small_steps(log: Log) -> None:
    """A step reads a chunk, or looks at a hundred records: counted in calls, so the same on every machine."""
    import sys

    for number in range(3):
        put(log, *((b"key %d" % each, b"v%d" % number) for each in range(2000)))
    close_segment(log)
    cleaning = cleaning_of(log)
    assert cleaning is not None
    steps, answer, most = cleaning.steps(), None, 0
    while True:
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            call = steps.send(answer)
        except StopIteration:
            break
        finally:
            sys.setprofile(None)
        most = max(most, calls)
        answer = call() if call is not None else None
    assert most < 1500


keys = st.sampled_from([b"a", b"b", b"c", b"a key that is longer than a digest", b""])
operations = st.one_of(
    st.tuples(
        st.just("put"),
        st.lists(st.tuples(keys, st.none() | st.binary(max_size=30)), min_size=1, max_size=4),
        st.sampled_from([None, 7, 8]),
        st.sampled_from([NONE, LZ4]),
    ),
    st.tuples(st.just("begin"), st.sampled_from([7, 8])),
    st.tuples(st.just("end"), st.sampled_from([7, 8]), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.integers(0, 3), st.sampled_from([600, 1 << 20]), st.booleans()),
    st.tuples(st.just("restart"), st.booleans()),
)


@settings(max_examples=examples(120), deadline=None)
@given(script=st.lists(operations, max_size=40), seed=st.integers(0, 1000))
def test_a_reader_sees_the_newest_value_of_each_key_whatever_was_cleaned(script: list, seed: int) -> None:
    """Against a plain dict: batches, tombstones, transactions that commit or abort, cleanings, restarts, in any order.

    Records that are left are what they were, in the order of their offsets; producers go on where they were.
    """
    log = open_compacted(SimDisk(seed), delete_retention_ms=10)
    now_ms, sequences = NOW_MS, {7: 0, 8: 0}
    opened: dict[int, list] = {}
    written: dict[int, tuple[bytes, bytes | None]] = {}
    decided: list[tuple[int, bytes, bytes | None]] = []
    for name, *details in script:
        if name == "put":
            pairs, producer, codec = details
            stamp = (-1, -1, -1) if producer is None else (producer, 0, sequences[producer])
            base = put(log, *pairs, producer=stamp, transactional=producer in opened, codec=codec)
            new = [(base + at, *pair) for at, pair in enumerate(pairs)]
            if producer is not None:
                sequences[producer] += len(pairs)
            written.update({offset: (key, value) for offset, key, value in new})
            (opened.get(producer, decided)).extend(new)
        elif name == "begin":
            opened.setdefault(details[0], [])
        elif name == "end" and opened.get(details[0]):
            end(log, details[0], commit=details[1])
            records = opened.pop(details[0])
            decided += records if details[1] else []
        elif name == "roll" and log.active_segment.size:
            close_segment(log)
        elif name == "clean":
            now_ms += 4 * details[0]
            flush_and_checkpoint(log)
            clean(log, now_ms=now_ms, map_bytes=details[1], may_forget=details[2])
        elif name == "restart":
            flush_and_checkpoint(log)
            point, until = log.recovery_point, log.cleaned_until
            log.disk.crash() if details[0] else log.disk.release()  # type: ignore[attr-defined]
            log = open_compacted(log.disk, recovery_point=point, delete_retention_ms=10)
            log.cleaned_until = until
            log.on_high_watermark_updated(log.log_end_offset)
            assert log.damage is None
    flush_and_checkpoint(log)
    seen = committed_of(log)
    offsets = [each.offset for each in seen]
    assert offsets == sorted(set(offsets))
    assert all(written[each.offset] == (each.key, each.value) for each in seen)
    unstable = log.first_unstable_offset
    assert (unstable is None) == (not any(opened.values()))
    model: dict[bytes, bytes] = {}
    for offset, key, value in sorted(decided):
        if unstable is None or offset < unstable:
            model.pop(key, None)
            if value is not None:
                model[key] = value
    assert table_of(seen) == model
    for producer_id, sequence in sequences.items():
        put(
            log,
            (b"a", b"next"),
            producer=(producer_id, 0, sequence),
            transactional=bool(opened.get(producer_id)),
        )


EXTREME = 2**63 - 1 - NOW_MS


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize(
    "deltas",
    [
        ((EXTREME, 0),),
        ((EXTREME - 1, 0), (2**62, 1)),
        ((-(2**63) + 1, 0),),
        ((0, 2**40),),
        ((0, 0), (0, 0)),
        ((0, -1),),
    ],
)
def test_a_batch_with_impossible_times_or_offsets_stays_and_stops_nothing(
    log: Log, deltas: tuple[tuple[int, int], ...], codec: int
) -> None:
    """Such batches may be in logs from before they were refused. Their keys replace no other keys."""
    forged = []
    for value in (b"v", None):
        batch = with_deltas(*deltas, timestamp=NOW_MS, value=value)
        batch = with_payload(batch, compress(codec, batch[HEADER_BYTES:]), codec=codec, count=len(deltas))
        log.append_as_leader(read_header(batch), batch, leader_epoch=0, now_ms=NOW_MS)
        forged.append(batch[HEADER_BYTES:])
    for number in range(10):
        put(log, (b"k", b"%d" % number), (b"t", None))
    close_segment(log)
    clean(log)
    found = batches_of(log)
    assert [batch[HEADER_BYTES:] for _, batch in found[:2]] == forged
    rest = [record for _, batch in found[2:] for record in iter_records(batch)]
    assert [(each.key, each.value) for each in rest] == [(b"k", b"9"), (b"t", None)]
    put(log, (b"other", b"1"))
    close_segment(log)
    clean(log, now_ms=NOW_MS + 2 * DAY_MS)
    assert log.damage is None and log.cleaned_until == log.log_end_offset


def test_the_longest_retention_of_tombstones_is_cleaned(log: Log) -> None:
    """delete.retention.ms may be as long as 64 bits can say: the horizon is a timestamp, and has no more."""
    log.config = replace(log.config, delete_retention_ms=2**63 - 1)
    put(log, (b"k", b"v"))
    put(log, (b"k", None))
    close_segment(log)
    clean(log)
    assert [each.value for each in records_of(log)] == [None]
