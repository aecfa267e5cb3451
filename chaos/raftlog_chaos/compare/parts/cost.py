"""The CPU time of a load: of the system's processes, and of the whole machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raftlog_chaos.compare.figures import Sample
from raftlog_chaos.compare.loads import CLOCK_TICKS, Measured

MIN_TICKS: Final = 20
"""Fewer ticks of the kernel's clock are shown without a ratio: one tick more would change it visibly."""


def per_gigabyte(name: str, measured: Measured) -> Iterator[Sample]:
    """Yield what a gigabyte costs."""
    for kind, seconds in _kinds(measured):
        yield _sample(f"{name}, {kind}", seconds, seconds / measured.gigabytes, "s/GB")


def per_record(name: str, measured: Measured) -> Iterator[Sample]:
    """Yield what a record costs."""
    for kind, seconds in _kinds(measured):
        yield _sample(f"{name}, {kind}", seconds, seconds / measured.answer.records * 1e6, "µs/record")


def _kinds(measured: Measured) -> Iterator[tuple[str, float]]:
    yield "CPU user", measured.used.user_s
    yield "CPU system", measured.used.system_s
    yield "CPU of the whole machine", measured.used.machine_s


def _sample(name: str, seconds: float, value: float, unit: str) -> Sample:
    return Sample(name, value, unit, "less" if seconds * CLOCK_TICKS >= MIN_TICKS else None)
