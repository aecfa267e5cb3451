"""The holes that compaction leaves: recorded before the first hole, never taken for lost records."""

from __future__ import annotations

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import CorruptMessage, KafkaStorageError
from raftlog.records.header import read_header
from raftlog.storage.fetched_batches import GapPolicy
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS
from tests.storage.compacted_logs import (
    FOLDER,
    batches_of,
    clean,
    close_segment,
    flush_and_checkpoint,
    open_compacted,
    put,
    records_of,
)

DELETE = ("delete",)


def reopened(log: Log, *, lose_power: bool = False) -> Log:
    """The log as a start finds it, without its topic's configs."""
    point = log.recovery_point
    log.disk.crash() if lose_power else log.disk.release()  # type: ignore[attr-defined]
    return open_compacted(log.disk, recovery_point=point, cleanup_policy=DELETE)


def copy_of(log: Log, *, gaps: GapPolicy = GapPolicy.IF_REPEATED) -> Log:
    """A new replica that followed a log from its start."""
    follower = open_compacted(SimDisk(1), cleanup_policy=DELETE)
    while follower.log_end_offset < log.log_end_offset:
        chunk = log.read(follower.log_end_offset, 150, end_offset=log.log_end_offset, cached=False)
        assert chunk
        follower.append_as_follower(memoryview(bytes(chunk)), gaps=gaps, now_ms=NOW_MS)
    return follower


@pytest.mark.parametrize("lose_power", [False, True], ids=["kill", "power"])
def test_a_topic_that_became_compact_while_the_broker_ran_keeps_its_log(lose_power: bool) -> None:
    """The next start opens it without its config, and must not take the holes for damage."""
    log = open_compacted(SimDisk(0), cleanup_policy=DELETE)
    log.config = TopicConfig(cleanup_policy=("compact",), segment_bytes=400)
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    close_segment(log)
    clean(log)
    held = batches_of(log)
    again = reopened(log, lose_power=lose_power)
    assert (again.damage, batches_of(again)) == (None, held)


@pytest.mark.parametrize("lose_power", [False, True], ids=["kill", "power"])
def test_a_follower_writes_down_the_first_hole_that_it_is_given(lose_power: bool) -> None:
    """Durably before what follows it counts as flushed."""
    log = open_compacted(SimDisk(0))
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    close_segment(log)
    clean(log)
    with pytest.raises(CorruptMessage):
        copy_of(log, gaps=GapPolicy.NONE)
    follower = copy_of(log)
    follower.flush()
    again = reopened(follower, lose_power=lose_power)
    assert (again.damage, batches_of(again)) == (None, batches_of(log))


def test_a_segment_that_ends_too_early_is_no_hole() -> None:
    """Its tail was never synced: what follows goes too, to be fetched again, else those records would be missing."""
    log = open_compacted(SimDisk(0))
    for number in range(12):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    close_segment(log)
    clean(log)
    for number in range(12, 30):
        put(log, (b"n%d" % number, b"%d" % number))
    assert len(log.segments) > 3
    torn = log.segments[-2]
    last = [header for _, header in torn.iter_headers(0)][-1]
    log.disk.open(torn.path + ".log").truncate(torn.size - last.length)
    again = reopened(log)
    assert again.log_end_offset == last.base_offset
    offsets = [record.offset for record in records_of(again)]
    assert offsets[-1] == last.base_offset - 1


def test_the_first_batch_of_each_epoch_stays_if_only_as_a_header() -> None:
    """A replica made from a cleaned log reports where an epoch began: it must be the real start.

    A replica that returns with uncommitted records would otherwise not have to truncate them.
    """
    log = open_compacted(SimDisk(0))
    for epoch in range(5):
        for number in range(4):
            put(log, (b"k", b"%d" % number), leader_epoch=epoch)
    close_segment(log)
    put(log, (b"k", b"end"), leader_epoch=5)
    close_segment(log)
    flush_and_checkpoint(log)
    clean(log)
    assert len(records_of(log)) == 1
    follower = copy_of(log)
    assert [follower.epoch_end(each) for each in range(6)] == [log.epoch_end(each) for each in range(6)]
    clean(log)
    assert len(batches_of(log)) < 12


@pytest.mark.parametrize("lose_power", [False, True], ids=["kill", "power"])
def test_a_log_that_begins_with_a_hole_knows_its_first_epoch_from_there_on(lose_power: bool) -> None:
    """Too early is safe: a replica with older records there truncates them, rather than keeps them."""
    log = open_compacted(SimDisk(0))
    for number in range(12):
        put(log, (b"k", b"%d" % number), leader_epoch=3)
    close_segment(log)
    log.advance_log_start(4)
    log._epochs.advance_start(4)
    clean(log)
    follower = open_compacted(SimDisk(1))
    follower.truncate_fully_and_start_at(4)
    chunk = log.read(4, 1000, end_offset=12, cached=False)
    assert chunk is not None
    follower.append_as_follower(memoryview(bytes(chunk)), gaps=GapPolicy.IF_REPEATED, now_ms=NOW_MS)
    assert (follower.epoch_at(4), follower.epoch_end(2).end_offset) == (3, 4)
    follower.flush()
    again = reopened(follower, lose_power=lose_power)
    assert (again.damage, again.epoch_at(4), again.epoch_end(2).end_offset) == (None, 3, 4)


