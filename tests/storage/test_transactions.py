"""Claims about `.txnindex` files: what was aborted stays so, and only that, whatever a crash leaves of the files."""

from __future__ import annotations

import pytest

from raftlog.base.errors import CorruptMessage
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    build_batch,
    build_end_marker,
    new_record,
)
from raftlog.records.header import TRANSACTIONAL_BIT, end_offset_of, read_header, validate_produced
from raftlog.storage.log import Log
from raftlog.storage.producers import AbortedTransaction
from raftlog.storage.transaction_index import TransactionIndex
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS, append, read_all
from tests.storage.test_recovery import FOLDER, sim_log

PRODUCER = 9


def write(log: Log, sequence: int) -> None:
    """Append a batch of one record in the producer's transaction."""
    records = [new_record(None, b"v" * 50, timestamp=NOW_MS)]
    batch = build_batch(
        records, producer=ProducerIdAndSequence(PRODUCER, 0, sequence), attributes=TRANSACTIONAL_BIT
    )
    log.append_as_leader(validate_produced(batch, 1 << 20), batch, leader_epoch=0, now_ms=NOW_MS)


def end(log: Log, *, commit: bool) -> None:
    """Append the marker that ends it."""
    marker = build_end_marker(PRODUCER, 0, marker=EndTransactionMarker(commit, 0), now_ms=NOW_MS)
    log.append_as_leader(read_header(marker), marker, leader_epoch=0, now_ms=NOW_MS)


def aborted(log: Log) -> list[tuple[int, int]]:
    """Return all that the log lists as aborted."""
    return log.transaction_index.between(0, log.log_end_offset)


def test_an_aborted_transaction_is_listed_after_a_power_loss_that_spared_the_producers_snapshot() -> None:
    """Replay begins at the snapshot, so that whatever marker lies before it must be in the index by then."""
    for seed in range(40):
        disk = SimDisk(seed)
        log = sim_log(disk)
        write(log, 0)
        end(log, commit=False)
        log.on_high_watermark_updated(log.log_end_offset)
        log.flush()
        point = log.checkpoint()
        disk.crash()
        disk.power_up()
        assert aborted(sim_log(disk, recovery_point=point)) == [(PRODUCER, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_whose_marker_may_yet_be_cut_off_is_undecided_after_a_restart_too(clean: bool) -> None:
    """Compaction took its records for committed, and removed what they might not replace in the end (KIP-98)."""
    disk = SimDisk(1)
    log = sim_log(disk)
    append(log, b"sound")
    write(log, 0)
    end(log, commit=True)
    log.on_high_watermark_updated(2)
    log.flush()
    point = log.checkpoint()
    log.close(clean=clean)
    again = sim_log(disk, recovery_point=point, clean=clean)
    again.on_high_watermark_updated(2)
    assert again.first_unstable_offset == 1
    again.on_high_watermark_updated(3)
    assert again.first_unstable_offset is None


def test_the_index_forgets_an_abort_whose_marker_was_truncated() -> None:
    """Else a transaction that other records at the same offsets belong to would be skipped after a restart."""
    disk = SimDisk(1)
    log = sim_log(disk)
    append(log, b"sound")
    write(log, 0)
    end(log, commit=False)
    log.checkpoint()
    log.truncate_to(1)
    write(log, 0)
    end(log, commit=True)
    log.flush()
    disk.release()
    assert aborted(sim_log(disk)) == []


@pytest.mark.parametrize("restarted", [False, True], ids=["as it grew", "read from a snapshot"])
def test_a_committed_marker_that_rot_cuts_off_leaves_its_transaction_open(restarted: bool) -> None:
    """The leader sends it again: then what was aborted is listed again, rather than shown to all readers."""
    disk = SimDisk(1)
    log = sim_log(disk, segment_bytes=1 << 20)
    append(log, b"sound")
    write(log, 0)
    size = log.size_bytes
    end(log, commit=False)
    content = read_all(log)
    log.on_high_watermark_updated(log.log_end_offset)
    log.flush()
    point = log.checkpoint()
    if restarted:
        log.close(clean=True)
        log = sim_log(disk, recovery_point=point, clean=True, segment_bytes=1 << 20)
    disk.flip_bit(f"{FOLDER}/{0:020d}.log", size + 60)
    with pytest.raises(CorruptMessage):
        log.read(2, 1 << 20, end_offset=3, checked=True)
    log.truncate_damage()
    assert (log.log_end_offset, log.first_unstable_offset, aborted(log)) == (2, 1, [])
    log.append_as_follower(content[size:], now_ms=NOW_MS)
    assert (log.log_end_offset, aborted(log)) == (3, [(PRODUCER, 1)])


def test_a_cut_through_a_transaction_whose_marker_was_committed_leaves_it_open() -> None:
    """The batches before the cut are remembered, but that their transaction is open again is only in the log."""
    log = sim_log(SimDisk(1), segment_bytes=1 << 20)
    append(log, b"sound")
    for sequence in range(2):
        write(log, sequence)
    end(log, commit=False)
    log.on_high_watermark_updated(log.log_end_offset)
    assert log.first_unstable_offset is None
    log.truncate_to(2, committed=True)
    assert (log.log_end_offset, log.first_unstable_offset, aborted(log)) == (2, 1, [])


def test_the_index_forgets_an_abort_whose_marker_was_lost_with_a_torn_tail() -> None:
    """Recovery cuts the tail, and with it what the index says of it, before the log grows there again."""
    disk = SimDisk(1)
    log = sim_log(disk)
    append(log, b"sound")
    log.flush()
    size = log.size_bytes
    write(log, 0)
    end(log, commit=False)
    log.checkpoint()
    disk.release()
    disk.open(f"{FOLDER}/{0:020d}.log").truncate(size)
    again = sim_log(disk)
    write(again, 0)
    end(again, commit=True)
    again.flush()
    disk.release()
    assert aborted(sim_log(disk)) == []


def test_a_read_returns_the_aborted_transactions_in_its_range_and_no_more() -> None:
    """Else each answer to a reader at the start of a log carries all that ever was aborted in it."""
    log = sim_log(SimDisk(1))
    for sequence in range(50):
        write(log, sequence)
        end(log, commit=False)
    reader = log.transaction_index.since(0)
    for start in (0, 1, 40, 97):
        records = log.read(start, 400, end_offset=log.log_end_offset)
        assert records is not None
        last = end_offset_of(records)
        expected = [(PRODUCER, first) for first in range(0, 100, 2) if first < last and first + 1 >= start]
        assert log.transaction_index.in_batches(start, records) == expected
        assert len(expected) <= 4
    first = log.read(0, 400, end_offset=100)
    assert first is not None
    listed = log.transaction_index.in_batches(0, first)
    log.transaction_index.cleaned(0, 100)  # while a cold read is under way
    assert log.transaction_index.in_batches(0, first) == []
    assert reader.in_batches(0, first) == listed != []
    assert log.transaction_index.in_batches(0, b"") == []


class Touched(AbortedTransaction):
    """Counts reads."""

    looks = 0

    @property
    def first_offset(self) -> int:  # type: ignore[override]
        type(self).looks += 1
        return self[1]


def test_looking_for_aborted_transactions_ends_where_all_that_follow_began_later() -> None:
    """The cost of a fetch must not grow with all that was aborted up to the log's end."""
    index = TransactionIndex()
    for number in range(1000):
        index.add(Touched(number, 10 * number, 10 * number + 9, 10 * number + 10))
    assert index.between(20, 45) == [(2, 20), (3, 30), (4, 40)]
    assert Touched.looks < 10
