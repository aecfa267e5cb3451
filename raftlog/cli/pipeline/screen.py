"""Shows a job's progress on standard error: on a terminal one line that is updated, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

from raftlog.pipeline.jobs.control import BatchDone

MIN_INTERVAL_S = 2.0
"""Between two lines that are not on a terminal."""


class Screen:
    """Use as a context manager; `on_batch` may be called from any thread."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._rows = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status(self._job)
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Show a text behind the name of the job."""
        if self._status is not None:
            self._status.update(f"{self._job}: {text}")
        else:
            print(f"{self._job}: {text}", file=sys.stderr, flush=True)

    def on_batch(self, done: BatchDone) -> None:
        """Show a batch; off a terminal only some of them."""
        self._rows += done.rows
        now = time.monotonic()
        if self._status is None and now - self._shown_at < MIN_INTERVAL_S:
            return
        self._shown_at = now
        rate = done.rows / done.seconds if done.seconds else 0.0
        self.say(
            f"batch {done.batch}, {self._rows:,} records in {now - self._began:.0f} s, "
            f"{rate:,.0f} records/s in this batch"
        )