def test_a_reader_that_meets_the_new_file_by_the_old_name_finds_no_damage() -> None:
    """It may have given its descriptor up, and open the file anew between two renames."""
    log = open_compacted(SimDisk(0))
    for number in range(30):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    close_segment(log)
    old = log.segments[0]
    clean(log)
    old.file = log.disk.open(old.path + ".log")
    with pytest.raises(FileNotFoundError):
        log._find_damage(old, 3)
    assert log.damage is None and not [name for name in log.disk.listdir(FOLDER) if "damage" in name]
    assert log.max_timestamp() is not None and log.log_end_offset == 30


# -- base offsets that rotted ---------------------------------------------------------------------------------------


def cleaned() -> Log:
    """A log that begins with holes and goes on without: batches of one record at 10, 11, 12 … 20."""
    log = open_compacted(SimDisk(0), segment_bytes=4000)
    for number in range(10):
        put(log, (b"k", b"%d" % number))
    close_segment(log)
    clean(log)
    for number in range(11):
        put(log, (b"n%d" % number, b"%d" % number))
    return log


def flip(log: Log, offset: int, bit: int) -> None:
    """Rot a low bit of eight of the base offset of the batch at `offset`, in memory and on the disk."""
    segment = log.segments[-1]
    found = segment.locate(offset, cached=False)
    assert found is not None and found[1] == offset
    log.disk.flip_bit(segment.path + ".log", found[0] + 7, bit)  # type: ignore[attr-defined]


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("offset", [10, 13, 19, 20])
def test_a_base_offset_that_rotted_in_a_log_with_holes_is_never_taken_for_one(offset: int, bit: int) -> None:
    """For neither a reader nor a follower: a client that reads on until an error has exactly the true records."""
    log = cleaned()
    flip(log, offset, bit)
    follower = open_compacted(SimDisk(1))
    with pytest.raises((CorruptMessage, KafkaStorageError)):
        while follower.log_end_offset < log.log_end_offset:
            chunk = log.read(follower.log_end_offset, 150, end_offset=log.log_end_offset)
            assert chunk
            end_offset = follower.log_end_offset
            try:
                follower.append_as_follower(
                    memoryview(bytes(chunk)), gaps=GapPolicy.IF_NEXT_BATCH_FITS, now_ms=NOW_MS
                )
            except CorruptMessage:
                assert follower.log_end_offset > end_offset, "it comes back here, and the leader looks"
            if follower.log_end_offset == end_offset:
                follower.append_as_follower(
                    memoryview(bytes(chunk)), gaps=GapPolicy.IF_REPEATED, now_ms=NOW_MS
                )
    assert [record.offset for record in records_of(follower)] == list(range(9, offset))
    assert log.damage is not None and log.damage.offset <= offset


def test_a_hole_that_nothing_bears_out_is_left_until_the_leader_insists() -> None:
    """The last batch of a chunk comes after a hole: its end is unknown. Alone and asked for again it is taken."""
    log, follower = cleaned(), open_compacted(SimDisk(1))
    first, last = (
        memoryview(bytes(log.read(each, 1, end_offset=10, cached=False) or b"")) for each in (0, 1)
    )
    assert [read_header(each).base_offset for each in (first, last)] == [0, 9]
    assert (
        follower.append_as_follower(
            bytes(first) + bytes(last), gaps=GapPolicy.IF_NEXT_BATCH_FITS, now_ms=NOW_MS
        )
        == 1
    )
    assert follower.append_as_follower(last, gaps=GapPolicy.IF_NEXT_BATCH_FITS, now_ms=NOW_MS) == 1
    assert not follower.active_segment.may_have_gaps
    assert follower.append_as_follower(last, gaps=GapPolicy.IF_REPEATED, now_ms=NOW_MS) == 10
    assert follower.active_segment.may_have_gaps


def test_a_batch_that_rotted_to_reach_into_its_predecessor_is_found_by_a_read_there() -> None:
    """It seems to begin before the requested offset, as batches do for a fetch from their middle."""
    log = cleaned()
    three = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert put(log, *three) == 21
    put(log, (b"d", b"4"))
    flip(log, 21, 1)  # 23: a hole, as usual
    with pytest.raises((CorruptMessage, KafkaStorageError)):
        log.read(21, 150, end_offset=log.log_end_offset)
    other = cleaned()
    put(other, (b"x", b"0"), (b"y", b"0"))
    assert put(other, *three) == 23
    put(other, (b"d", b"4"))
    flip(other, 23, 1)  # 21 to 23: its last record seems to be the wanted record
    with pytest.raises((CorruptMessage, KafkaStorageError)):
        other.read(23, 150, end_offset=other.log_end_offset)
    assert other.damage is not None and other.damage.offset == 23
