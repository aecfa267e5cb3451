"""The form of what `raftlog consume` prints, and when it stops."""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.cli.kcat.format import Print


@dataclass(frozen=True, slots=True)
class Wanted:
    """The format of the output, and when to stop: `count` 0 and `idle_s` 0 are without end."""

    show: Print
    count: int
    exit_at_end: bool
    stop_ms: int | None
    idle_s: float
    unbuffered: bool
    carry_on: bool
    verbose: bool
    quiet: bool
