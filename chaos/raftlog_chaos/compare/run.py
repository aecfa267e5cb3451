"""A comparison from its first round to its last: systems in turn, parts one after the other, and a limit of time.

Every second round goes through the systems in the opposite order, so that a machine that gets slower or faster favours
none. Parts that run once come after the first round: every figure is measured once before any is measured again. A
system that is missing, dies, refuses or is too slow ends its part with a note, and the run goes on. So it does after
any other error of a system.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.base.disk import make_folders
from raftlog_chaos.compare.figures import Comparison
from raftlog_chaos.compare.loads import Load, LoadFailed, TooSlow
from raftlog_chaos.compare.parts.bench import Bench, Part, Scale
from raftlog_chaos.compare.systems.system import Failed, Missing, Refused, System

WARM_UP_RATE: Final = 1_000
EXPLAINED: Final = (Failed, Missing, Refused, TooSlow, LoadFailed)
"""Errors with a message that explains them. Other errors are shown with their type."""


class Plan(NamedTuple):
    """The systems and parts of a run. `limit_s`: no part begins later than that."""

    systems: Sequence[type[System]]
    parts: Sequence[Part]
    scale: Scale
    rounds: int
    limit_s: float
    folder: Path


class Run:
    """Carries out a plan. `comparison` is filled as it goes, and can be shown whenever it is interrupted."""

    def __init__(self, plan: Plan, comparison: Comparison, say: Callable[[str], None]) -> None:
        self.comparison = comparison
        self.plan = plan
        self._say = say
        self._began_at = time.monotonic()
        self._round = 0
        self._when = ""
        self._gone: set[str] = set()

    def run(self) -> None:
        """Run the first round, then what runs once, then the other rounds, as far as there is time."""
        try:
            self._rounds()
        finally:
            self.comparison.seconds = time.monotonic() - self._began_at

    def _rounds(self) -> None:
        often = [part for part in self.plan.parts if not part.once]
        for number in range(self.plan.rounds):
            if number and self._no_time_is_left:
                return
            self._round = self.comparison.rounds = number + 1
            self._when = f"round {self._round}"
            for system in self.plan.systems if number % 2 == 0 else reversed(self.plan.systems):
                self._take(system, often)
            if not number:
                self._take_once()

    def _take_once(self) -> None:
        self._when = "after the first round"
        for system in self.plan.systems:
            if not system.variant:
                self._take(system, [part for part in self.plan.parts if part.once])

    def _take(self, system: type[System], parts: Sequence[Part]) -> None:
        """Run one system's parts, with parts that need clusters of their own last."""
        if not parts or system.key in self._gone:
            return
        if self._is_over(system, ", ".join(part.name for part in parts)):
            return
        together = [part for part in parts if not part.alone]
        try:
            system.version()
            if together:
                self._together(system, together)
        except Missing as error:
            self._gone.add(system.key)
            self.comparison.note(system.key, "", f"missing: {error}")
            return
        except Exception as error:  # a dying peer fails in unforeseen ways
            self._fail(system, "", error)
        for part in parts:
            if part.alone and not self._is_over(system, part.name):
                self._alone(system, part)

    def _alone(self, system: type[System], part: Part) -> None:
        """Run a part that starts clusters of its own."""
        self._say(f"{self._when}: {system.title}: {part.name}")
        try:
            with self._folder(system) as folder, closing(system(folder)) as idle:
                self._measure(part, self._bench(idle, part, ready_s=0.0))
        except Exception as error:  # as above
            self._fail(system, part.name, error)

    def _together(self, system: type[System], parts: Sequence[Part]) -> None:
        """Run parts on one cluster, which is started again after a part that ended in trouble."""
        waiting = list(parts)
        while waiting:
            self._say(f"{self._when}: {system.title}: start")
            with self._open(system, 3) as (cluster, ready_s):
                warm = False
                while waiting:
                    part = waiting.pop(0)
                    if self._is_over(system, part.name):
                        return
                    if not (part.cold or warm):
                        _warm_up(cluster)
                        warm = True
                    self._say(f"{self._when}: {system.title}: {part.name}")
                    if not self._measure(part, self._bench(cluster, part, ready_s=ready_s)):
                        break

    def _bench(self, cluster: System, part: Part, *, ready_s: float) -> Bench:
        system = type(cluster)
        return Bench(
            system=cluster,
            scale=self.plan.scale,
            ready_s=ready_s,
            again=self._round > 1,
            note=lambda why: self.comparison.note(system.key, part.name, why),
            open=partial(self._open, system),
        )

    def _measure(self, part: Part, bench: Bench) -> bool:
        """Take a part's samples; returns whether the system is still as it should be."""
        try:
            for sample in part.measure(bench):
                self.comparison.add(part.name, bench.system.key, self._round, sample)
        except Refused as error:
            bench.note(str(error))
        except Exception as error:  # as above
            self._fail(type(bench.system), part.name, error)
            return False
        return True

    def _fail(self, system: type[System], part: str, error: Exception) -> None:
        first_line = next(iter(str(error).splitlines()), "")
        why = first_line if isinstance(error, EXPLAINED) else f"{type(error).__name__}: {first_line}"
        self._say(f"{self._when}: {system.title}: {why}")
        self.comparison.note(system.key, part, f"{self._when}: {why}")

    @property
    def _no_time_is_left(self) -> bool:
        return time.monotonic() - self._began_at >= self.plan.limit_s

    def _is_over(self, system: type[System], what: str) -> bool:
        """Whether a part may not begin any more; what has no figure at all is noted."""
        if self._no_time_is_left and self._round == 1:
            self.comparison.note(system.key, what, f"{self._when}: no time was left")
        return self._no_time_is_left

    @contextmanager
    def _open(
        self, system: type[System], nodes: int, *, slower_s: float = 0.0
    ) -> Iterator[tuple[System, float]]:
        """Start a cluster in a folder of its own; both end with the `with`."""
        with self._folder(system) as folder:
            cluster = system(folder, nodes)
            try:
                if slower_s:
                    cluster.slow_syncs(slower_s)
                yield cluster, cluster.start()
            finally:
                cluster.close()

    @contextmanager
    def _folder(self, system: type[System]) -> Iterator[Path]:
        folder = self.plan.folder / f"{system.key}-{time.monotonic_ns()}"
        make_folders(folder)
        interrupted = False
        try:
            yield folder
        except KeyboardInterrupt:
            interrupted = (
                True  # the user wants the table first: thousands of partitions take minutes to remove
            )
            raise
        finally:
            if not interrupted:
                shutil.rmtree(folder, ignore_errors=True)


def _warm_up(cluster: System) -> None:
    """Load a system for a while, so that initial compilation and growth are not measured.

    Large requests take other ways through a system than small requests.
    """
    if cluster.warm_up_s:
        cluster.run(Load(kind="produce", topic="produce-6", seconds=cluster.warm_up_s))
        seconds = cluster.warm_up_small_s
        cluster.run(Load(kind="ack", topic="latency", record_bytes=100, rate=WARM_UP_RATE, seconds=seconds))
