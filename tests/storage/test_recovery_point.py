"""The recovery point between two checkpoints: where it may be, and how little a start after a crash then reads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.disk import Buffer
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk, SimFile
from tests.storage.batches import NOW_MS, append

FOLDER = "/data/t-0"
VALUE = b"v" * 2000
PRODUCER = 9


def open_log(disk: SimDisk, *, recovery_point: int) -> Log:
    """Open the log of /data/t-0 as after a crash."""
    return Log.open(
        disk,
        FOLDER,
        config=TopicConfig(),
        recovery_point=recovery_point,
        clean=False,
        topic_id=None,
        now_ms=NOW_MS,
    )


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the bytes that are read from files of a simulated disk, and those written to them."""
    counts: Counter[str] = Counter()
    pread, pwritev = SimFile.pread, SimFile.pwritev

    def count_read(file: SimFile, size: int, position: int) -> bytes:
        read = pread(file, size, position)
        counts["read"] += len(read)
        return read

    def count_written(file: SimFile, buffers: Sequence[Buffer], position: int) -> int:
        counts["written"] += (written := pwritev(file, buffers, position))
        return written

    monkeypatch.setattr(SimFile, "pread", count_read)
    monkeypatch.setattr(SimFile, "pwritev", count_written)
    return counts


def write(log: Log, count: int, *, sequence: int = 0, leader_epoch: int = 0) -> None:
    for number in range(sequence, sequence + count):
        append(log, VALUE, leader_epoch=leader_epoch, producer=(PRODUCER, 0, number))
    log.flush()


@pytest.mark.parametrize("batches", [700, 2100])
def test_a_start_reads_and_rewrites_only_the_last_part_of_a_log(batches: int, traffic: Counter[str]) -> None:
    """The log has some MB. The last checkpoint was 200 kB ago, the last recovery point 20 kB ago."""
    disk = SimDisk(0)
    log = open_log(disk, recovery_point=0)
    write(log, batches)
    log.checkpoint()
    write(log, 90, sequence=batches)
    point = log.update_recovery_point()
    write(log, 10, sequence=batches + 90)
    assert point == batches + 90
    disk.release()
    traffic.clear()
    log = open_log(disk, recovery_point=point)
    assert (log.log_end_offset, log.damage) == (batches + 100, None)
    assert append(log, VALUE, producer=(PRODUCER, 0, batches + 99)).duplicate
    assert traffic["read"] < 900_000, (
        "the 200 kB for indexes, producers and their batches, and a little before"
    )
    assert 20_000 < traffic["written"] < 30_000


def test_it_never_passes_what_is_flushed() -> None:
    """What is written and not synced may be gone after a power cut."""
    log = open_log(SimDisk(0), recovery_point=0)
    write(log, 3)
    log.checkpoint()
    append(log, VALUE, producer=(PRODUCER, 0, 3))
    assert log.update_recovery_point() == 3
    ticket = log.begin_flush()
    assert ticket is not None and log.update_recovery_point() == 3
    ticket.run()
    assert log.update_recovery_point() == 3
    log.complete_flush(ticket)
    assert log.update_recovery_point() == 4


def test_it_stays_before_a_leader_epoch_that_the_checkpoint_of_epochs_lacks() -> None:
    """A start holds batches before it to that checkpoint, and would call those of the new epoch damaged."""
    disk = SimDisk(0)
    log = open_log(disk, recovery_point=0)
    write(log, 3)
    log.checkpoint()
    write(log, 3, sequence=3, leader_epoch=1)
    assert log.update_recovery_point() == 3
    disk.crash()
    log = open_log(disk, recovery_point=3)
    assert (log.log_end_offset, log.latest_epoch, log.damage) == (6, 1, None)
    log.flush()
    assert (log.update_recovery_point(), log.checkpoint()) == (3, 6)
    disk.crash()
    assert open_log(disk, recovery_point=6).damage is None


def test_it_stays_before_a_cut_off_epoch_that_the_checkpoint_of_epochs_still_has() -> None:
    """A follower may fetch batches of an older epoch where its own were cut off."""
    disk = SimDisk(0)
    log = open_log(disk, recovery_point=0)
    write(log, 3)
    write(log, 3, sequence=3, leader_epoch=2)
    log.checkpoint()
    log.truncate_to(3)
    write(log, 3, sequence=3, leader_epoch=1)
    assert log.update_recovery_point() == 3
    disk.crash()
    log = open_log(disk, recovery_point=6)
    assert (log.log_end_offset, log.latest_epoch, log.damage) == (6, 1, None)


def test_a_start_that_finds_the_epochs_as_they_were_saved_need_not_save_them() -> None:
    """Else the recovery point of each log would wait for a checkpoint after each start."""
    disk = SimDisk(0)
    log = open_log(disk, recovery_point=0)
    write(log, 3)
    write(log, 3, sequence=3, leader_epoch=1)
    log.checkpoint()
    disk.release()
    log = open_log(disk, recovery_point=2)
    log.flush()
    assert log.update_recovery_point() == 6


def test_a_truncated_log_is_saved_again_though_it_has_grown_as_long_as_before() -> None:
    """The snapshot of its producers went with the truncation."""
    log = open_log(SimDisk(0), recovery_point=0)
    write(log, 3)
    assert log.is_checkpoint_due and log.bytes_since_checkpoint
    log.checkpoint()
    assert not log.is_checkpoint_due and not log.bytes_since_checkpoint
    log.truncate_to(1)
    write(log, 2, sequence=1)
    assert log.is_checkpoint_due and log.bytes_since_checkpoint


@pytest.mark.parametrize("seed", range(5))
def test_a_start_recalls_the_last_five_batches_of_each_producer_of_the_last_megabyte(seed: int) -> None:
    """A few producers are busy, some write rarely, and some were last there long before."""
    chance, disk = random.Random(seed), SimDisk(seed)
    log = open_log(disk, recovery_point=0)
    sequences: Counter[int] = Counter()
    for number in range(900):
        producer = number if number < 20 else chance.choice((100, 101, 102, *range(103, 103 + 20 * seed)))
        append(log, bytes(chance.randrange(2000)), producer=(producer, 0, sequences[producer]))
        sequences[producer] += 1
    log.flush()
    point = log.checkpoint()
    disk.release()
    log = open_log(disk, recovery_point=point)
    for producer, count in sequences.items():
        for back in range(1, min(count, 5) + 1):
            assert append(log, VALUE, producer=(producer, 0, count - back)).duplicate, (producer, back)


@pytest.mark.parametrize("batches", [20, 400])
def test_a_start_asks_the_disk_a_few_times_for_a_log(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with 2,000 partitions has as many folders to look at, and most of them have not changed for long."""
    disk = SimDisk(0)
    log = open_log(disk, recovery_point=0)
    write(log, batches)
    log.checkpoint()
    point = log.update_recovery_point()
    disk.release()
    calls: Counter[str] = Counter()
    for name in ("open", "exists", "listdir", "read_file"):
        method = getattr(SimDisk, name)

        def count(disk: SimDisk, *given: Any, name: str = name, method: Any = method, **named: Any) -> Any:
            calls[name] += 1
            return method(disk, *given, **named)

        monkeypatch.setattr(SimDisk, name, count)
    log = open_log(disk, recovery_point=point)
    assert log.log_end_offset == point == batches
    assert calls == {"open": 8, "exists": 5, "listdir": 2, "read_file": 5}
