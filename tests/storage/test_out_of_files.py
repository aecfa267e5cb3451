"""A roll that finds no descriptor for a file: its producer sends the batch again, and each attempt gets further."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from errno import EMFILE

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.disk import Buffer, SyncNotBegun, opening_to_sync
from raftlog.base.errors import KafkaStorageError
from raftlog.records.header import read_header
from raftlog.storage.log import Log
from raftlog_chaos.simulator.disk import SimDisk, SimFile
from tests.storage.batches import NOW_MS, append, read_all

BATCHES = 30
ATTEMPTS = 8
"""More than files are opened for a roll."""


class ScarceDisk(SimDisk):
    """Finds no descriptor where `fails` says so of the number of an open; folders that are synced are opened too."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        super().__init__()
        self.opened = 0
        self._fails = fails

    def _open(self, path: str) -> None:
        self.opened += 1
        if self._fails(self.opened):
            raise OSError(EMFILE, "Too many open files", path)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._open(path)
        return super().open(path, create=create)

    def write_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self._open(path)
        super().write_file(path, data, sync=sync)

    def sync_dir(self, path: str) -> None:
        with opening_to_sync():
            self._open(path)
        super().sync_dir(path)


def open_log(disk: SimDisk) -> Log:
    """Open a log that rolls after a few batches."""
    config = TopicConfig(segment_bytes=300, index_interval_bytes=50)
    return Log.open(
        disk, "/data/t-0", config=config, recovery_point=0, clean=False, topic_id=None, now_ms=NOW_MS
    )


def send(log: Log, sequence: int) -> bool:
    """Send one batch of an idempotent producer; False if the disk refused it."""
    with suppress(OSError):
        append(log, b"%d" % sequence, producer=(7, 0, sequence))
        return True
    return False


def assert_each_once(log: Log) -> None:
    """All batches are there, in their order."""
    content, position, found = read_all(log), 0, []
    while position < len(content):
        header = read_header(content, position)
        found.append(header.base_sequence)
        position += header.length
    assert found == list(range(BATCHES))


@pytest.mark.parametrize("phase", range(3))
def test_roll_gets_on_though_every_third_file_cannot_be_opened(phase: int) -> None:
    """An attempt does not reopen files that an earlier attempt wrote: the failing file would always be the same."""
    disk = ScarceDisk(lambda number: False)
    log = open_log(disk)
    disk._fails = lambda number: number % 3 == phase
    for sequence in range(BATCHES):
        assert any(send(log, sequence) for _ in range(ATTEMPTS)), f"batch {sequence} never gets in"
    assert len(log.segments) > 3
    assert_each_once(log)


@pytest.mark.parametrize("phase", range(3))
def test_flush_gets_on_though_every_third_file_cannot_be_opened(phase: int) -> None:
    """Two index files and the folder: an attempt does not reopen files that an earlier attempt synced."""
    disk = ScarceDisk(lambda number: False)
    log = open_log(disk)
    assert all(send(log, sequence) for sequence in range(BATCHES))
    ticket = log.begin_flush()
    assert ticket is not None
    assert len(ticket.paths) > 3
    disk._fails = lambda number: number % 3 == phase
    for _ in range(len(ticket.paths)):
        with suppress(SyncNotBegun):
            ticket.run()
            break
    else:
        raise AssertionError("it never ends")
    assert log.complete_flush(ticket) == log.log_end_offset


def test_producer_gets_on_after_any_one_file_could_not_be_opened() -> None:
    """The batch that was refused gets in when it comes again; those behind it wait for it, and are not out of order."""
    counted = ScarceDisk(lambda number: False)
    log = open_log(counted)
    first = counted.opened
    assert all(send(log, sequence) for sequence in range(BATCHES))
    refused = 0
    for failing in range(first + 1, counted.opened + 1):
        log = open_log(ScarceDisk(lambda number, failing=failing: number == failing))
        for sequence in range(BATCHES):
            if send(log, sequence):
                continue
            refused += 1
            with pytest.raises(KafkaStorageError, match=os.strerror(EMFILE)):
                append(log, b"behind it", producer=(7, 0, sequence + 1))
            assert send(log, sequence), f"after open {failing}"
        assert_each_once(log)
    assert refused == counted.opened - first > 3
