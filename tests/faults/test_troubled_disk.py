"""A troubled disk is slow, full or failing as long as the trouble lasts, and well otherwise."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from raftlog.faults.forgetful_disk import ForgetfulDisk
from raftlog.faults.power_cut import cut_power
from raftlog.faults.troubled_disk import DiskTrouble, TroubledDisk
from tests.kit.waits import PATIENCE_S


@pytest.fixture
def disk(data: str) -> TroubledDisk:
    return TroubledDisk(ForgetfulDisk([data]))


def test_a_full_disk_takes_only_what_needs_no_room(disk: TroubledDisk, data: str) -> None:
    """ENOSPC for growth and no free byte; what is there can be written over, and new names fit."""
    disk.write_file(f"{data}/a", b"12345678")
    file = disk.open(f"{data}/a")
    disk.trouble = DiskTrouble(full=True)
    assert disk.free_bytes(data)[1] == 0
    assert file.pwritev([b"over"], 0) == 4
    for write in (lambda: file.pwritev([b"grow"], 6), lambda: disk.write_file(f"{data}/b", b"new")):
        with pytest.raises(OSError) as caught:
            write()
        assert caught.value.errno == errno.ENOSPC
    disk.trouble = DiskTrouble()
    assert disk.free_bytes(data)[1] > 0
    assert file.pwritev([b"grow"], 6) == 4
    assert file.pread(99, 0) == b"over56grow"


@pytest.mark.parametrize("operation", ["read", "write", "sync"])
def test_a_failing_disk_fails_operations_of_one_kind(disk: TroubledDisk, data: str, operation: str) -> None:
    """EIO for those; the others work."""
    disk.write_file(f"{data}/a", b"content")
    file = disk.open(f"{data}/a")
    calls: dict[str, list[Callable[[], object]]] = {
        "read": [
            lambda: file.pread(1, 0),
            lambda: file.pread_cached(1, 0),
            lambda: disk.read_file(f"{data}/a"),
        ],
        "write": [lambda: file.pwritev([b"x"], 0), lambda: file.truncate(3)],
        "sync": [file.sync, lambda: disk.sync_dir(data)],
    }
    disk.trouble = DiskTrouble(failing=operation)
    for call in calls.pop(operation):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EIO
    for others in calls.values():
        for call in others:
            call()


def test_a_sync_that_failed_loses_its_data_though_the_disk_is_well_again(
    disk: TroubledDisk, data: str
) -> None:
    """The kernel took the pages for clean: the next sync does not write them (fsyncgate)."""
    disk.write_file(f"{data}/a", b"kept")
    file = disk.open(f"{data}/a")
    file.pwritev([b"doomed"], 4)
    disk.trouble = DiskTrouble(failing="sync")
    with pytest.raises(OSError):
        file.sync()
    disk.trouble = DiskTrouble()
    file.sync()
    cut_power([data], None)
    assert Path(data, "a").read_bytes() == b"kept"


def test_a_slow_sync_ends_when_the_disk_is_healed(disk: TroubledDisk, data: str) -> None:
    """It takes the set time, or less if the trouble ends before."""
    disk.write_file(f"{data}/a", b"a")
    file = disk.open(f"{data}/a")
    disk.trouble = DiskTrouble(slow_s=0.05)
    began = time.monotonic()
    file.sync()
    assert time.monotonic() - began >= 0.05
    disk.trouble = DiskTrouble(slow_s=60)
    waiting = Thread(target=file.sync)
    waiting.start()
    disk.trouble = DiskTrouble()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
