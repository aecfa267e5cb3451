"""`raftlog …` in a process that is killed after the nth call of the tables in it: `N ARGS…`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from raftlog.cli import main
from raftlog.tables import formats


def kill_after(at: int) -> None:
    """Have this process kill itself after so many calls."""
    calls = 0

    def wrapped(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            found = method(*arguments)
            if calls == at:
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


if __name__ == "__main__":
    kill_after(int(sys.argv.pop(1)))
    main()
