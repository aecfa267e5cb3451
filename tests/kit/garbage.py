"""Python's garbage collector looks at all that a process has made, again and again while more is made.

Objects that live as long as the process need no looks: they would double the cost of importing all tests, and would
make reading the source as syntax trees five times as slow.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def made_to_stay() -> Iterator[None]:
    """Exempt every existing object from garbage collection at the end; no collection runs meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class Spared:
    """The plugin: modules and tests stay."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        with made_to_stay():
            return (yield)
