"""One figure of `raftlog bench`, and its aim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. With an `aim`, in the same unit, `value` should be "at most" or "at least" that."""

    part: str
    name: str
    value: float
    unit: str
    aim: float | None = None
    bound: Bound = "at most"
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; None without an aim."""
        if self.aim is None:
            return None
        return self.value <= self.aim if self.bound == "at most" else self.value >= self.aim
