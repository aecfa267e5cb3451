"""Files opened on demand under a limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.disk import RealDisk
from raftlog.storage.files import PooledDisk, PooledFile
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.examples import examples


@settings(max_examples=examples(50), deadline=None)
@given(uses=st.lists(st.integers(0, 9), max_size=60), limit=st.integers(1, 5))
def test_more_files_than_descriptors_keep_their_contents(uses: list[int], limit: int) -> None:
    """Every file reads back what was written to it, and never more than the limit are open."""
    disk = PooledDisk(SimDisk(0), limit=limit)
    files = [disk.open(f"/data/{number}", create=True) for number in range(10)]
    sizes = [0] * 10
    for number in uses:
        files[number].pwritev([b"%d" % number] * 3, sizes[number])
        sizes[number] += 3
        assert disk.open_files <= limit
    for number, file in enumerate(files):
        assert file.pread(1000, 0) == b"%d" % number * sizes[number]
        assert file.pread_cached(2, 0) == b"%d" % number * min(sizes[number], 2)
        assert file.size() == sizes[number]


def test_a_file_in_use_gets_a_second_chance() -> None:
    """The descriptor of a file used since its last turn is kept before that of an unused file."""
    disk = PooledDisk(SimDisk(0), limit=2)
    hot, cold = disk.open("/data/hot", create=True), disk.open("/data/cold", create=True)
    for number in range(5):
        hot.pwritev([b"x"], number)
        disk.open(f"/data/{number}", create=True)
    assert hot._lease is not None and cold._lease is None


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Evicted and closed files give their descriptors back to the system."""
    opened: list[PooledFile] = []
    disk = PooledDisk(RealDisk(), limit=4)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        opened.append(disk.open(f"{tmp_path}/{number}", create=True))
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 4
    for file in opened:
        file.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_closed_file_is_gone_for_late_syncs_and_readers_only() -> None:
    """A flusher or a cold reader may still hold a dropped segment, on its thread; any other use is a bug."""
    disk = PooledDisk(SimDisk(0), limit=2)
    file = disk.open("/data/a", create=True)
    file.close()
    file.sync()
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)
    with pytest.raises(AssertionError):
        file.pwritev([b"x"], 0)


def test_a_missing_file_is_not_found() -> None:
    """Opening without `create` raises FileNotFoundError, as every disk does."""
    with pytest.raises(FileNotFoundError):
        PooledDisk(SimDisk(0), limit=2).open("/data/none")
