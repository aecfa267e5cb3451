"""A command that continues in the background once it is ready: in a fork of this process, without the terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from raftlog.cli.exits import INTERRUPTED, OK

READY: Final = b"\0"
"""The last byte that the fork writes to the pipe, if it is ready."""

Ready = Callable[[Path], None]
"""Is called with the path of a log, to which what the fork prints goes from then on."""


def continue_in_background() -> tuple[int | None, Ready]:
    """Fork. In this process, print what the fork prints until it is ready or ends, and return its exit code so far.

    In the fork return None, and what it calls when it is ready.
    """
    heard, said = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(said)
        return _relay(heard, pid), lambda _: None
    os.close(heard)
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(said, 1)
    os.close(null)

    def ready(log: Path) -> None:
        sys.stdout.flush()
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.write(said, READY)
        os.close(said)

    return None, ready


def _relay(heard: int, pid: int) -> int:
    """Print what the fork writes; return OK once it is ready, or its exit code.

    A closed output does not end the fork: its lines are read all the same. Raise BrokenPipeError after that.
    """
    last = b""
    closed: BrokenPipeError | None = None
    try:
        while received := os.read(heard, 4096):
            last = received[-1:]
            try:
                sys.stdout.write(received.rstrip(READY).decode(errors="replace"))
                sys.stdout.flush()
            except BrokenPipeError as error:
                closed = error
        if closed is not None:
            raise closed
        if last == READY:
            return OK
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        return INTERRUPTED
    finally:
        os.close(heard)
