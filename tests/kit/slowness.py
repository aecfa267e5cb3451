"""A node that is slow, for tests."""

from __future__ import annotations

from raftlog.base.lateness import OFTEN, Lateness


def make_slow(lateness: Lateness, late_s: float, now: float = 0.0) -> None:
    """Be late as often as it takes to be slow."""
    for _ in range(OFTEN):
        lateness.note(late_s, now)
