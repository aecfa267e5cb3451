"""`raftlog chaos`: cases run in sequence against real nodes, each judged, each leaving a folder.

The nodes are taken down before this returns, whatever happens (Ctrl-C, SIGTERM, a failure of our own).
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import typer

from raftlog import __version__
from raftlog.base.disk import write_file
from raftlog.cli import exits
from raftlog.cli.chaos_screen import Screen, listing, summary
from raftlog.cli.librdkafka import confluent_kafka
from raftlog_chaos.checkers import judge
from raftlog_chaos.faults import FAULTS
from raftlog_chaos.history import Header, HistoryFile, StoredHistory
from raftlog_chaos.runs import folder as run_folder
from raftlog_chaos.runs.case import Case, CaseError, read_cases, suite_of
from raftlog_chaos.runs.landmarks import read_events, silent, violations
from raftlog_chaos.runs.outcome import Judgement, Outcome, broken, conclude, unrun
from raftlog_chaos.runs.record import Record
from raftlog_chaos.runs.rig import OpenTestbed, Unavailable
from raftlog_chaos.runs.runner import Runner
from raftlog_chaos.runs.stock import stock_rig
from raftlog_chaos.testbeds.find import TestbedKind, find_suites, find_testbeds, fitting

ANYWHERE: Final = "auto"
OVERHEAD_S: Final = 15.0
"""The time of a case besides its faults: start, healing, reading, judging."""
MIN_FAULTS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The options of the command line."""

    cases: Annotated[list[str] | None, typer.Argument(metavar="CASE", help="default: a suite")] = None
    suite: Annotated[str, typer.Option(help="ci: nine cases in seven minutes; full: every fault")] = ""
    testbed: Annotated[
        str,
        typer.Option(
            "--testbed",
            "--place",
            help="processes, namespaces, or auto: wherever a case's faults can be injected",
        ),
    ] = ANYWHERE
    minutes: Annotated[float, typer.Option(min=0, help="total time (default: the cases' own)")] = 0
    seed: Annotated[
        int | None, typer.Option(help="which node is hit, when, and by which fault (default: random)")
    ] = None
    out: Annotated[Path, typer.Option(help="where each run leaves its folder")] = Path("chaos-runs")
    chaos_dir: Annotated[
        Path | None,
        typer.Option(help="a folder with your own suites/ and testbeds/ (default: raftlog's)"),
    ] = None
    listing: Annotated[bool, typer.Option("--list", help="list the cases and where they can run")] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="exit with 5 if this machine can't inject a fault of a case")
    ] = False


def run(options: ChaosOptions) -> int:
    """Hurt a real cluster while stock clients use it, and judge everything they saw: is anything lost or wrong?"""
    try:
        known = read_cases(find_suites(options.chaos_dir), FAULTS)
        chosen = _choose(options, known)
        testbeds = find_testbeds(options.chaos_dir)
    except (CaseError, OSError, LookupError) as error:
        print(f"raftlog: {error}", file=sys.stderr)
        return exits.USAGE
    if options.testbed not in (ANYWHERE, *testbeds):
        print(f"raftlog: no testbed {options.testbed} (there are {', '.join(testbeds)})", file=sys.stderr)
        return exits.USAGE
    if options.testbed != ANYWHERE:
        testbeds = {options.testbed: testbeds[options.testbed]}
    if options.listing:
        listing(known.values() if not options.cases and not options.suite else chosen, testbeds)
        return 0
    confluent_kafka()  # before a node starts: every case needs it
    return Session(options, _stretched(chosen, options.minutes), testbeds).run()


def _choose(options: ChaosOptions, known: dict[str, Case]) -> list[Case]:
    """Return the cases that were asked for. Raises LookupError."""
    unknown = [name for name in options.cases or () if name not in known]
    if unknown:
        raise LookupError(f"no such case: {', '.join(unknown)} (raftlog chaos --list shows all)")
    if options.cases:
        return [known[name] for name in options.cases]
    if options.listing and not options.suite:
        return list(known.values())
    suite = suite_of(known, options.suite or "ci")
    if not suite:
        raise LookupError(f"no such suite: {options.suite}")
    return suite


