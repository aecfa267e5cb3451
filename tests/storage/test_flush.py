"""The flush protocol: what counts as flushed, and what a truncation takes back."""

from __future__ import annotations

import threading

from raftlog.base.config import TopicConfig
from raftlog.base.disk import RealDisk
from raftlog.storage.files import PooledDisk
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk
from tests.storage.batches import NOW_MS, append, read_all
from tests.storage.conftest import OpenLog


def sim_log(disk: SimDisk) -> Log:
    """Open the log of /data/t-0 on a simulated disk after a crash."""
    config = TopicConfig(segment_bytes=300)
    return Log.open(
        disk, "/data/t-0", config=config, recovery_point=0, clean=False, topic_id=None, now_ms=NOW_MS
    )


def test_only_what_was_written_before_the_round_counts(open_log: OpenLog) -> None:
    """A batch appended while a sync runs is not counted by it; without new batches there is no sync."""
    log = open_log()
    append(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None and log.flushed_end_offset == 0
    append(log, b"b")
    ticket.run()
    log.complete_flush(ticket)
    assert log.flushed_end_offset == 1
    log.flush()
    assert log.flushed_end_offset == 2
    assert log.begin_flush() is None


def test_a_new_segments_folder_is_synced_before_its_offsets_count() -> None:
    """After a roll one round syncs both files and then their folder: a power loss right after it loses no record."""
    disk = SimDisk(5)
    log = sim_log(disk)
    log.flush()
    for _ in range(4):
        append(log, b"x" * 100)
    assert len(log.segments) > 1
    ticket = log.begin_flush()
    assert ticket is not None and ticket.directories == ["/data/t-0"]
    assert len(ticket.files) == len(log.segments)
    ticket.run()
    content = read_all(log)
    disk.crash()
    assert read_all(sim_log(disk)) == content


def test_the_first_round_syncs_the_partitions_own_name() -> None:
    """A new partition's folder is a name in the log directory: that is synced too."""
    disk = SimDisk(5)
    log = sim_log(disk)
    append(log, b"x")
    ticket = log.begin_flush()
    assert ticket is not None and ticket.directories == ["/data", "/data/t-0"]


def test_a_truncation_during_the_sync_takes_its_offsets_back(open_log: OpenLog) -> None:
    """Bytes that were cut, and perhaps written anew, while the sync ran are not counted as flushed."""
    log = open_log()
    for number in range(4):
        append(log, b"%d" % number)
    ticket = log.begin_flush()
    assert ticket is not None
    log.truncate_to(2)
    append(log, b"new", leader_epoch=1)
    append(log, b"new", leader_epoch=1)
    ticket.run()
    log.complete_flush(ticket)
    assert (log.flushed_end_offset, log.log_end_offset) == (2, 4)
    log.flush()
    assert log.flushed_end_offset == 4


def test_segments_dropped_during_the_sync_do_no_harm(open_log: OpenLog) -> None:
    """A ticket of segments that a truncation drops meanwhile still runs, and their files close after it."""
    log = open_log(segment_bytes=100)
    for number in range(4):
        append(log, b"%d" % number)
    ticket = log.begin_flush()
    assert ticket is not None and len(ticket.files) == 4
    log.truncate_fully_and_start_at(10)
    ticket.run()
    log.complete_flush(ticket)
    assert log.flushed_end_offset == 4
    append(log, b"x", leader_epoch=1)
    log.flush()
    assert log.flushed_end_offset == 11


def test_a_sync_on_another_thread_survives_the_files_eviction(open_log: OpenLog, tmp_path: object) -> None:
    """With a pool of one descriptor files lose theirs all the time: syncs on a thread still reach the right file."""
    disk = PooledDisk(RealDisk(), limit=1)
    config = TopicConfig(segment_bytes=200)
    logs = [
        Log.open(
            disk, f"{tmp_path}/t-{n}", config=config, recovery_point=0, clean=False, topic_id=None, now_ms=0
        )
        for n in range(3)
    ]
    for _ in range(20):
        for log in logs:
            append(log, b"x" * 50)
        tickets = [log.begin_flush() for log in logs]
        threads = [threading.Thread(target=ticket.run) for ticket in tickets if ticket is not None]
        for thread in threads:
            thread.start()
        for log in logs:
            append(log, b"y" * 50)
        for thread in threads:
            thread.join()
        for log, ticket in zip(logs, tickets, strict=True):
            assert ticket is not None
            log.complete_flush(ticket)
    assert [log.flushed_end_offset for log in logs] == [39] * 3
    assert all(read_all(log) == read_all(logs[0]) for log in logs)
