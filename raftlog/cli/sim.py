"""`raftlog sim`: run a scenario of the simulator with one seed or many, and explain each seed that failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from raftlog.base.log import configure_log
from raftlog.cli import exits
from raftlog.cli.end_signals import ended_by_signals
from raftlog_chaos.chronicle import Event
from raftlog_chaos.regressions import REGRESSIONS
from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.simulator.hosts import current_process
from raftlog_chaos.simulator.loop import START_S
from raftlog_chaos.sweep import STRICT_SCENARIO, Outcome, ScenarioRun, Summary, Sweep, silence

SHOWN_FAILURES = 20
"""Failures that are reported in full; the others are only named."""

ALL = "all"
"""In the place of a scenario's name: all of them in turn, seed by seed."""

Say = Callable[[str], None]
Advance = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command line."""

    seed: Annotated[int | None, typer.Option(min=0, help="replay one seed exactly")] = None
    seeds: Annotated[str, typer.Option(metavar="A..B", help="first and last seed of a sweep")] = "1..10"
    scenario: Annotated[
        str, typer.Option("--scenario", "--story", help="what to run, see --scenarios; all: each in turn")
    ] = "endurance"
    seconds: Annotated[float, typer.Option(min=0.0, help="length of each storm, virtual seconds")] = 6.0
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="processes")] = 1
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="start no seed after this many real seconds")
    ] = None
    keep_going: Annotated[bool, typer.Option("--keep-going", help="do not stop at a failure")] = False
    log: Annotated[bool, typer.Option("--log", help="with --seed: the nodes' log in virtual time")] = False
    regressions: Annotated[
        bool, typer.Option("--regressions", help="first the seeds that find planted bugs")
    ] = False
    scenarios: Annotated[bool, typer.Option("--scenarios", "--stories", help="list the scenarios")] = False

    def tales(self) -> list[ScenarioRun]:
        """Return all runs, regressions first. Raise ValueError for an invalid range of seeds."""
        known = REGRESSIONS if self.regressions else ()
        first, last = seeds_of(self.seeds)
        return [
            *(ScenarioRun(each.scenario, each.seed, each.seconds) for each in known),
            *(ScenarioRun(self.scenario_of(seed), seed, self.seconds) for seed in range(first, last + 1)),
        ]

    def scenario_of(self, seed: int) -> str:
        """Return the scenario for a seed: of all scenarios each has its turn."""
        return [*SCENARIOS][seed % len(SCENARIOS)] if self.scenario == ALL else self.scenario


def run(request: Request) -> int:
    """Run whole clusters in virtual time through faults, a world per seed, and explain each seed that fails."""
    if request.scenarios:
        for name, scenario in SCENARIOS.items():
            summary = (scenario.__doc__ or "").splitlines()[0].removesuffix(" Raises AssertionError.")
            print(f"{name:14} {summary}")
        return 0
    if request.scenario not in (ALL, *SCENARIOS):
        print(
            f"raftlog: no scenario is called {request.scenario}; there are {', '.join(SCENARIOS)}",
            file=sys.stderr,
        )
        return exits.USAGE
    if request.seed is not None:
        return replay(
            ScenarioRun(request.scenario_of(request.seed), request.seed, request.seconds), log=request.log
        )
    try:
        tales = request.tales()
    except ValueError:
        print(f"raftlog: {request.seeds!r} is no range of seeds such as 1..100", file=sys.stderr)
        return exits.USAGE
    return sweep(request, tales)


class VirtualLog:
    """A stream that puts virtual seconds and the host in the place of each line's wall time."""

    def write(self, line: str) -> None:
        process = current_process.get(None)
        if process is not None and line.strip():
            _, _, event = line.partition(" ")
            line = f"{process.host.loop.time() - START_S:10.5f} {process.host.name:7} {event}"
        sys.stdout.write(line)

    def flush(self) -> None:
        sys.stdout.flush()

    def isatty(self) -> bool:
        return False


def replay(tale: ScenarioRun, *, log: bool) -> int:
    """Run one scenario and print its digest and report, or its failure; return the exit code."""
    if log:
        configure_log(level="info", format="console", stream=VirtualLog())
    else:
        silence()
    for outcome in Sweep([tale]):
        if outcome.failure:
            print(text_of(outcome))
            return exits.FAILED
        print(f"seed {tale.seed} of {tale.scenario}: all promises kept")
        print(f"digest   {outcome.digest}")
        print(
            f"time     {outcome.virtual_s:.3f} virtual s in {outcome.busy_s:.1f} processor s, {outcome.steps:,} steps"
        )
        report = outcome.report
        print(f"acked    {report.acked:,} records, {report.records:,} in the logs")
        print(f"elected  {report.elections} times; recovered in {report.recovery_s:.3f} virtual s")
        struck = ", ".join(f"{name} {count}" for name, count in report.faults.items() if count)
        print(f"faults   {struck or 'none'}")
    return 0


