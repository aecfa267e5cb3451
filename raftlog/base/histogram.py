"""Histograms of durations: counts below fixed bounds, for later readers. Not: the readers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

LATENCY_BOUNDS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0
)  # fmt: skip
"""Upper bounds, seconds: from a request in memory to a wait for an election."""
SYNC_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0
)  # fmt: skip
"""Upper bounds, seconds: from a write-back cache to a disk that is about to fail."""


class Histogram:
    """Observations below each of the ascending `bounds`; larger observations are counted too. It is used from one
    thread.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all observations."""

    def observe(self, value: float) -> None:
        """Count one observation; cheap enough for each request."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield (bound, how many observations were not above it), the last bound being infinity."""
        so_far = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            so_far += count
            yield bound, so_far
