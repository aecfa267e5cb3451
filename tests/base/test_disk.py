"""Claims about the disk of the operating system: errors name their paths, and say whether a sync was begun."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftlog.base.disk import RealDisk, SyncNotBegun, half_changed, write_file
from raftlog.storage.files import PooledDisk
from tests.kit.errors import raises_errno


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open no further file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.open(os.devnull, os.O_RDONLY), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_write_to_a_full_disk_names_the_file(tmp_path: Path) -> None:
    """A node that cannot start says which folder has no room."""
    os.symlink("/dev/full", tmp_path / "segment.log")
    with raises_errno(errno.ENOSPC, tmp_path / "segment.log"):
        RealDisk().open(f"{tmp_path}/segment.log").pwritev([b"a"], 0)


def test_folder_that_cannot_be_opened_was_not_synced(tmp_path: Path) -> None:
    """EMFILE: all data is still there, so the caller may try again."""
    with no_descriptor_left(), pytest.raises(SyncNotBegun) as caught:
        RealDisk().sync_dir(str(tmp_path))
    assert (caught.value.errno, caught.value.filename) == (errno.EMFILE, str(tmp_path))
    with pytest.raises(FileNotFoundError):
        RealDisk().sync_dir(f"{tmp_path}/missing")


def test_pool_gives_up_descriptors_where_the_system_has_none_left(tmp_path: Path) -> None:
    """Clients have taken the rest: files that were not used lately open again when they are."""
    pool = PooledDisk(RealDisk(), limit=100)
    files = [pool.open(f"{tmp_path}/{number}", create=True) for number in range(20)]
    with no_descriptor_left():
        more = pool.open(f"{tmp_path}/more", create=True)
        assert more.pwritev([b"written"], 0) == 7
        more.sync()
        for each in files:
            each.sync()


def test_file_that_its_pool_cannot_open_was_not_synced(tmp_path: Path) -> None:
    """Its descriptor had gone to another file, which is in use."""
    pool = PooledDisk(RealDisk(), limit=1)
    file = pool.open(f"{tmp_path}/a", create=True)
    other = pool.open(f"{tmp_path}/b", create=True)
    pool._open.clear()
    with no_descriptor_left(), pytest.raises(SyncNotBegun):
        file.sync()
    other.close()


def test_change_that_is_stopped_half_way_counts_as_failed() -> None:
    """It cannot be tried again; what the disk itself said stays as it is."""
    with (
        pytest.raises(OSError) as caught,
        half_changed("/data/t-0"),
    ):
        raise OSError(errno.EMFILE, "Too many open files")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "/data/t-0")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.EMFILE
    with pytest.raises(OSError) as caught, half_changed("/data/t-0"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC


def test_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """A report that root writes to /dev/null leaves the device there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(pipe, "told")
        assert os.read(reader, 100) == b"told"
        assert pipe.is_fifo()
        assert [*tmp_path.iterdir()] == [pipe]
    finally:
        os.close(reader)
