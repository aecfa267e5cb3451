"""The caller's handle on a job: stop it, and follow its progress. Pure.

A stop takes effect between two batches: the current batch is finished first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One batch is where it belongs. `rows` it read, `behind` records the log has beyond it (None: not known)."""

    batch: int
    rows: int
    seconds: float
    behind: int | None = None


def _hear_nothing(_batch: BatchDone) -> None:
    pass


@dataclass(slots=True)
class Control:
    """Set `stopping` to end a job after its batch; `hear` is called from another thread after each batch."""

    stopping: threading.Event = field(default_factory=threading.Event)
    hear: Callable[[BatchDone], None] = _hear_nothing


class JobError(RuntimeError):
    """A job cannot go on; the message says what a person can do."""


class MissingError(JobError):
    """A piece that the job stands on is not on this machine: Java, PySpark, a jar."""
