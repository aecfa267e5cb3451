"""The folders of clusters are in memory: files cost nodes a third of their work on a disk, and a sync waits for it.

Whatever uses Python's `tempfile`, and whatever such a process starts, is there. A test about files has `tmp_path`,
which stays on the disk. `--on-disk` leaves all folders there, where users have them: `make nightly` passes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 2 << 30
"""Containers often have 64 MB there, which the clusters of three processes would fill."""

PREFIX: Final = "raftlog-tests-"


def add_option(parser: pytest.Parser) -> None:
    """Add --on-disk to the command line."""
    parser.addoption("--on-disk", action="store_true", help="keep the folders of clusters on the disk")


def keep_folders_in_memory(config: pytest.Config) -> None:
    """Have temporary folders in memory until the end of this run, if there is room."""
    if hasattr(config, "workerinput") or config.getoption("--on-disk") or not has_room(MEMORY):
        return
    remove_left_overs(MEMORY)
    folder = MEMORY / f"{PREFIX}{os.getpid()}"
    folder.mkdir(0o700, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTEST_DEBUG_TEMPROOT", os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))
    patch.setenv("TMPDIR", str(folder))
    patch.setattr(tempfile, "tempdir", str(folder))

    def end() -> None:
        patch.undo()
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)

    config.add_cleanup(end)


def has_room(memory: Path) -> bool:
    """Return whether a file system in memory is there, and large enough."""
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return False
    found = os.statvfs(memory)
    return found.f_bavail * found.f_frsize >= ROOM_BYTES


def remove_left_overs(memory: Path) -> None:
    """Remove the folders of runs that were killed: nobody holds their locks any more."""
    for folder in memory.glob(f"{PREFIX}*"):
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(held)
