"""These tests keep their files in memory if possible, where a sync is free."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm"


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="raftlog-", dir=where) as path:
        yield Path(path)


@pytest.fixture
def data(folder: Path) -> str:
    """An empty data folder, with room for others beside it."""
    (folder / "data").mkdir()
    return str(folder / "data")
