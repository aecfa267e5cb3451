"""Syncs that the kernel carries out while the event loop runs (Linux AIO: io_submit with IOCB_CMD_FDSYNC).

A sync on the loop blocks everything, and a sync in a thread costs a dozen futex calls and a wait for the interpreter.
The kernel's own asynchronous sync costs one call to submit, and one wake-up by eventfd for all that have ended.

Ordering law: bytes written before `submit` are durable once its callback was called without an error. Callbacks are
called on the loop, never within `submit`. The kernel holds the file, so its descriptor may close meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raftlog.base.compiled import load_compiled

try:
    linux_aio = load_compiled("caio", "linux_aio")
except ImportError:
    linux_aio = None  # not on Linux: every sync is refused

SyncCallback = Callable[[OSError | None], None]
"""Called when a sync has ended, with the disk's error, if any."""

MAX_SYNCS: Final = 256
"""Syncs under way at a time; `fs.aio-max-nr` counts them for all processes of a machine."""


class KernelSyncs:
    """The asynchronous syncs of one process; the first sync makes the kernel's context."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: Any = None
        self._ended: list[tuple[SyncCallback, str, int]] = []

    def submit(self, fd: int, path: str, done: SyncCallback) -> bool:
        """Begin an fdatasync; return False if the kernel refuses it. `path` is for the error."""
        if self._loop is None or self._loop.is_closed():  # asking for the running loop costs a system call
            self._loop = asyncio.get_running_loop()
            self._context = self._open(self._loop)
        if self._context is None:
            return False
        operation = linux_aio.Operation.fdsync(fd)
        operation.set_callback(partial(self._note, done, path))
        try:
            return bool(self._context.submit(operation))
        except (
            OSError,
            OverflowError,
            SystemError,
            ValueError,
        ):  # too many under way; a file system without it
            return False

    def _open(self, loop: asyncio.AbstractEventLoop) -> Any:
        if linux_aio is None:
            return None
        try:
            context = linux_aio.Context(max_requests=MAX_SYNCS)
        except (OSError, SystemError):  # a sandbox refuses io_setup, or the machine has no more contexts
            return None
        loop.add_reader(context.fileno, self._collect, context)
        return context

    def _note(self, done: SyncCallback, path: str, result: int) -> None:
        self._ended.append((done, path, result))

    def _collect(self, context: Any) -> None:
        try:
            context.poll()
        except BlockingIOError:
            pass  # the kernel counted several completions together
        try:
            while context.process_events(MAX_SYNCS) == MAX_SYNCS:
                pass
        except SystemError as error:
            if error.args[0] != errno.EINTR:
                raise
            asyncio.get_running_loop().call_soon(self._collect, context)
        ended, self._ended = self._ended, []
        failure: BaseException | None = None
        for done, path, result in ended:
            try:
                done(None if result == 0 else _error(result, path))
            except Exception as error:  # the other callbacks must run too
                failure = error
        if failure is not None:
            raise failure


def _error(result: int, path: str) -> OSError:
    """Return the error of a result of io_event, which `caio` returns as an unsigned number."""
    code = 2**64 - result
    return OSError(code, os.strerror(code), path)
