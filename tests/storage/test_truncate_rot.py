"""A log is cut whatever has rotted: what stays is sound, and rot in what was to stay is damage."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise

import pytest

from raftlog.base.errors import CorruptMessage, KafkaStorageError
from raftlog.records.header import HEADER_BYTES
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import append, read_all
from tests.storage.test_recovery import FIRST, FOLDER, overwrite, sim_log

BATCHES = 16
SEGMENT_BYTES = 1500


def rotten(time_index: bytes, back: int) -> tuple[Log, bytes]:
    """Return a log with a wrong time index and a flipped bit in its first segment, and its records before offset 6.

    `back`: bytes between that bit and the end of the segment.
    """
    disk = SimDisk(0)
    log = sim_log(disk, segment_bytes=SEGMENT_BYTES)
    for number in range(BATCHES):
        append(log, b"value %d" % number, b"v" * 40, timestamp=1_000 + number)
    first = log.segments[0]
    assert len(log.segments) > 1 and first.end_offset > 8
    kept = log.read(0, 1 << 20, end_offset=6, cached=False)
    assert kept is not None
    position = first.size - back
    log.close(clean=True)
    disk.release()
    with disk.undisturbed():
        file = disk.open(FIRST + ".timeindex")
        file.truncate(0)
        file.sync()
        overwrite(disk, FIRST + ".timeindex", 0, time_index)
    disk.flip_bit(FIRST + ".log", position)
    return sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES), bytes(kept)


WRONG = pytest.mark.parametrize("time_index", [b"", b"\xff" * 24], ids=["lost", "garbled"])


@WRONG
def test_a_cut_before_rot_needs_nothing_of_what_is_cut(time_index: bytes) -> None:
    """The time index is wrong and what it is made of is rotten: the batches before the cut make it."""
    log, kept = rotten(time_index, back=70)
    log.truncate_to(6)
    assert (log.log_end_offset, log.damage) == (6, None)
    assert read_all(log) == kept
    found = log.offset_for_timestamp(1_002)
    assert found is not None and (found.offset, found.timestamp) == (4, 1_002)
    append(log, b"next")
    log.flush()
    assert isinstance(log.disk, SimDisk)
    log.disk.crash()
    assert sim_log(log.disk, segment_bytes=SEGMENT_BYTES).log_end_offset == 7


@WRONG
def test_a_cut_after_rot_takes_the_log_for_damaged_there(time_index: bytes) -> None:
    """Rot in the part that was to stay is cut off too, so that a follower fetches it again."""
    log, kept = rotten(time_index, back=200)
    end_offset = log.segments[0].end_offset
    assert log.truncate_to(end_offset - 1) < end_offset - 1
    assert log.damage is not None and log.damage.offset == log.log_end_offset
    assert read_all(log).startswith(kept)
    for segment, following in pairwise(log.segments):
        assert segment.end_offset == following.base_offset
    log.close(clean=False)


OLD_PRODUCERS = 7
"""Batches of a producer that goes on; each later batch is from a producer of its own."""
PAIRS = 30
CUT_AT = 20


def pairs(*, snapshots: bool = True) -> tuple[SimDisk, bytes]:
    """Return a disk with a log of batches of two records, closed, and its content."""
    disk = SimDisk(0)
    log = sim_log(disk, segment_bytes=SEGMENT_BYTES)
    for number in range(PAIRS):
        producer = (9, 0, 2 * number) if number < OLD_PRODUCERS else (100 + number, 0, 0)
        append(log, b"a", b"v" * 40, leader_epoch=number // 4, timestamp=1_000 + number, producer=producer)
    content = read_all(log)
    log.close(clean=True)
    disk.release()
    if not snapshots:
        with disk.undisturbed():
            for name in disk.listdir(FOLDER):
                if name.endswith(".snapshot"):
                    disk.remove(f"{FOLDER}/{name}")
    return disk, content


def check_cut(log: Log, due: int, content: bytes) -> None:
    """The log ends at the cut, or is damaged where it ends before; no producer of what was cut is known."""
    assert log.log_end_offset == due or (log.damage is not None and log.log_end_offset < due)
    assert log.segments[-1].end_offset == log.flushed_end_offset == log.log_end_offset
    cut_producers = range(100 + log.log_end_offset // 2, 100 + PAIRS)
    assert not any(each.producer_id in cut_producers for each in log.producers.active())
    with suppress(CorruptMessage, KafkaStorageError):
        assert content.startswith(read_all(log))


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_cut_is_not_misled_by_a_rotten_index(kind: str) -> None:
    """An index is made anew where a cut meets that it is wrong; all records before the cut stay."""
    for position in range(len(pairs()[0].read_file(FIRST + kind))):
        disk, content = pairs()
        disk.flip_bit(FIRST + kind, position, 5)
        log = sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES)
        assert log.truncate_to(CUT_AT) == CUT_AT
        assert log.damage is None and content.startswith(read_all(log))


@pytest.mark.parametrize("batch", [8, 9, 10])
def test_a_cut_meets_a_rotten_header(batch: int) -> None:
    """Rot in the last batches before the cut is damage, and the log ends there. Rot after it does not matter."""
    size = len(pairs()[1]) // PAIRS
    for position in range(batch * size, batch * size + HEADER_BYTES):
        disk, content = pairs()
        disk.flip_bit(FIRST + ".log", position, 5)
        log = sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES)
        log.truncate_to(CUT_AT)
        check_cut(log, CUT_AT, content)


def test_damage_that_is_met_while_producers_are_read_back_is_cut_off() -> None:
    """Else the log would know batches that were cut, and answer their producers' retries as if it had them."""
    size = len(pairs()[1]) // PAIRS
    for position in range(2 * size, 2 * size + HEADER_BYTES):
        disk, content = pairs(snapshots=False)
        log = sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES)
        disk.flip_bit(FIRST + ".log", position, 5)
        log.truncate_to(CUT_AT)
        check_cut(log, CUT_AT, content)


