"""Runs scenarios over many seeds, in several processes, and explains the failures. It prints no output.

A failed seed runs once more with a chronicle: the world is the same, since the observer only looks.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final

from raftlog.base.log import configure_log
from raftlog_chaos.chronicle import Chronicle, Event
from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.scenarios.report import Report, report_of
from raftlog_chaos.simulator.loop import Run, SimLoop, simulate

RECOVERY_LIMIT_S: Final = 600.0
"""Virtual seconds that a scenario may take beyond those it was given."""

FAILURE_CHARS: Final = 2_000

STRICT_SCENARIO: Final = "endurance"
STRICT_SEEDS: Final = 300
"""Over so many seeds of that scenario every class of fault must have struck, or the sweep proves less than it says."""


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One scenario to run with one seed for some virtual seconds."""

    scenario: str
    seed: int
    seconds: float

    @property
    def replay(self) -> str:
        """The command line that runs it again, with the nodes' log."""
        return f"raftlog sim --scenario {self.scenario} --seconds {self.seconds:g} --seed {self.seed} --log"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed. `failure` is empty if all promises were kept; `events` are what explains it.

    `busy_s`: processor seconds.
    """

    tale: ScenarioRun
    report: Report = field(default_factory=Report)
    digest: str = ""
    steps: int = 0
    virtual_s: float = 0.0
    busy_s: float = 0.0
    failure: str = ""
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class Summary:
    """The sum of many seeds. `real_s` is the sweep's; `busy_s` the processor time of the seeds."""

    seeds: int = 0
    real_s: float = 0.0
    busy_s: float = 0.0
    virtual_s: float = 0.0
    steps: int = 0
    acked: int = 0
    elections: int = 0
    slowest_recovery_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    strict_seeds: int = 0
    strict_faults: Counter[str] = field(default_factory=Counter)
    """The faults of the seeds of STRICT_SCENARIO."""
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        if outcome.failure:
            self.failures.append(outcome)
            return
        self.busy_s += outcome.busy_s
        self.virtual_s += outcome.virtual_s
        self.steps += outcome.steps
        self.acked += outcome.report.acked
        self.elections += outcome.report.elections
        self.slowest_recovery_s = max(self.slowest_recovery_s, outcome.report.recovery_s)
        for name, count in outcome.report.faults.items():
            self.faults[name] += count  # a Counter keeps zeros that are added so
        if outcome.tale.scenario == STRICT_SCENARIO:
            self.strict_seeds += 1
            for name, count in outcome.report.faults.items():
                self.strict_faults[name] += count

    @property
    def silent_faults(self) -> list[str]:
        """Faults that could have struck and never did."""
        return sorted(name for name, count in self.faults.items() if not count)

    @property
    def missed_faults(self) -> list[str]:
        """Faults that STRICT_SEEDS or more seeds of STRICT_SCENARIO should have brought, and did not."""
        if self.strict_seeds < STRICT_SEEDS:
            return []
        return sorted(name for name, count in self.strict_faults.items() if not count)


def run_seed(tale: ScenarioRun) -> Outcome:
    """Run a scenario in a world of its own; if it fails, once more for its chronicle. KeyError: no such scenario."""
    began_at = time.process_time()
    try:
        run = _simulate(tale, lambda _loop: None)
    except Exception as error:
        took = time.process_time() - began_at
        return Outcome(tale, busy_s=took, failure=_text_of(error), events=tuple(_explain(tale)))
    took = time.process_time() - began_at
    return Outcome(tale, report_of(run.result), run.digest, run.steps, run.seconds, took)


def _simulate(tale: ScenarioRun, furnish: Callable[[SimLoop], object]) -> Run[Any]:
    scenario = SCENARIOS[tale.scenario]

    async def program(loop: SimLoop) -> Any:
        furnish(loop)
        try:
            return await scenario(loop, tale.seconds)
        finally:
            loop.trace.on_note = None  # how the world is taken down is no part of the scenario

    return simulate(program, seed=tale.seed, limit_s=tale.seconds + RECOVERY_LIMIT_S)


def _explain(tale: ScenarioRun) -> list[Event]:
    """Run a failing scenario, with a chronicle, and return the events that matter."""
    chronicles: list[Chronicle] = []
    try:
        _simulate(tale, lambda loop: chronicles.append(loop.keep_chronicle()))
    except Exception as error:
        return chronicles[0].explain(_text_of(error))
    return []


def _text_of(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if not isinstance(error, AssertionError):
        text = "".join(traceback.format_exception(error))
    return text[:FAILURE_CHARS]


class Sweep:
    """Runs scenarios, `jobs` at a time; iterate over the outcomes as they come. `summary` grows with them.

    `budget_s`: no run begins after so many real seconds. Unless `keep_going`, none begins after a failure.
    """

    def __init__(
        self,
        tales: Iterable[ScenarioRun],
        *,
        jobs: int = 1,
        budget_s: float | None = None,
        keep_going: bool = False,
    ) -> None:
        self.summary = Summary()
        self._tales = iter(tales)
        self._jobs = jobs
        self._budget_s = budget_s
        self._keep_going = keep_going
        self._began_at = time.perf_counter()

    def __iter__(self) -> Iterator[Outcome]:
        outcomes = self._in_turn() if self._jobs == 1 else self._side_by_side()
        for outcome in outcomes:
            self.summary.add(outcome)
            self.summary.real_s = time.perf_counter() - self._began_at
            yield outcome

    def _next(self) -> ScenarioRun | None:
        spent = time.perf_counter() - self._began_at
        if (self._budget_s is not None and spent >= self._budget_s) or (
            self.summary.failures and not self._keep_going
        ):
            return None
        return next(self._tales, None)

    def _in_turn(self) -> Iterator[Outcome]:
        while (tale := self._next()) is not None:
            yield run_seed(tale)

    def _side_by_side(self) -> Iterator[Outcome]:
        # spawned, not forked: every process is as fresh as the replaying process
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._jobs, mp_context=context, initializer=begin_worker)
        try:
            yield from self._from_pool(pool.submit)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        pool.shutdown()

    def _from_pool(self, submit: Callable[..., Future[Outcome]]) -> Iterator[Outcome]:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < self._jobs and (tale := self._next()) is not None:
                running.add(submit(run_seed, tale))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def begin_worker() -> None:
    """Prepare a process that runs scenarios: its nodes are silent, and Ctrl-C is the parent's."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silence()


class _Nowhere:
    """A stream for the nodes' log: what a seed needs to say is in its failure."""

    def write(self, line: str) -> None:
        """Forget it."""

    def flush(self) -> None:
        """There is no buffer."""

    def isatty(self) -> bool:
        return False


def silence() -> None:
    """Make the nodes of this process silent from now on."""
    configure_log(level="error", format="console", stream=_Nowhere())