def _stretched(cases: Sequence[Case], minutes: float) -> list[Case]:
    """Share the minutes out among the cases."""
    if not minutes:
        return list(cases)
    each_s = max(minutes * 60 / len(cases) - OVERHEAD_S, MIN_FAULTS_S)
    return [case.lasting(each_s) for case in cases]


class Finished(NamedTuple):
    """A run that is over and not judged yet; its testbed is closed."""

    record: Record
    testbed: OpenTestbed
    folder: Path


class Session:
    """A sequence of cases. Cases that finished before an interruption are still reported."""

    def __init__(
        self, options: ChaosOptions, cases: Sequence[Case], testbeds: dict[str, TestbedKind]
    ) -> None:
        self._options = options
        self._cases = cases
        self._testbeds = testbeds
        self._seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
        self.outcomes: list[Outcome] = []

    def run(self) -> int:
        """Run them all; returns the exit code."""
        began = datetime.now(UTC)
        with Screen(len(self._cases)) as screen:
            count = len(self._cases)
            screen.say(
                f"{count} {'case' if count == 1 else 'cases'}, seed {self._seed}, folders in {self._options.out}"
            )
            try:
                for case in self._cases:
                    # a loop for each, since its threads live where the testbed is
                    outcome = self._judged(asyncio.run(self._run_case(case, screen)), screen)
                    self.outcomes.append(outcome)
                    screen.finished(outcome)
                interrupted = False
            except (KeyboardInterrupt, asyncio.CancelledError):
                interrupted = True
        if self.outcomes:
            summary(self.outcomes, (datetime.now(UTC) - began).total_seconds())
            self._write_summary(began)
            for outcome in self.outcomes:
                report = Path(outcome.folder) / run_folder.REPORT
                if outcome.folder and report.exists():
                    print(f"report: {report}")
        if interrupted:
            print("raftlog: interrupted; every node was taken down", file=sys.stderr)
            return exits.INTERRUPTED
        for line in not_run(self.outcomes):
            print(f"raftlog: {line}", file=sys.stderr)
        return code_of(self.outcomes, strict=self._options.strict)

    def _write_summary(self, began: datetime) -> None:
        path = self._options.out / f"{began.strftime('%Y%m%d-%H%M%S')}-summary.json"
        write_file(path, msgspec.json.format(msgspec.json.encode(self.outcomes), indent=1) + b"\n")

    def _judged(self, ended: Finished | Outcome, screen: Screen) -> Outcome:
        if isinstance(ended, Outcome):
            return ended
        screen.phase("judging")
        try:
            return _conclude(ended)
        except Exception as error:  # as below
            reason = f"{type(error).__name__}: {error}"
            return broken(ended.record.case, reason, traceback.format_exc(), seed=self._seed)

    async def _run_case(self, case: Case, screen: Screen) -> Finished | Outcome:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        screen.begin(case)
        try:
            return await self._run_somewhere(case, screen)
        except Exception as error:  # the other cases still run, and their outcomes are reported
            return broken(case, f"{type(error).__name__}: {error}", traceback.format_exc(), seed=self._seed)

    async def _run_somewhere(self, case: Case, screen: Screen) -> Finished | Outcome:
        """Run a case in the first testbed that fits and can be had on this machine."""
        reasons = {}
        for testbed in fitting(self._testbeds, case.faults.names):
            lacking = testbed.lacks(case.faults.names)
            if lacking and len(lacking) == len(case.faults.names):
                reasons[testbed.name] = f"can't inject {', '.join(lacking)}"
                continue
            try:
                return await self._run_in(testbed, case, screen)
            except Unavailable as error:
                reasons[testbed.name] = str(error)
        return unrun(case, reasons, seed=self._seed)

    async def _run_in(self, kind: TestbedKind, case: Case, screen: Screen) -> Finished:
        folder = run_folder.new_folder(self._options.out, case.name, datetime.now(UTC))
        run_folder.write_config(folder, case, testbed=kind.name, seed=self._seed, version=__version__)
        try:
            return await self._run_at(kind, case, screen, folder)
        except Unavailable:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _run_at(self, kind: TestbedKind, case: Case, screen: Screen, folder: Path) -> Finished:
        testbed = await kind.open(
            folder / run_folder.NODES,
            nodes=case.nodes,
            settings=case.settings,
            seed=self._seed,
            secured=case.secured,
        )
        header = Header(
            place=kind.name,
            workload="log",
            seed=self._seed,
            allowed=list(case.expect.allowed),
            queue=case.queue_terms,
        )
        history = HistoryFile(folder / run_folder.HISTORY, header)
        try:
            runner = Runner(
                case,
                stock_rig(testbed, retries=not case.expect.unseen, racks=case.racks),
                seed=self._seed,
                keep=history.keep,
                on_progress=screen.progress,
            )
            record = await runner.run()
        finally:
            await testbed.close()
            history.close()
        return Finished(record, testbed, folder)


