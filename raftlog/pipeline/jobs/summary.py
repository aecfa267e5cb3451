"""The parts that all summaries of jobs reading a stream share. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary(ABC):
    """The result of a run of a job. `stopped`: by a stop, before the end of the log."""

    job: str
    batches: int
    seconds: float
    stopped: bool

    @property
    def sound(self) -> bool:
        """A run that ended without an error did what it promises."""
        return True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        end = "stopped after its batch" if self.stopped else "at the end of the log"
        return f"{self.job}: {self.describe()}, {self.batches} batches, {self.seconds:.1f} s; {end}"

    @abstractmethod
    def describe(self) -> str:
        """Return what is particular to the job, in a phrase."""
