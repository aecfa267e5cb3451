"""Claims about who compiles the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Thread

from tests.kit.byte_code import is_compiled, is_first, wait_for_the_first
from tests.kit.waits import PATIENCE_S


def test_the_first_process_holds_the_lock_and_others_wait_for_it_only(tmp_path: Path) -> None:
    """When it has collected the tests, all others go on at the same time."""
    path = tmp_path / "file"
    path.touch()
    first, second, third = (os.open(path, os.O_RDONLY) for _ in range(3))
    assert is_first(first)
    assert not is_first(second)
    waiting = Thread(target=wait_for_the_first, args=(second,))
    waiting.start()
    assert waiting.is_alive()
    os.close(first)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert is_first(third), "the second holds it no longer"
    for each in (second, third):
        os.close(each)


def test_tests_are_compiled_once_each_module_has_byte_code_of_this_interpreter(tmp_path: Path) -> None:
    """Python's own does not count: it lacks what pytest adds to assertions."""
    cache = tmp_path / "base" / "__pycache__"
    cache.mkdir(parents=True)
    (cache.parent / "test_it.py").touch()
    tag = sys.implementation.cache_tag
    for name in (f"test_it.{tag}.pyc", "test_it.other-pytest-9.pyc", f"test_that.{tag}-pytest-9.pyc"):
        (cache / name).touch()
    assert not is_compiled(tmp_path)
    (cache / f"test_it.{tag}-pytest-9.pyc").touch()
    assert is_compiled(tmp_path)
