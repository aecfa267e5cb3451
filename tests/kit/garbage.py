"""Keeps Python's garbage collector from scanning objects that live as long as the process.

The collector scans all objects again and again while more are created. With these objects, importing all tests would
cost twice as much, and parsing the source into syntax trees five times as much.
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
