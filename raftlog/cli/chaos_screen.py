"""Shows a run of `raftlog chaos`: one line that is updated on a terminal, plain lines elsewhere, tables at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from raftlog_chaos.runs.case import Case
from raftlog_chaos.runs.outcome import Outcome, Stall, summed
from raftlog_chaos.runs.runner import Progress
from raftlog_chaos.testbeds.find import TestbedKind

COLOURS = {"passed": "green", "failed": "red", "not run": "yellow"}
SHOWN = 8
"""Reasons shown of a case; its folder has them all."""


class Screen:
    """Shows one case at a time on standard error."""

    def __init__(self, cases: int) -> None:
        self._cases = cases
        self._number = 0
        self._bar: Any = None
        self._task: Any = None
        self._case = ""
        self._phase = ""
        self._active: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[detail]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0, detail="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str, style: str = "") -> None:
        """Print one line, above what moves."""
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False, style=style or None)
        else:
            print(line, file=sys.stderr, flush=True)

    def begin(self, case: Case) -> None:
        """Show that a case begins."""
        self._number += 1
        self._case, self._phase, self._active = case.name, "", ()
        if self._bar is None:
            self.say(f"[{self._number}/{self._cases}] {case.name}: {case.title}")
        self._show("starting nodes", 0.0, "")

    def phase(self, name: str) -> None:
        """Show that a part of a case begins which has no progress bar."""
        self._show(name, 1.0, "")

    def progress(self, seen: Progress) -> None:
        """Show how far a case is."""
        if self._bar is None:
            self._say_changes(seen)
            return
        share = min(seen.phase_s / seen.phase_of_s, 1.0) if seen.phase_of_s else 0.0
        faults = f"  {', '.join(seen.active)}" if seen.active else ""
        self._show(seen.phase, share, f"{seen.acked:,} acked, {seen.read:,} read{faults}")

    def _show(self, phase: str, share: float, detail: str) -> None:
        if self._bar is not None:
            description = f"{self._number}/{self._cases} {self._case}: {phase}"
            self._bar.update(self._task, description=description, completed=share, detail=detail)

    def _say_changes(self, seen: Progress) -> None:
        if seen.phase != self._phase:
            self._phase = seen.phase
            self.say(f"  {seen.phase} ({seen.acked:,} acked, {seen.read:,} read)")
        for fault in seen.active:
            if fault not in self._active:
                self.say(f"    {fault}")
        self._active = seen.active

    def finished(self, outcome: Outcome) -> None:
        """Show that a case is over."""
        words = f"{outcome.case}: {outcome.status}"
        if outcome.status != "not run":
            words += f" ({outcome.place}, {outcome.acked:,} acked, {sum(outcome.injected.values())} faults)"
        self.say(words, COLOURS[outcome.status])
        for reason in [*outcome.reasons[:SHOWN], *outcome.notes]:
            self.say(f"    {reason}")
        if outcome.status == "failed":
            self.say(f"    {outcome.folder}")


# --- tables


def summary(outcomes: Sequence[Outcome], seconds: float) -> None:
    """Print what became of every case, and how long acknowledgements stood still under each kind of fault."""
    rows = [
        (
            each.case,
            each.place or "-",
            ", ".join(f"{count} {fault}" for fault, count in each.injected.items()) or "-",
            f"{each.operations:,}",
            f"{each.acked:,}",
            f"{each.read:,}",
            str(sum(each.anomalies.values())) if each.status != "not run" else "-",
            each.status + (f" (not {', '.join(each.not_run)})" if each.not_run else ""),
        )
        for each in outcomes
    ]
    heads = ("case", "place", "faults injected", "ops", "acked", "read", "anomalies", "verdict")
    print_table(heads, rows, left=(0, 1, 2, 7), styles={7: COLOURS})
    stalls = [stall for each in outcomes for stall in each.stalls]
    if stalls:
        print()
        print("without an acknowledgement, worst partition of each injection (seconds):")
        _print_stalls(stalls)
    if any(each.commits for each in outcomes):
        print()
        print(
            "without a commit by a coordinator, worst transactional id or group of each injection (seconds):"
        )
        _print_commits(outcomes)
    print()
    counted = {status: sum(each.status == status for each in outcomes) for status in COLOURS}
    said = ", ".join(f"{count} {status}" for status, count in counted.items() if count)
    anomalies = sum(sum(each.anomalies.values()) for each in outcomes)
    faults = sum(sum(each.injected.values()) for each in outcomes)
    print(f"{said}: {anomalies} anomalies under {faults} faults in {seconds / 60:.1f} minutes")
    sys.stdout.flush()


def _print_stalls(stalls: Sequence[Stall]) -> None:
    rows = [
        (
            each.fault,
            str(each.count),
            f"{each.median_s:.3f}",
            f"{each.p99_s:.3f}",
            f"{each.max_s:.3f}",
            f"{each.after_heal_median_s:.3f}",
            f"{each.after_heal_max_s:.3f}",
        )
        for each in summed(stalls)
    ]
    heads = ("fault", "times", "median", "p99", "max", "after healing, median", "max")
    print_table(heads, rows, left=(0,))


def _print_commits(outcomes: Iterable[Outcome]) -> None:
    rows = [
        (outcome.case, each.fault, what, str(each.count), f"{each.median_s:.3f}", f"{each.max_s:.3f}")
        for outcome in outcomes
        for what, found in outcome.commits.items()
        for each in found
    ]
    print_table(("case", "fault", "of", "times", "median", "max"), rows, left=(0, 1, 2))


def listing(cases: Iterable[Case], testbeds: Mapping[str, TestbedKind]) -> None:
    """Print cases, and where each can run; then the testbeds that this machine does not have, and why."""
    reasons = {name: reason for name, each in testbeds.items() if (reason := each.why_not_here())}
    rows = [
        (
            case.name,
            ", ".join(case.suites),
            f"{case.faults.seconds:g} s",
            ", ".join(
                each.name + (" (partly)" if lacking else "")
                for each in testbeds.values()
                if each.name not in reasons
                and len(lacking := each.lacks(case.faults.names)) < max(len(case.faults.names), 1)
            )
            or "nowhere here",
            case.title,
        )
        for case in cases
    ]
    print_table(("case", "suites", "faults for", "places", "what happens"), rows, left=(0, 1, 3, 4))
    for name, reason in reasons.items():
        print(f"not here: {name}, since {reason}")


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[int],
    styles: Mapping[int, Mapping[str, str]] | None = None,
) -> None:
    """Print a table: rich on a terminal, aligned columns elsewhere. `styles`: by column, by how a cell begins."""
    if sys.stdout.isatty():
        _print_rich(heads, rows, left=left, styles=styles or {})
        return
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _print_rich(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Sequence[int],
    styles: Mapping[int, Mapping[str, str]],
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim")
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at in left else "right", overflow="fold")
    for row in rows:
        cells = []
        for at, cell in enumerate(row):
            style = next((style for start, style in styles.get(at, {}).items() if cell.startswith(start)), "")
            cells.append(Text(cell, style=style))
        table.add_row(*cells)
    Console().print(table)
