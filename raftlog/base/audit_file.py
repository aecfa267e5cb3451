"""The audit log in a file of its own. A thread writes it, so that a slow disk does not block the loop.

The file is reopened after log rotation has moved it. Lines that cannot be written go to the node's log instead, with a
line about the reason; after a while the file is retried. A port to the world.

An audited change stands, whether its line can be written or not. A line that neither file nor log takes is counted
(`raftlog.base.log.log_state`), and `/v1/health` says so.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from raftlog.base.log_output import describe

MAX_WAITING: Final = 10_000
"""Lines that wait for the disk; further lines go to the node's log."""
RETRY_S: Final = 5.0
"""A failed file is retried after this."""
END_S: Final = 1.0
"""How long the end of the process waits for the last lines."""
MODE: Final = 0o640
"""Others may not read the audit log."""


class AuditFile:
    """`write` from the event loop. Everything else happens in a thread."""

    def __init__(
        self,
        path: str,
        *,
        fall_back: Callable[[str], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fall_back` gets a line that the file did not take, `say` the reason, once for each failure of the file."""
        self.path = path
        self.reason = ""
        """Why the file cannot be written; empty while it can."""
        self._fall_back = fall_back
        self._say = say
        self._clock = clock
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._failed_at: float | None = None
        self._torn = False
        """A full disk took only a part of a line."""
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> bool:
        """Write a line. False if the file fails or is too slow: the caller keeps the line."""
        if self._failed_at is not None and self._clock() - self._failed_at < RETRY_S:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="audit-file", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Write what waits, for END_S at most."""
        thread, self._thread = self._thread, None
        if (
            thread is not None and thread.is_alive()
        ):  # a forked process does not have the thread, nor its lines
            with suppress(queue.Full):  # the disk hangs, and so does the thread
                self._lines.put(None, timeout=END_S)
                thread.join(END_S)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._open()
                self._write_whole(f"{line}\n".encode())
                self._failed_at, self.reason = None, ""
            except Exception as error:
                said, self._failed_at = self._failed_at is not None, self._clock()
                self.reason = describe(error)
                self._fall_back(line)
                if not said:
                    self._say(self.reason)
        self._close_file()

    def _open(self) -> None:
        """Open the file that now has the name."""
        try:
            found = os.stat(self.path)
            identity = (found.st_dev, found.st_ino)
        except FileNotFoundError:
            identity = None
        if self._descriptor is not None and identity == self._identity:
            return
        self._close_file()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, MODE)
        opened = os.fstat(self._descriptor)
        self._identity, self._torn = (opened.st_dev, opened.st_ino), False

    def _write_whole(self, content: bytes) -> None:
        assert self._descriptor is not None, "it was opened"
        if self._torn:
            content = b"\n" + content
        while content:
            content = content[os.write(self._descriptor, content) :]
            self._torn = bool(content)

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