def _conclude(ended: Finished) -> Outcome:
    """Judge a run that is over and write its folder."""
    record, testbed, folder = ended
    lines = {
        node: path.read_text(errors="replace").splitlines()
        for node, path in testbed.logs().items()
        if path.exists()
    }
    events = sorted(
        (event for node, own in lines.items() for event in read_events(node, own)),
        key=lambda event: event.wall_s,
    )
    logged = record.case.expect.logged
    found = [*testbed.violations(), *silent(testbed.nodes, lines)]
    found += [line for node, own in lines.items() for line in violations(node, own, logged)]
    history = StoredHistory(folder / run_folder.HISTORY)
    verdict = judge(history.header, history)
    excused = {name: found[0].allowed for name, found in verdict.anomalies.items()}
    judgement = Judgement(
        {name: count for name, count in verdict.cases.items() if not excused[name]},
        {name: count for name, count in verdict.cases.items() if excused[name]},
        verdict.text(),
    )
    outcome = replace_folder(conclude(record, judgement, events=events, scandals=found), folder)
    run_folder.write_outcome(folder, outcome, judgement.text)
    run_folder.write_timeline(folder, record, events)
    run_folder.write_figures(folder, record)
    run_folder.write_report(folder)
    run_folder.keep_logs(folder, data=outcome.status == "failed")
    return outcome


def replace_folder(outcome: Outcome, folder: Path) -> Outcome:
    """Return the outcome with the folder it is kept in."""
    return msgspec.structs.replace(outcome, folder=str(folder))


def not_run(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a sentence for each case and each fault that could not be run on this machine."""
    found = []
    for each in outcomes:
        if each.status == "not run":
            why = "; ".join([*each.reasons, *(f"{name}: {why}" for name, why in each.not_run.items())])
            found.append(f"case {each.case} was not run: {why}")
        else:
            found += [
                f"fault {name} of case {each.case} was not run: {why}" for name, why in each.not_run.items()
            ]
    return found


def code_of(outcomes: Sequence[Outcome], *, strict: bool) -> int:
    """Return 1 if a case failed or none was run in full, else 0. `strict`: 5 if a case or a fault could not be run."""
    if any(each.status == "failed" for each in outcomes):
        return exits.FAILED
    whole = sum(each.status == "passed" and not each.not_run for each in outcomes)
    if not whole:
        print("raftlog: no case was run in full, so nothing was proved", file=sys.stderr)
        return exits.FAILED
    return exits.NOT_RUN if strict and whole < len(outcomes) else exits.OK
