"""Times every callback of an event loop by the processor time of its thread, so that a busy machine does not count.

Looks for garbage through all objects are left out, and timed by themselves: they take as long as the node holds much,
whatever is asked.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

MAX_SHOWN_CHARS = 100
CALLBACK = "_callback"
"""The attribute of `asyncio.Handle`, which forgets it when it is cancelled."""
OLDEST = 2
"""The generation of a look through all objects."""


class Turn(NamedTuple):
    """One callback. `seconds` of processor time of the loop's thread; `callback` is what ran."""

    seconds: float = 0.0
    callback: str = ""


class Stopwatch:
    """Times the callbacks of the loops in threads with a name that begins with `threads`.

    Only loops of asyncio itself are timed, one turn after the other. Enter it before they start, since it replaces a
    method of `asyncio.Handle`.
    """

    def __init__(self, threads: str) -> None:
        self._threads = threads
        self._run: Any = None
        self._turn = threading.Lock()
        """Held for a turn, since an answer comes before the end of the turn that sends it."""
        self._longest = Turn()
        self._total_s = 0.0
        self._collecting_since_s = 0.0
        self._collected_s = 0.0
        self.longest_collection_s = 0.0
        """The longest look for garbage through all objects."""

    def __enter__(self) -> Self:
        self._run = run = asyncio.Handle._run
        watch, clock = self, time.thread_time

        def timed(handle: asyncio.Handle) -> None:
            if not watch._times_this_thread():
                run(handle)
                return
            with watch._turn:
                watch._collected_s = 0.0
                began_s = clock()
                callback = getattr(handle, CALLBACK)
                run(handle)
                watch._note(clock() - began_s - watch._collected_s, callback)

        asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]
        gc.callbacks.append(self._collecting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]
        gc.callbacks.remove(self._collecting)

    def begin(self) -> None:
        """Forget all turns so far; the current turn ends first."""
        with self._turn:
            self._longest, self._total_s = Turn(), 0.0

    @property
    def longest(self) -> Turn:
        """Return the longest turn since `begin`; the current turn ends first."""
        with self._turn:
            return self._longest

    @property
    def total_s(self) -> float:
        """Return the processor time of all turns since `begin`, seconds; the current turn ends first."""
        with self._turn:
            return self._total_s

    def _times_this_thread(self) -> bool:
        return threading.current_thread().name.startswith(self._threads)

    def _collecting(self, phase: str, about: Mapping[str, int]) -> None:
        if about["generation"] < OLDEST or not self._times_this_thread():
            return
        if phase == "start":
            self._collecting_since_s = time.thread_time()
            return
        took_s = time.thread_time() - self._collecting_since_s
        self._collected_s += took_s
        self.longest_collection_s = max(self.longest_collection_s, took_s)

    def _note(self, seconds: float, callback: Any) -> None:
        self._total_s += seconds
        if seconds > self._longest.seconds:
            self._longest = Turn(seconds, _name_of(callback))


def _name_of(callback: Any) -> str:
    """Return the name of a callback, and of the coroutine if it is a step of a task."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", task.get_coro()))[:MAX_SHOWN_CHARS]
    return str(getattr(callback, "__qualname__", callback))[:MAX_SHOWN_CHARS]
