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
from typing import Any, Self

import raftlog

ROOT = str(Path(raftlog.__file__).parent)
"""Only code below it counts: a simulator or a test is not what grows."""


class StepCounter:
    """Steps by function since it was made; only within `counting`."""

    def __init__(self) -> None:
        self._lines: dict[CodeType, Lines | None] = {}
        """The lines of each function; None for code that is not raftlog's."""

    @property
    def steps(self) -> Counter[str]:
        """Return the steps by function."""
        found: Counter[str] = Counter()
        for each in self._lines.values():
            if each is not None:
                found[each.name] += each.count
        return found

    @property
    def total(self) -> int:
        return self.steps.total()

    def clear(self) -> None:
        for each in self._lines.values():
            if each is not None:
                each.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is called from now on, in this thread."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Lines | None:
        code = frame.f_code
        if code not in self._lines:
            is_ours = code.co_filename.startswith(ROOT)
            name = f"{Path(code.co_filename).stem}.{code.co_qualname}"
            self._lines[code] = Lines(name) if is_ours else None
        return self._lines[code]


class Lines:
    """Counts the lines of a function that run: the local trace function of its frames."""

    __slots__ = ("count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Self:
        if event == "line":
            self.count += 1
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
