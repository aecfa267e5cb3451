"""Waits for keys of a terminal, pressed without Enter."""

from __future__ import annotations

import os
import sys
import termios
import time
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from raftlog.base.readable import readable


class Keys:
    """A terminal that is read key by key while this is open. Standard input that is no terminal is not read."""

    def __init__(self, awaited: str) -> None:
        """`awaited`: the keys that end a wait; others are passed over."""
        self._awaited = awaited
        self._former: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._former = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._former is not None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._former)

    def wait(self, duration_s: float) -> bool:
        """Return whether an awaited key is pressed within that time."""
        if self._former is None:
            time.sleep(duration_s)
            return False
        ends_at = time.monotonic() + duration_s
        while readable([sys.stdin], max(0.0, ends_at - time.monotonic())):
            pressed = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
            if not pressed:  # the terminal is gone
                return True
            if any(each in self._awaited for each in pressed):
                return True
        return False