@pytest.mark.parametrize("seed", range(120))
def test_a_log_in_which_much_has_rotted_is_cut(seed: int) -> None:
    """Bits flip in segments and indexes while readers find damage and a leader has the log cut."""
    chance = random.Random(seed)
    disk, content = pairs()
    log = sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES)
    paths = sorted(name for name in disk.listdir(FOLDER) if name.endswith((".log", "index")))
    for segment in log.segments:
        segment.unload_indexes()
    for _ in range(chance.choice((2, 3, 8))):
        path = f"{FOLDER}/{chance.choice(paths)}"
        if size := len(disk.read_file(path)):
            disk.flip_bit(path, chance.randrange(size), chance.randrange(8))
    for _ in range(4):
        if log.log_end_offset == 0:
            break
        if chance.random() < 0.5:
            with suppress(CorruptMessage, KafkaStorageError):
                log.read(
                    chance.randrange(log.log_end_offset), 1 << 20, end_offset=log.log_end_offset, cached=False
                )
            log.truncate_damage()
            check_cut(log, log.log_end_offset, content)
        else:
            due = 2 * chance.randrange(log.log_end_offset // 2) + 2
            log.truncate_to(due)
            check_cut(log, due, content)


def test_damage_is_cut_though_there_is_more_of_it_before() -> None:
    """A reader met the later damage, and the time index can be made only from batches before the earlier damage."""
    disk, content = pairs()
    size = len(content) // PAIRS
    with disk.undisturbed():
        overwrite(disk, FIRST + ".timeindex", 0, b"\xff" * 24)
    for batch in (3, 9):
        disk.flip_bit(FIRST + ".log", batch * size + HEADER_BYTES)
    log = sim_log(disk, clean=True, segment_bytes=SEGMENT_BYTES)
    with pytest.raises(CorruptMessage):
        log.read(16, 1 << 20, end_offset=log.log_end_offset, cached=False)
    log.truncate_damage()
    check_cut(log, 6, content)
    assert log.damage is not None and log.damage.offset == 6
