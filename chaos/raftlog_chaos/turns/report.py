"""The rows of a run, and their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from raftlog.broker.long_work.long_turns import LONG_TURN_S
from raftlog_chaos.turns.stopwatch import Turn

SHOWN: Final = 30
NO_ANSWER: Final = "no answer"


class Row(NamedTuple):
    """The longest turn of one request, and the processor time of all its turns, seconds. `limit` bounds the request."""

    what: str
    limit: str
    turn: Turn
    total_s: float
    answer: str
    slowness: float = 1.0
    """By how much the machine was slower then than a usual machine."""

    @property
    def is_late(self) -> bool:
        """Whether the longest turn is beyond the limit."""
        return self.turn.seconds > LONG_TURN_S * self.slowness

    @property
    def has_failed(self) -> bool:
        """Whether it is too long, or was not measured."""
        return self.is_late or self.answer == NO_ANSWER

    def __str__(self) -> str:
        verdict = "  TOO LONG" if self.is_late else "  NO ANSWER" if self.has_failed else ""
        return (
            f"{self.turn.seconds * 1000:7.1f} ms of {self.total_s:6.2f} s  {self.what[:90]:90}  "
            f"limit: {self.limit}; {self.turn.callback}; {self.answer}{verdict}"
        )


def as_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each of the longest turns and each failure, and a line of totals."""
    ordered = sorted(rows, key=lambda each: (not each.has_failed, -each.turn.seconds))
    late, silent = (
        sum(map(test, rows)) for test in (lambda row: row.is_late, lambda row: row.answer == NO_ANSWER)
    )
    lines = [str(each) for each in ordered[: max(SHOWN, late + silent)]]
    limit_ms = LONG_TURN_S * 1000
    return [
        *lines,
        f"{len(rows)} requests, {late} with a turn of more than {limit_ms:.0f} ms, {silent} without an answer",
    ]
