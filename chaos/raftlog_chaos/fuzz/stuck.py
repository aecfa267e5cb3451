"""A bound on processor time, so that a frame that is never done with is a finding and not a run that never ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Stuck(Exception):
    """Something took more processor time than anything may."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise Stuck within, in whatever code runs then, after so many seconds of processor time. Main thread only."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Stuck(f"not done after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
