"""Measures how much slower this machine computes now than a usual machine at rest, so that a busy machine fails no row.

Processor time alone does not say it: two threads share a core's caches and units.
"""

from __future__ import annotations

import time
from typing import Final

REFERENCE_S: Final = 0.0095
"""The time of `_work` on a machine of 2023 at rest."""

PARTS: Final = 20_000
TIMES: Final = 3


def slowness() -> float:
    """Return 1.0, or by how much the machine is slower."""
    return max(1.0, min(_timed() for _ in range(TIMES)) / REFERENCE_S)


def _timed() -> float:
    began_s = time.thread_time()
    _work()
    return time.thread_time() - began_s


def _work() -> None:
    """Do what a decoder does with the parts of a request."""
    data = memoryview(bytes(16 * PARTS))
    made = [(number, data[16 * number : 16 * number + 16]) for number in range(PARTS)]
    seen = {bytes(part): number for number, part in made}
    assert len(seen) == 1
