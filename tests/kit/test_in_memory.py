"""Claims about the folders of clusters in memory."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import in_memory
from tests.kit.in_memory import has_room, keep_folders_in_memory, remove_left_overs


class FakeConfig:
    """A run of pytest, and what it does at its end."""

    def __init__(self, *, on_disk: bool = False) -> None:
        self.on_disk = on_disk
        self.cleanups: list[Callable[[], None]] = []

    def getoption(self, name: str) -> bool:
        assert name == "--on-disk"
        return self.on_disk

    def add_cleanup(self, cleanup: Callable[[], None]) -> None:
        self.cleanups.append(cleanup)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(in_memory, "MEMORY", tmp_path)
    monkeypatch.setattr(in_memory, "ROOM_BYTES", 0)
    return tmp_path


def test_temporary_folders_are_in_memory_until_the_run_ends(memory: Path) -> None:
    """Programs that are started have them there, too. `tmp_path` stays where it was."""
    config: Any = FakeConfig()
    before = tempfile.gettempdir()
    keep_folders_in_memory(config)
    try:
        made = Path(tempfile.mkdtemp())
        assert made.parent == Path(os.environ["TMPDIR"]) and made.parent.parent == memory
        assert os.environ["PYTEST_DEBUG_TEMPROOT"] != os.environ["TMPDIR"]
    finally:
        for each in config.cleanups:
            each()
    assert tempfile.gettempdir() == before
    assert not list(memory.iterdir())


def test_folders_are_on_the_disk_where_that_is_wanted_or_memory_is_small(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers often have 64 MB, and other systems have no such file system."""
    on_disk, small = FakeConfig(on_disk=True), FakeConfig()
    keep_folders_in_memory(on_disk)  # type: ignore[arg-type]
    monkeypatch.setattr(in_memory, "ROOM_BYTES", 1 << 60)
    keep_folders_in_memory(small)  # type: ignore[arg-type]
    assert not on_disk.cleanups and not small.cleanups
    assert not has_room(memory / "absent")


def test_only_folders_of_runs_that_have_ended_are_removed(memory: Path) -> None:
    """A run that was killed cannot remove its own, and memory is scarce."""
    left, used, other = (memory / f"raftlog-{each}" for each in ("tests-1", "tests-2", "1"))
    for each in (left, used, other):
        (each / "cluster").mkdir(parents=True)
    held = os.open(used, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    remove_left_overs(memory)
    assert (left.exists(), used.exists()) == (False, True)
    os.close(held)
    remove_left_overs(memory)
    assert not used.exists()
    assert other.exists()
