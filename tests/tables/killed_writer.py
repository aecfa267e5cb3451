"""Runs `raftlog …` again and again, each time killed after one call more of its table: `ARGS…`.

A line on standard input begins a run, and its exit code is printed. Runs are forks of this process, which has imported
all libraries, since an import of pyiceberg takes seconds.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any

from raftlog.cli import main
from raftlog.tables import formats

Wrap = Callable[[Any], Any]


def kill_after(at: int) -> Wrap:
    """Have this process kill itself after so many calls of its table; return what counts other calls, too."""
    calls = 0

    def wrapped(method: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls = number = calls + 1  # a call may make others
            found = method(*arguments, **options)
            if number == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return call

    open_table = formats.open_table

    def opened(*arguments: Any) -> Any:
        found = open_table(*arguments)
        for name in ("load", "create", "append", "tidy"):
            setattr(found, name, wrapped(getattr(found, name)))
        return found

    formats.open_table = opened
    return wrapped


def run_all(kill_after: Callable[[int], object]) -> None:
    """Run until standard input ends."""
    for at in count(1):
        if not sys.stdin.readline():
            return
        child = os.fork()
        if not child:
            kill_after(at)
            os.dup2(2, 1)
            main()
            os._exit(1)
        _pid, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    for each in ("delta", "iceberg", "job"):
        import_module(f"raftlog.tables.{each}")

    run_all(kill_after)
