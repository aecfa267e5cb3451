"""Frames that once found something are sent again, each file in a world of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlog_chaos.fuzz.findings import read_regression
from raftlog_chaos.fuzz.world import replay

KEPT = sorted((Path(__file__).parent / "kept").glob("*.hex"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_former_finding_does_not_come_back(path: Path):
    """Its first line says what it was."""
    port, frames = read_regression(path)
    assert frames
    for seed in (0, 2):
        assert [each.text() for each in replay(port, frames, seed=seed).findings] == []
