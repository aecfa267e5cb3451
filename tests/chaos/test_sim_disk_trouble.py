"""A simulated disk in trouble: it fails where and as often as requested, tears, and dies during operations."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from raftlog_chaos.simulator import SimDisk
from raftlog_chaos.simulator.disk import Extent


def outcome(call: Callable[[], object]) -> int:
    """Return the errno of a call, 0 if it went well."""
    try:
        call()
    except OSError as error:
        return error.errno or -1
    return 0


def two_files() -> SimDisk:
    disk = SimDisk(1)
    for path in ("/data/a/x", "/data/b/x"):
        disk.mkdir(path.rpartition("/")[0])
        disk.write_file(path, b"whole")
    disk.sync_dir("/data")
    return disk


def test_a_disk_may_fail_in_one_folder_only() -> None:
    """A bad sector is somewhere; a name that only begins alike is somewhere else."""
    disk = two_files()
    disk.mkdir("/data/ab")
    disk.fail("write", extent=Extent(under="/data/a"))
    assert outcome(lambda: disk.write_file("/data/a/x", b"new")) == errno.EIO
    assert outcome(lambda: disk.write_file("/data/b/x", b"new")) == 0
    assert outcome(lambda: disk.write_file("/data/ab/x", b"new")) == 0
    assert disk.read_file("/data/a/x") == b"whole"


def test_a_disk_may_fail_a_few_times_and_be_well_again() -> None:
    """And `fails` is right before, between and afterwards."""
    disk = two_files()
    assert not disk.fails
    disk.fail("read", extent=Extent(times=2))
    told = []
    for _ in range(3):
        told.append((disk.fails, outcome(lambda: disk.read_file("/data/a/x"))))
    assert told == [(True, errno.EIO), (True, errno.EIO), (False, 0)]
    assert disk.effects["read failed"] == 2


def test_a_disk_may_fail_now_and_then() -> None:
    """About the requested share of operations; each failure is counted."""
    disk = two_files()
    disk.fail("sync", extent=Extent(rate=0.2))
    file = disk.open("/data/a/x")
    failed = sum(outcome(file.sync) == errno.EIO for _ in range(500))
    assert 60 < failed < 140
    assert disk.effects["sync failed"] == failed


def test_a_torn_write_leaves_a_part_of_its_bytes() -> None:
    """Less than all of them, from the front, sometimes none; what was there before and behind stays."""
    left = set()
    for seed in range(40):
        disk = SimDisk(seed)
        disk.write_file("/data/x", b"......")
        disk.fail("write", extent=Extent(torn=True))
        file = disk.open("/data/x")
        assert outcome(lambda file=file: file.pwritev([b"12", b"34"], 1)) == errno.EIO
        left.add(disk.read_file("/data/x"))
    assert left == {b"......", b".1....", b".12...", b".123.."}


@pytest.mark.parametrize("changes", range(8))
def test_power_may_go_between_any_two_steps_of_one_call(changes: int) -> None:
    """Replacing a file is write, sync, rename, sync of the folder: whenever the power goes it is the old or the new."""
    seen = set()
    for seed in range(30):
        disk = SimDisk(seed)
        disk.write_file("/data/x", b"old")
        disk.set_trap(changes, disk.crash)
        ended = outcome(lambda disk=disk: disk.write_file("/data/x", b"new"))
        assert ended == (errno.EIO if disk.effects["power lost at work"] else 0)
        disk.power_up()
        seen.add(disk.read_file("/data/x"))
    assert seen <= {b"old", b"new"}
    assert b"old" in seen or changes >= 4
    assert b"new" in seen or changes < 4


def test_nothing_can_be_done_between_the_power_loss_and_the_next_start() -> None:
    """The rest of the interrupted callback has no effect."""
    disk = two_files()
    disk.set_trap(0, disk.crash)
    assert outcome(lambda: disk.remove("/data/a/x")) == errno.EIO
    assert outcome(lambda: disk.remove("/data/b/x")) == errno.EIO
    assert outcome(lambda: disk.read_file("/data/b/x")) == errno.EIO
    with disk.undisturbed():
        assert disk.read_file("/data/a/x") == b"whole"
    disk.power_up()
    assert disk.read_file("/data/b/x") == b"whole"


def test_the_world_may_act_on_a_disk_that_fails() -> None:
    """A wipe of a disk from outside meets none of its trouble, and leaves it as it was."""
    disk = two_files()
    disk.fail("any")
    disk.fill()
    disk.set_trap(0, disk.crash)
    with disk.undisturbed():
        disk.write_file("/data/c", b"more than there was room for")
    assert disk.fails and disk.is_full
    assert not disk.effects["power lost at work"]
    assert outcome(lambda: disk.read_file("/data/c")) == errno.EIO


def test_a_sync_that_lies_makes_nothing_durable() -> None:
    """And a sync of another file does."""
    for seed in range(20):
        disk = two_files()
        disk._chance.seed(seed)
        disk.lies = lambda path: path == "/data/a/x"
        for path in ("/data/a/x", "/data/b/x"):
            file = disk.open(path)
            file.pwritev([b"W"], 0)
            file.sync()
        disk.crash()
        assert disk.read_file("/data/b/x") == b"Whole"
        if disk.read_file("/data/a/x") == b"whole":
            return
    raise AssertionError("the lie was the truth in 20 power losses")


def test_rot_is_seen_once_the_page_cache_lets_go() -> None:
    """By a read that has to wait for the device, or after a power loss; what is written anew is sound again."""
    disk = two_files()
    assert disk.rot("/data/a/x", 1, bit=1) and disk.rot("/data/b/x", 1, bit=1)
    assert not disk.rot("/data/b/x", 100)
    a, b = disk.open("/data/a/x"), disk.open("/data/b/x")
    assert a.pread_cached(5, 0) == b.pread_cached(5, 0) == b"whole"
    disk.cold_read_rate = 1.0
    assert a.pread_cached(5, 0) is None and a.pread(5, 0) == b"wjole"
    b.pwritev([b"WH"], 0)
    assert b.pread_cached(5, 0) is None and b.pread(5, 0) == b"WHole"
    b.sync()
    assert disk.rot("/data/b/x", 0, bit=1)
    disk.crash()
    assert disk.read_file("/data/b/x") == b"UHole"


def _busy(seed: int) -> SimDisk:
    """Return a disk with writes and names that were synced in part."""
    disk = SimDisk(seed)
    for number in range(6):
        disk.write_file(f"/data/{number}", b"%d" % number * 900, sync=number % 2 == 0)
    disk.rename("/data/0", "/data/6")
    disk.rename("/data/6", "/data/7")
    disk.open("/data/2").pwritev([b"new"], 100)
    disk.remove("/data/4")
    return disk


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_is_what_a_power_loss_would_leave_and_the_disk_goes_on(seed: int) -> None:
    """A copy with files of its own, in which a file that was renamed is still one file."""
    disk, lost = _busy(seed), _busy(seed)
    before = {name: disk.read_file(f"/data/{name}") for name in disk.listdir("/data")}
    again = SimDisk()
    again.restore(disk.snapshot(), "/data")
    lost.crash()
    assert again.listdir("/data") == lost.listdir("/data")
    for name in again.listdir("/data"):
        assert again.read_file(f"/data/{name}") == lost.read_file(f"/data/{name}")
        again.open(f"/data/{name}").pwritev([b"changed"], 0)
    assert {name: disk.read_file(f"/data/{name}") for name in disk.listdir("/data")} == before
