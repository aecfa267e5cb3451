"""The moments of cuts: by chance, but aimed at what is rare.

A moment waits for a mark that a node's own files make (see `watch`), and adds up to a few dozen milliseconds. A moment
without a mark, or with a mark that never comes, is a time after the loads began.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog_chaos.power_cut.watch import CHECKPOINT, COMPACTION, ROLL, SNAPSHOT

LOAD: Final = "load"
RECOVERY: Final = "recovery"
MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "roll": (ROLL,),
    "snapshot": SNAPSHOT,
    "compaction": COMPACTION,
    "checkpoint": (CHECKPOINT,),
}
SHARES: Final[Mapping[str, float]] = {
    LOAD: 0.25,
    RECOVERY: 0.2,
    "roll": 0.15,
    "snapshot": 0.15,
    "compaction": 0.15,
    "checkpoint": 0.1,
}
"""How often each kind is drawn."""
LOAD_S: Final = (0.0, 8.0)
FLOWING: Final = 20
"""Time begins, and marks count, after so many acknowledged records in this boot: there is data to lose."""
MAX_LOAD_S: Final = 25.0
"""A mark that has not come by then does not come."""
MAX_MARKS: Final = 4
MAX_DELAY_S: Final = 0.03


class Moment(NamedTuple):
    """The moment of a power cut. In a recovery, `share` is the fraction of the time that a start takes."""

    kind: str
    mark: str = ""
    times: int = 0
    """The mark counts when it has come so often."""
    delay_s: float = 0.0
    share: float = 0.0

    def __str__(self) -> str:
        if self.mark:
            return f"{self.mark} {self.times}, {self.delay_s * 1000:.0f} ms later"
        return f"{self.share:.0%} of a start" if self.kind == RECOVERY else f"{self.delay_s:.1f} s of load"


def draw(chance: random.Random, *, first: bool) -> Moment:
    """Draw the next moment; the first moment of a disk is never in a recovery, since there is none yet."""
    shares = {kind: share for kind, share in SHARES.items() if not (first and kind == RECOVERY)}
    kind = chance.choices(list(shares), list(shares.values()))[0]
    if kind == RECOVERY:
        return Moment(kind, share=chance.random())
    if kind == LOAD:
        return Moment(kind, delay_s=chance.uniform(*LOAD_S))
    delay_s = chance.choice((0.0, chance.uniform(0.0, MAX_DELAY_S)))
    return Moment(kind, chance.choice(MARKS[kind]), chance.randint(1, MAX_MARKS), delay_s)


class Sight:
    """Waits for one moment, as words and time come in."""

    def __init__(self, moment: Moment, *, start_s: float) -> None:
        self._moment = moment
        self._start_s = start_s
        self._before: int | None = None
        """So many records had been acknowledged when the loads began."""
        self._acked = 0
        self._flowing_at: float | None = None
        self._started_at: float | None = None
        self._marks = 0
        self._due_at: float | None = None
        self.missed = False
        """Its mark did not come."""

    def reached(self, phase: str, now: float) -> None:
        """Take note of a phase."""
        if phase == "started":
            self._started_at = now
        elif phase == "ready" and self._moment.kind == RECOVERY:
            self._due_at = now  # it was faster than the last time
        elif phase == "loading":
            self._before = self._acked

    def acknowledged(self, count: int, now: float) -> None:
        """Take note of how many records have been acknowledged altogether."""
        self._acked = count
        if self._flowing_at is None and self._before is not None and count >= self._before + FLOWING:
            self._flowing_at = now

    def marked(self, mark: str, now: float) -> None:
        """Take note of a mark."""
        if mark != self._moment.mark or self._flowing_at is None:
            return
        self._marks += 1
        if self._marks == self._moment.times:
            self._due_at = now + self._moment.delay_s

    def wait_s(self, now: float) -> float | None:
        """Return how long it is until the cut, 0 or less if it is due; None as long as that is not known."""
        if self._due_at is None:
            self._due_at = self._known_beforehand()
        if self._due_at is None and self._flowing_at is not None and now > self._flowing_at + MAX_LOAD_S:
            self._due_at, self.missed = now, True
        return None if self._due_at is None else self._due_at - now

    def _known_beforehand(self) -> float | None:
        moment = self._moment
        if moment.kind == RECOVERY and self._started_at is not None:
            return self._started_at + moment.share * self._start_s
        if moment.kind == LOAD and self._flowing_at is not None:
            return self._flowing_at + moment.delay_s
        return None
