"""Tests are compiled by the first process that collects them: the other workers wait, and read its byte code.

pytest rewrites the assertions of each module, which takes three times as long as all else before the first test. In a
fresh clone each worker would do it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]


class CompiledOnce:
    """The plugin, for workers. The lock is on a file that is there, and is held until the tests are collected."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        if not hasattr(session.config, "workerinput") or sys.dont_write_bytecode or is_compiled(TESTS):
            return (yield)
        held = os.open(TESTS / "conftest.py", os.O_RDONLY)
        try:
            if not is_first(held):
                wait_for_the_first(held)
            return (yield)
        finally:
            os.close(held)


def is_first(held: int) -> bool:
    """Hold the lock of an open file, and return True, if no other process does."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_the_first(held: int) -> None:
    """Wait for the lock's release, and do not hold it."""
    fcntl.flock(held, fcntl.LOCK_EX)
    fcntl.flock(held, fcntl.LOCK_UN)


def is_compiled(tests: Path) -> bool:
    """Return whether every module of tests has byte code of this interpreter, of whatever age."""
    for folder, _, names in os.walk(tests):
        modules = {
            name.removesuffix(".py") for name in names if name.startswith("test_") and name.endswith(".py")
        }
        if modules and not modules <= _compiled_in(folder):
            return False
    return True


def _compiled_in(folder: str) -> set[str]:
    try:
        names = os.listdir(f"{folder}/__pycache__")
    except FileNotFoundError:
        return set()
    mark = f".{sys.implementation.cache_tag}-pytest-"
    return {name.partition(".")[0] for name in names if mark in name}
