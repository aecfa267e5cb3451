"""A wait ends because progress stops, not because a clock says so: on a slow machine it only takes longer.

Two kinds of progress count. The state that the condition looks at (offsets, epochs, replicas in sync) may change for as
long as it likes. Processes also show signs of life: they start, end, write their logs, use the CPU. These count only
for LIFE_S after that state last changed, so a process that spins for ever does not prolong the wait for ever. Idle
nodes use the CPU, too, so only CPU_STEP_S of it is a sign. Nodes without a leader repeat the same events in their logs,
so only a change among the last events is a sign.

RAFTLOG_PATIENCE multiplies these limits and whatever fixed limits remain, which are written as `patient(seconds)`.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from raftlog.base import variables

VARIABLE: Final = variables.PATIENCE
STALL_S: Final = 60.0
"""A wait without progress for this long has failed."""
LIFE_S: Final = 600.0
CPU_STEP_S: Final = 1.0
"""So many seconds of CPU time for each process, on average, are a sign of life. An idle node takes minutes for them."""
HELD_UP_S: Final = 10.0
"""The time between two looks counts as no more than this: beyond it, the waiting process itself did not run."""
MIN_PAUSE_S: Final = 0.01
MAX_PAUSE_S: Final = 1.0
PAUSE_SHARE: Final = 3
"""A pause is so many times the CPU time of the look before it, which the processes waited for may need themselves."""
COMPARE_EVERY_S: Final = 1.0
"""So often the state and the signs are looked at, which costs more than to look at the condition."""
YOUNG_S: Final = 5.0
EVENT: Final = re.compile(rb'"event":"(\w+)"')
TAIL_BYTES: Final = 64 * 1024
"""So much of a log is searched for its last events, some hundred lines."""


def patience() -> float:
    """Return the factor in RAFTLOG_PATIENCE, 1 without it. Raises ValueError."""
    text = os.environ.get(VARIABLE) or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0.01 <= factor <= 1000:
        raise ValueError(f"{VARIABLE}: a factor from 0.01 to 1000, not {text!r}")
    return factor


def patient(seconds: float) -> float:
    """Return a fixed limit, multiplied by RAFTLOG_PATIENCE."""
    return seconds * patience()


class Stalled(RuntimeError):
    """A wait without further progress. `waited_s` is the whole of it."""

    def __init__(self, message: str, waited_s: float) -> None:
        super().__init__(message)
        self.waited_s = waited_s


class Signs(NamedTuple):
    """Signs of life of some processes: `printed` is any comparable value, and `cpu_s` all CPU time that they used."""

    printed: object = None
    cpu_s: float = 0.0
    processes: int = 0


def no_signs() -> Signs:
    """Return the signs of no process: only the state counts."""
    return Signs()


class Wait:
    """One wait for something. Call `pause` as long as it has not happened.

    `seen` returns the state that the condition looks at, comparable and readable; `signs` the processes' signs of life.
    With `limit_s` the wait ends after that time at the latest, whatever progresses.
    """

    def __init__(
        self,
        what: str,
        *,
        seen: Callable[[], object] = lambda: None,
        signs: Callable[[], Signs] = no_signs,
        clock: Callable[[], float] = time.monotonic,
        stall_s: float = STALL_S,
        limit_s: float | None = None,
    ) -> None:
        self._what = what
        self._seen = seen
        self._take_signs = signs
        self._clock = clock
        self._stall_s = patient(stall_s)
        self._limit_s = math.inf if limit_s is None else patient(limit_s)
        self._began_at = self._looked_at = self._compared_at = clock()
        self._used_s = time.thread_time()
        self._still_s = self._life_s = 0.0
        """How long there was no progress; how long there were only signs of life."""
        self._state: object = None
        self._signs: Signs | None = None
        """None until the first comparison: most waits end before it, and reading /proc takes longer than they do."""

    @property
    def waited_s(self) -> float:
        return self._clock() - self._began_at

    def pause(self) -> float:
        """Look at what has progressed; returns how many seconds to pause before the next look. Raises Stalled."""
        now = self._clock()
        self._still_s += min(now - self._looked_at, HELD_UP_S)
        self._looked_at = now
        if now - self._compared_at >= COMPARE_EVERY_S:
            self._compared_at = now
            self._compare(self._seen(), self._take_signs())
        if self._still_s >= self._stall_s or self.waited_s >= self._limit_s:
            raise Stalled(self._describe(), self.waited_s)
        before_s, self._used_s = self._used_s, time.thread_time()
        return min(max(MIN_PAUSE_S, PAUSE_SHARE * (self._used_s - before_s)), MAX_PAUSE_S)

    def _compare(self, state: object, signs: Signs) -> None:
        before = self._signs
        if before is None:
            self._state, self._signs = state, signs
        elif state != self._state:
            self._state, self._signs = state, signs
            self._still_s = self._life_s = 0.0
        elif signs.printed != before.printed or signs.cpu_s - before.cpu_s >= CPU_STEP_S * max(
            1, signs.processes
        ):
            self._signs = signs
            if self._life_s < patient(LIFE_S):
                self._life_s += self._still_s
                self._still_s = 0.0

    def _describe(self) -> str:
        is_over = self.waited_s >= self._limit_s
        ended = "timed out after" if is_over else f"no progress for {self._still_s:.0f} of"
        found = [f"{self._what}: {ended} {self.waited_s:.0f} s"]
        if self._life_s:
            found.append(f"processes were busy for {self._life_s:.0f} s without a result")
        state = self._seen() if is_over or self._signs is None else self._state
        if state is not None:
            found.append(f"last seen: {state}")
        return "; ".join(found)


def wait_until(
    holds: Callable[[], object],
    what: str,
    *,
    seen: Callable[[], object] = lambda: None,
    signs: Callable[[], Signs] | None = None,
    stall_s: float = STALL_S,
) -> float:
    """Look until `holds()`; returns the seconds that took. Raises Stalled.

    `signs`: by default of all processes that this process started.
    """
    wait = Wait(what, seen=seen, signs=signs or signs_of_descendants, stall_s=stall_s)
    while not holds():
        time.sleep(wait.pause())
    return wait.waited_s


async def wait_until_async(
    holds: Callable[[], Awaitable[object]],
    what: str,
    *,
    seen: Callable[[], object] = lambda: None,
    stall_s: float = STALL_S,
) -> float:
    """Do the same as `wait_until` on an event loop."""
    wait = Wait(what, seen=seen, signs=signs_of_descendants, stall_s=stall_s)
    while not await holds():  # noqa: ASYNC110 - what is looked at is in other processes
        await asyncio.sleep(wait.pause())
    return wait.waited_s


class ProcessStat(NamedTuple):
    """The state of a process in /proc. `cpu_s` is also that of its dead children."""

    pid: int
    parent: int
    stands_still: bool
    """It was stopped by a signal, or is dead."""
    cpu_s: float
    age_s: float


def signs_of_descendants() -> Signs:
    """Return the signs of life of all descendants of this process; none without a /proc.

    They include the ids of processes, their stopped states, and what `_printed` returns of each. Young processes do not
    count: many waits query by starting processes.
    """
    return _signs(descendants_of(os.getpid()))


def signs_of_process(pid: int) -> Signs:
    """Return the signs of life of one process."""
    return _signs([each for each in (_process(pid),) if each is not None])


def _signs(found: list[ProcessStat]) -> Signs:
    grown = [each for each in found if each.age_s >= YOUNG_S]
    printed = frozenset((each.pid, each.stands_still, _printed(each.pid)) for each in grown)
    return Signs(printed, sum(each.cpu_s for each in found), len(grown))


def descendants_of(pid: int) -> list[ProcessStat]:
    """Return the processes that a process started, that those started, and so on; parents come before children."""
    by_parent: dict[int, list[ProcessStat]] = {}
    for each in _processes():
        by_parent.setdefault(each.parent, []).append(each)
    found, parents = [], [pid]
    while parents:
        children = by_parent.get(parents.pop(), [])
        found += children
        parents += [each.pid for each in children]
    return found


def _processes() -> Iterator[ProcessStat]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return  # not on Linux
    for name in names:
        found = _process(int(name)) if name.isdecimal() else None
        if found is not None:
            yield found


def _process(pid: int) -> ProcessStat | None:
    """Return a process, None if it has ended, or without a /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent, *rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks_per_s, now_s = os.sysconf("SC_CLK_TCK"), time.clock_gettime(time.CLOCK_BOOTTIME)
    cpu_s, age_s = sum(map(int, rest[9:13])) / ticks_per_s, now_s - int(rest[17]) / ticks_per_s
    return ProcessStat(pid, int(parent), state in b"TtZX", cpu_s, age_s)


def _printed(pid: int) -> frozenset[bytes] | int:
    """Return the last events in the file that a process prints to, or the length of a file without events."""
    path = f"/proc/{pid}/fd/1"
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return 0  # a look would take what is meant for another reader
        with open(path, "rb") as file:
            file.seek(max(0, found.st_size - TAIL_BYTES))
            return frozenset(EVENT.findall(file.read(TAIL_BYTES))) or found.st_size
    except OSError:
        return 0
