"""The signals that end a command besides Ctrl-C, and must not cost more than Ctrl-C does. Knows nothing of what is to
be ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
"""`timeout`, `kill` and supervisors send the one; the other says that the terminal is gone."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt within for SIGTERM and SIGHUP too; one that is ignored (nohup) stays so."""

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
