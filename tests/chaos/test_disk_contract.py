"""All disks keep one contract, and SimDisk forgets exactly what it lets a disk forget."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.disk import Disk, RealDisk
from raftlog.faults.forgetful_disk import ForgetfulDisk
from raftlog.faults.troubled_disk import TroubledDisk
from raftlog_chaos.simulator import SimDisk


@pytest.fixture(params=["real", "simulated", "forgetful", "troubled"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    folder = tmp_path / "data"
    folder.mkdir()
    if request.param == "real":
        yield RealDisk(), str(folder)
    elif request.param == "simulated":
        yield SimDisk(), "/data"
    else:
        forgetful = ForgetfulDisk([str(folder)])
        yield forgetful if request.param == "forgetful" else TroubledDisk(forgetful), str(folder)


def test_a_file_reads_back_what_was_written_where(place: tuple[Disk, str]) -> None:
    """pwritev writes all buffers in order at a position; pread is short only at the end (File)."""
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    assert file.pwritev([b"hello ", memoryview(b"wide"), bytearray(b" world")], 3) == 16
    assert file.size() == 19
    assert file.pread(100, 0) == b"\0\0\0hello wide world"
    assert file.pread(4, 9) == b"wide"
    assert file.pread(4, 19) == b""
    cached = file.pread_cached(4, 9)
    assert cached is None or cached == b"wide"
    file.truncate(9)
    assert (file.size(), file.pread(100, 3)) == (9, b"hello ")
    file.truncate(11)
    assert file.pread(100, 8) == b" \0\0"
    file.sync()
    file.close()


@pytest.mark.parametrize("kind", ["real", "forgetful"])
def test_files_and_folders_are_their_owners_alone(kind: str, tmp_path: Path) -> None:
    """Records and credentials are in them, and the umask of a service is often 022."""
    disk: Disk = RealDisk() if kind == "real" else ForgetfulDisk([str(tmp_path)])
    before = os.umask(0o022)
    try:
        disk.mkdir(f"{tmp_path}/data")
        disk.open(f"{tmp_path}/data/log", create=True).close()
        disk.write_file(f"{tmp_path}/data/checkpoint", b"x")
    finally:
        os.umask(before)
    found = {
        each: stat.S_IMODE((tmp_path / "data" / each).stat().st_mode) for each in ("", "log", "checkpoint")
    }
    assert found == {"": 0o700, "log": 0o600, "checkpoint": 0o600}


def test_many_small_buffers_are_written_whole(place: tuple[Disk, str]) -> None:
    """More buffers than one system call takes still arrive, in order (IOV_MAX)."""
    disk, root = place
    buffers = [index.to_bytes(2, "big") for index in range(3_000)]
    with_file = disk.open(f"{root}/a", create=True)
    assert with_file.pwritev(buffers, 0) == 6_000
    assert disk.read_file(f"{root}/a") == b"".join(buffers)


def test_names_follow_create_rename_remove(place: tuple[Disk, str]) -> None:
    """Folders list sorted names; rename replaces; open files outlive their names."""
    disk, root = place
    disk.mkdir(f"{root}/x/y")
    disk.mkdir(f"{root}/x/y")
    disk.open(f"{root}/x/b", create=True).pwritev([b"b"], 0)
    held = disk.open(f"{root}/x/a", create=True)
    held.pwritev([b"a"], 0)
    assert disk.listdir(f"{root}/x") == ["a", "b", "y"]
    disk.rename(f"{root}/x/b", f"{root}/x/a")
    assert disk.listdir(f"{root}/x") == ["a", "y"]
    assert (disk.read_file(f"{root}/x/a"), held.pread(1, 0)) == (b"b", b"a")
    disk.rename(f"{root}/x", f"{root}/z")
    disk.remove(f"{root}/z/a")
    assert not disk.exists(f"{root}/z/a")
    disk.sync_dir(f"{root}/z")
    disk.rmtree(f"{root}/z")
    assert (disk.exists(f"{root}/z"), disk.exists(root)) == (False, True)


def test_a_name_has_255_bytes_at_most(place: tuple[Disk, str]) -> None:
    """As on ext4 and XFS: a longer name is refused in every call that creates it, without effect."""
    disk, root = place
    longest = "n" * 255
    disk.mkdir(f"{root}/{longest}")
    for refused in (
        lambda: disk.mkdir(f"{root}/{longest}n"),
        lambda: disk.open(f"{root}/{longest}n", create=True),
        lambda: disk.rename(f"{root}/{longest}", f"{root}/{longest}n"),
    ):
        with pytest.raises(OSError) as raised:
            refused()
        assert raised.value.errno == errno.ENAMETOOLONG
    assert disk.listdir(root) == [longest]


def test_what_is_missing_or_of_the_wrong_kind_raises_oserror(place: tuple[Disk, str]) -> None:
    """The errors are the operating system's."""
    disk, root = place
    for call in (disk.open, disk.listdir, disk.remove, disk.rmtree, disk.read_file, disk.sync_dir):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/none/a", create=True)
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/none", f"{root}/other")
    disk.mkdir(f"{root}/folder")
    with pytest.raises(IsADirectoryError):
        disk.open(f"{root}/folder")
    disk.open(f"{root}/file", create=True)
    with pytest.raises(NotADirectoryError):
        disk.listdir(f"{root}/file")
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{root}/file")


