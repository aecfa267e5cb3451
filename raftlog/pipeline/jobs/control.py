"""The caller's handle on a job: stop it, and follow its progress. Pure.

A stop takes effect between two batches: the current batch is finished first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch was written. `rows`: records read; `behind`: records of the log after these, None if unknown."""

    batch: int
    rows: int
    seconds: float
    behind: int | None = None


def _ignore(_batch: BatchDone) -> None:
    pass


@dataclass(slots=True)
class Control:
    """Set `stopping` to end a job after its batch; `on_batch` is called from another thread after each batch."""

    stopping: threading.Event = field(default_factory=threading.Event)
    on_batch: Callable[[BatchDone], None] = _ignore


class JobError(RuntimeError):
    """A job cannot go on; the message says what to do."""


class MissingError(JobError):
    """A requirement of the job is not on this machine: Java, PySpark, a jar."""
