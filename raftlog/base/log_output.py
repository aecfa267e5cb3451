"""The output of a log: standard error, a file or a stream. Writing a line never raises and never waits.

A closed pipe, a closed terminal and a full disk make each write fail, and a stopped reader blocks it for ever. So a
thread writes to a descriptor, and lines are queued for it, up to MAX_WAITING_BYTES. Lines beyond that are lost and
counted. Once lines can be written again, an extra line has the number of lost lines. A port to the world.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TextIO

MAX_WAITING_BYTES: Final = 1 << 20
"""Bytes of lines that wait to be written."""
RETRY_S: Final = 1.0
"""A failed descriptor is retried after this, or with the next line."""
STALLED_S: Final = 5.0
"""A write that takes longer than this is reported as trouble."""
BEHIND: Final = "its reader does not keep up"
END_S: Final = 1.0
"""The end of the process waits this long for the last lines."""


class Lost(NamedTuple):
    """Lines that were lost in a row. `within_s`: the time from the first of them to recovery."""

    lines: int
    reason: str
    within_s: float


class LogOutput:
    """Counts the lines of one log that could not be written. Subclasses write them.

    `on_recovery` is called once lines can be written again, from the writing thread.
    """

    def __init__(self) -> None:
        self.lines_lost = 0
        """Since this output was made."""
        self.on_recovery: Callable[[Lost], None] = _ignored
        self._reason = ""
        self._unsaid = 0
        self._first_lost_at = 0.0

    @property
    def reason(self) -> str:
        """Why lines cannot be written now; empty while they can."""
        return self._reason

    def write(self, line: str) -> None:
        """Write a line without its newline. Never raises."""
        self.lose("standard error is closed")

    def lose(self, reason: str) -> None:
        """Count a line that was not written."""
        if not self._unsaid:
            self._first_lost_at = time.monotonic()
        self.lines_lost += 1
        self._unsaid += 1
        self._reason = reason

    def recover(self) -> None:
        """Note that a line could be written, and report the lines lost before it."""
        reason, self._reason = self._reason, ""
        lines, self._unsaid = self._unsaid, 0
        if lines:
            self.on_recovery(Lost(lines, reason, round(time.monotonic() - self._first_lost_at, 1)))

    def flush(self) -> None:
        """Wait until the lines are written, for END_S at most."""

    def close(self) -> None:
        """Write the lines that wait, for END_S at most, and end."""


class StreamOutput(LogOutput):
    """Writes to a stream without a descriptor: in memory, of a test or of a program."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, line: str) -> None:
        try:
            try:
                self._stream.write(f"{line}\n")
            except UnicodeError:
                self._stream.write(f"{line.encode('ascii', 'backslashreplace').decode()}\n")
            self._stream.flush()
        except Exception as error:
            self.lose(describe(error))
            return
        if self._reason:
            self.recover()


class DescriptorOutput(LogOutput):
    """Writes to a descriptor from a thread of its own, so that no write blocks the event loop."""

    def __init__(self, descriptor: int) -> None:
        """Raise OSError for a closed descriptor. The caller may close it afterwards: this keeps a copy."""
        super().__init__()
        # A copy: once its owner has closed it, the number may be given to a data file.
        self._descriptor = os.dup(descriptor)
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._began_at: float | None = None
        self._closing = False
        self._pid = os.getpid()
        atexit.register(self.flush)

    @property
    def reason(self) -> str:
        """Why lines cannot be written now, or wait for long; empty while they can."""
        began_at = self._began_at
        if not self._reason and began_at is not None and time.monotonic() - began_at > STALLED_S:
            return BEHIND
        return self._reason

    def write(self, line: str) -> None:
        if os.getpid() != self._pid:  # forked: the thread is not here, and may have held the lock
            LogOutput.lose(self, "a forked process has no log")
            return
        encoded = f"{line}\n".encode("utf-8", "backslashreplace")
        with self._changed:
            if self._closing or (self._waiting and self._waiting_bytes + len(encoded) > MAX_WAITING_BYTES):
                self.lose(self._reason or BEHIND)
                return
            self._waiting.append(encoded)
            self._waiting_bytes += len(encoded)
            self._start()
            self._changed.notify_all()

    def lose(self, reason: str) -> None:
        with self._changed:
            super().lose(reason)

    def _start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="raftlog-log", daemon=True)
        with suppress(RuntimeError):  # the system cannot start a thread: the next line retries
            self._thread.start()

    def flush(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._changed.wait_for(self._is_done, END_S)

    def _is_done(self) -> bool:
        return bool(not self._waiting or self._reason)

    def close(self) -> None:
        atexit.unregister(self.flush)
        if os.getpid() != self._pid:
            return
        self.flush()
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join(END_S)  # the thread closes the descriptor, which it may still be writing to
        else:
            os.close(self._descriptor)

    def _run(self) -> None:
        while (line := self._next()) is not None:
            try:
                written = os.write(self._descriptor, line)
            except BlockingIOError:  # a program that shares the descriptor has made it non-blocking
                self._wait_for_room()
            except Exception as error:
                self._note_failure(error)
            else:
                self._note_written(line, written)
        os.close(self._descriptor)

    def _next(self) -> bytes | None:
        """Wait for a line and return it, or its rest; None if there are no more, or writing is impossible."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            if self._closing and self._reason:
                return None
            if self._began_at is None:
                self._began_at = time.monotonic()
            return self._waiting[0]

    def _note_written(self, line: bytes, written: int) -> None:
        with self._changed:
            self._began_at = None
            self._waiting_bytes -= written
            if written < len(line):
                self._waiting[0] = line[written:]
            else:
                self._waiting.popleft()
            if not self._waiting:
                self._changed.notify_all()
                if self._reason:
                    self.recover()  # the line about it comes after the waiting lines

    def _note_failure(self, error: Exception) -> None:
        with self._changed:
            self._began_at = None
            self._reason = describe(error)
            self._changed.notify_all()
            if not self._closing:
                self._changed.wait(RETRY_S)

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll(RETRY_S * 1000)
        if self._closing:
            self._reason = self._reason or BEHIND


def output_of(stream: TextIO | None) -> LogOutput:
    """Return the output for a stream: to its descriptor, if any."""
    if stream is None:  # the process was started without
        return LogOutput()
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return StreamOutput(stream)
    with suppress(Exception):
        stream.flush()  # earlier output comes first
    try:
        return DescriptorOutput(descriptor)
    except OSError:
        return LogOutput()


def describe(error: BaseException) -> str:
    """Return an error as text. Never raises."""
    try:
        return (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _ignored(lost: Lost) -> None:
    pass