def sweep(options: Request, tales: list[ScenarioRun]) -> int:
    """Run many, show progress, explain failures, sum up; return the exit code."""
    silence()
    run = Sweep(tales, jobs=options.jobs, budget_s=options.budget, keep_going=options.keep_going)
    try:
        with ended_by_signals(), _progress(len(tales)) as (say, advance):
            for outcome in run:
                advance(outcome)
                if outcome.failure and len(run.summary.failures) <= SHOWN_FAILURES:
                    say(text_of(outcome))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        print(text_of_summary(run.summary, len(tales)))
        return exits.INTERRUPTED
    print(text_of_summary(run.summary, len(tales)))
    if not run.summary.seeds:
        print("raftlog: no seed was run, so nothing was proved", file=sys.stderr)
        return exits.NOT_RUN
    missed = run.summary.missed_faults
    if missed:
        counted = f"{run.summary.strict_seeds} seeds of {STRICT_SCENARIO}"
        print(f"raftlog: in {counted} these faults never struck: {', '.join(missed)}", file=sys.stderr)
    return exits.FAILED if run.summary.failures or missed else 0


@contextmanager
def _progress(total: int) -> Iterator[tuple[Say, Advance]]:
    """A bar on a terminal; elsewhere a line per tenth of the way."""
    if not sys.stdout.isatty():
        done: list[Outcome] = []

        def advance(outcome: Outcome) -> None:
            done.append(outcome)
            if len(done) * 10 // total > (len(done) - 1) * 10 // total:
                failed = sum(1 for each in done if each.failure)
                print(f"{len(done)} of {total} seeds, {failed} failed", flush=True)

        yield lambda text: print(text, flush=True), advance
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("", total=total)
        say = lambda text: bar.console.print(text, markup=False, highlight=False)  # noqa: E731
        yield say, lambda _outcome: bar.advance(task)


def text_of(outcome: Outcome) -> str:
    """Return a failure as a page: what was violated, the line that replays it, what happened before."""
    tale = outcome.tale
    lines = [f"FAILED: {tale.scenario}, seed {tale.seed}", f"  replay: {tale.replay}"]
    if outcome.events:
        lines += [f"  {'time s':>10}  {'node':8} event", *map(_line_of, outcome.events)]
    lines += ["  violated:", *(f"    {each}" for each in outcome.failure.splitlines())]
    return "\n".join(lines)


def _line_of(event: Event) -> str:
    offsets = f" {event.start}..{event.end - 1}" if event.end > event.start else ""
    match event.kind:
        case "high watermark":
            text = f"{event.text}high watermark {event.start} → {event.end}"
        case "truncated":
            text = f"{event.text}truncated to {event.start} (from {event.end})"
        case "appended" | "acked" | "violated":
            text = f"{event.text}{event.kind}{offsets}" if offsets else f"{event.kind.upper()} {event.text}"
        case _:
            text = event.text
    return f"  {event.at_s:10.5f}  {event.node:8} {text}"


def text_of_summary(summary: Summary, asked: int) -> str:
    """Return what many seeds add up to, a figure a line."""
    real, busy = max(summary.real_s, 1e-9), max(summary.busy_s, 1e-9)
    struck = ", ".join(f"{name} {count:,}" for name, count in sorted(summary.faults.items()) if count)
    lines = [
        f"seeds      {summary.seeds} of {asked}, {len(summary.failures)} failed, {summary.seeds / real:.2f} per second",
        f"time       {summary.virtual_s:,.0f} virtual s in {real:.0f} s; "
        f"{summary.virtual_s / busy:.1f} virtual s per processor s",
        f"acked      {summary.acked:,} records; elections {summary.elections:,}; "
        f"slowest recovery {summary.slowest_recovery_s:.1f} virtual s",
        f"faults     {struck or 'none'}",
    ]
    if summary.silent_faults:
        lines.append(f"never      {', '.join(summary.silent_faults)}")
    lines += [f"failed     {each.tale.replay}" for each in summary.failures]
    return "\n".join(lines)


def seeds_of(text: str) -> tuple[int, int]:
    """Return the first and last seed of "A..B", or of one seed "A". Raises ValueError."""
    first, dots, last = text.partition("..")
    found = int(first), int(last if dots else first)
    if found[0] < 0 or found[1] < found[0]:
        raise ValueError(text)
    return found
