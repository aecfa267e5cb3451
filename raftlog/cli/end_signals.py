"""The signals that end a command besides Ctrl-C, with the same clean-up. It does not know the commands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
"""The commands timeout and kill, and supervisors, send the first; the second means that the terminal is gone."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt within for SIGTERM and SIGHUP too; an ignored signal (nohup) stays ignored."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])
