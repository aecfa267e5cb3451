"""Counts the lines of raftlog's code that run, by function, and the bytes that it allocates meanwhile."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import raftlog

ROOT = str(Path(raftlog.__file__).parent)
"""Only code below it counts: a simulator or a test is not what grows."""


class StepCounter:
    """Steps by function since it was made; only within `counting`."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self._lines: dict[CodeType, _Lines | None] = {}
        """What counts the lines of a function; None for code that is not raftlog's."""

    @property
    def total(self) -> int:
        return self.steps.total()

    def clear(self) -> None:
        self.steps.clear()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is called from now on, in this thread."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> _Lines | None:
        code = frame.f_code
        if code not in self._lines:
            is_ours = code.co_filename.startswith(ROOT)
            name = f"{Path(code.co_filename).stem}.{code.co_qualname}"
            self._lines[code] = _Lines(self.steps, name) if is_ours else None
        return self._lines[code]


class _Lines:
    """Counts the lines of a function: its local trace function."""

    __slots__ = ("_name", "_steps")

    def __init__(self, steps: Counter[str], name: str) -> None:
        self._steps = steps
        self._name = name

    def __call__(self, frame: FrameType, event: str, argument: Any) -> _Lines:
        if event == "line":
            self._steps[self._name] += 1
        return self


def count_steps(call: Callable[[], object]) -> Counter[str]:
    """Return the steps of one call, by function."""
    counter = StepCounter()
    with counter.counting():
        call()
    return counter.steps


def count_bytes(call: Callable[[], object]) -> int:
    """Return by how much memory grew at most while `call` ran: a copy counts, however soon it is dropped."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
