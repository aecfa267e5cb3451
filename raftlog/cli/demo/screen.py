"""Shows the demo's progress: a bar on a terminal, plain lines elsewhere, always on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

PLAIN_EVERY_S = 5.0


class Screen:
    """Says lines and shows the progress of one phase at a time. `quiet` leaves only failures to others."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._phase = ""
        self._total = 0
        self._said_at = 0.0

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Print one line above the bar."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def phase(self, name: str, total: int) -> None:
        """Begin a phase of `total` steps."""
        self._phase, self._total, self._said_at = name, total, time.monotonic()
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(name, total=total)

    def progress(self, done: int) -> None:
        """Show how far the phase is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
        elif time.monotonic() - self._said_at > PLAIN_EVERY_S:
            self._said_at = time.monotonic()
            self.say(f"  {self._phase}: {done:,} of {self._total:,}")