def test_write_file_replaces_and_leaves_no_temporary(place: tuple[Disk, str]) -> None:
    """write_file is atomic: afterwards there is the new content under the name and no other file."""
    disk, root = place
    disk.write_file(f"{root}/a", b"long old content")
    disk.write_file(f"{root}/a", b"new", sync=False)
    assert (disk.read_file(f"{root}/a"), disk.listdir(root)) == (b"new", ["a"])
    total, usable = disk.free_bytes(root)
    assert 0 < usable <= total


def test_a_crash_keeps_what_was_synced_and_dooms_open_files() -> None:
    """Bytes are durable once File.sync returned, names once sync_dir returned (ordering law of base.disk)."""
    for seed in range(50):
        disk = SimDisk(seed)
        file = disk.open("/data/a", create=True)
        file.pwritev([b"synced"], 0)
        file.sync()
        disk.sync_dir("/data")
        file.pwritev([b"not"], 6)
        disk.write_file("/data/b", b"whole")
        disk.crash()
        with pytest.raises(OSError) as caught:
            file.pread(1, 0)
        assert caught.value.errno == errno.EBADF
        assert disk.read_file("/data/a")[:6] == b"synced"
        assert disk.read_file("/data/b") == b"whole"


def test_a_crash_can_lose_tear_and_reorder_what_was_not_synced() -> None:
    """Every outcome that POSIX allows happens: gone, torn, a later sector without an earlier sector."""
    outcomes = set()
    names = set()
    for seed in range(200):
        disk = SimDisk(seed)
        file = disk.open("/data/a", create=True)
        disk.sync_dir("/data")
        file.pwritev([b"1" * 512 + b"2" * 512], 0)
        disk.open("/data/new", create=True)
        disk.crash()
        content = disk.read_file("/data/a")
        outcomes.add((content[:512].rstrip(b"\0")[:1], content[512:][:1], len(content) % 512 != 0))
        names.add(disk.exists("/data/new"))
    assert names == {True, False}
    assert (b"", b"2", False) in outcomes, "the second sector alone"
    assert (b"", b"", False) in outcomes, "nothing"
    assert (b"1", b"2", False) in outcomes, "everything"
    assert any(torn for _, _, torn in outcomes)


def test_a_crash_keeps_any_of_the_unsynced_changes_of_names() -> None:
    """POSIX promises no order: a later change may stay without an earlier. A rename is whole."""
    outcomes = set()
    for seed in range(300):
        disk = SimDisk(seed)
        for name in ("a", "b", "c"):
            disk.write_file(f"/data/{name}", name.encode())
        disk.rename("/data/a", "/data/renamed")
        disk.remove("/data/b")
        disk.rename("/data/renamed", "/data/again")
        disk.open("/data/new", create=True)
        disk.crash()
        names = disk.listdir("/data")
        assert len([name for name in names if name in ("a", "renamed", "again")]) == 1
        assert "c" in names
        outcomes.add(tuple(names))
    assert len(outcomes) == 3 * 2 * 2


def test_a_full_disk_keeps_what_fits_and_says_enospc() -> None:
    """A write past the capacity is cut there, as on a real disk, and raises ENOSPC."""
    disk = SimDisk(capacity_bytes=10)
    file = disk.open("/data/a", create=True)
    file.pwritev([b"12345678"], 0)
    with pytest.raises(OSError) as caught:
        file.pwritev([b"abcd"], 8)
    assert (caught.value.errno, file.pread(99, 0)) == (errno.ENOSPC, b"12345678ab")


def test_a_failed_sync_loses_the_pages_for_good() -> None:
    """After EIO from fsync the pages count as clean: a second sync succeeds without effect (fsyncgate)."""
    disk = SimDisk(3)
    file = disk.open("/data/a", create=True)
    disk.sync_dir("/data")
    file.pwritev([b"doomed"], 0)
    disk.fail("sync", under="/data/a")
    with pytest.raises(OSError):
        file.sync()
    disk.mend()
    file.sync()
    assert file.pread(6, 0) == b"doomed"
    disk.crash()
    assert disk.read_file("/data/a") == b""


def test_rot_survives_a_restart() -> None:
    """flip_bit changes the platter, not only the cache."""
    disk = SimDisk()
    disk.write_file("/data/a", b"\x00")
    disk.flip_bit("/data/a", 0, 3)
    disk.crash()
    assert disk.read_file("/data/a") == b"\x08"


@given(
    st.lists(st.tuples(st.integers(0, 2_000), st.binary(max_size=700)), max_size=12), st.integers(0, 1 << 30)
)
def test_a_synced_file_survives_byte_for_byte(writes: list[tuple[int, bytes]], seed: int) -> None:
    """Bytes written before a sync are there after any crash; unsynced writes touch only their own range."""
    disk = SimDisk(seed)
    file = disk.open("/data/a", create=True)
    disk.sync_dir("/data")
    for position, data in writes:
        file.pwritev([data], position)
    file.sync()
    before = file.pread(10_000, 0)
    file.pwritev([b"x" * 100], 4_000)
    disk.crash()
    assert disk.read_file("/data/a")[: len(before)] == before
