"""The report of `raftlog attack`: a table on the screen, a JSON document, a Markdown page."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import msgspec

from raftlog.cli.chaos_screen import print_table
from raftlog_chaos.attacks.registry import Attack
from raftlog_chaos.attacks.verdict import MIB, Outcome

ANSWER_CHARACTERS: Final = 60
"""The maximum width of the column with the nodes' answers."""
HEADS: Final = (
    "attack",
    "port",
    "verdict",
    "p99 s",
    "max s",
    "read max",
    "MiB",
    "loop",
    "settled",
    "answered",
)


class AttackReport(msgspec.Struct, kw_only=True):
    """The findings of a run. `not_run`: attacks for which there was no time, or no cluster."""

    passed: bool
    seconds: float
    cores: int
    failed: list[str]
    not_run: list[str]
    attacks: list[Outcome]

    @classmethod
    def of(cls, attacks: Sequence[Attack], outcomes: Mapping[str, Outcome], seconds: float) -> Self:
        """Return the report of a run that was to carry out these attacks."""
        failed = [name for name, each in outcomes.items() if each.status == "failed"]
        not_run = [each.name for each in attacks if each.name not in outcomes]
        return cls(
            passed=not failed and not not_run,
            seconds=seconds,
            cores=os.cpu_count() or 1,
            failed=failed,
            not_run=not_run,
            attacks=[outcomes[each.name] for each in attacks if each.name in outcomes],
        )

    def closing(self) -> str:
        """Return one line: how many failed, and which did not run."""
        left = f"; not run: {', '.join(self.not_run)}" if self.not_run else ""
        return f"{len(self.attacks)} attacks, {len(self.failed)} failed, in {self.seconds / 60:.1f} minutes{left}"


def as_json(report: AttackReport) -> str:
    """Return the report as a JSON document."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def as_markdown(report: AttackReport) -> str:
    """Return the report as a Markdown page: a table, then the faults."""
    rows = [HEADS, tuple("---" for _ in HEADS), *map(_row, report.attacks)]
    lines = ["# Attacks", "", f"{report.closing()}, on {report.cores} cores.", ""]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    if report.failed:
        lines += ["", "## Faults", ""]
        lines += [f"- `{each.attack}`: {fault}" for each in report.attacks for fault in each.faults]
    return "\n".join(lines) + "\n"


FORMS: Final[Mapping[str, Callable[[AttackReport], str]]] = {".json": as_json, ".md": as_markdown}
"""By the end of a file's name."""


def print_report(report: AttackReport) -> None:
    """Print the table, the faults and the closing line."""
    styles = {2: {"passed": "green", "failed": "red"}}
    print_table(HEADS, [_row(each) for each in report.attacks], left=(0, 1, 2, 9), styles=styles)
    for each in report.attacks:
        for fault in each.faults:
            print(f"{each.attack}: {fault}")
    print(report.closing())


def list_attacks(attacks: Sequence[Attack]) -> None:
    """Print names, ports, bounds and claims."""
    rows = [
        (each.name, each.port, f"{each.within_s:g} s", "ci" if each.ci else "", each.claim)
        for each in attacks
    ]
    print_table(("attack", "port", "within", "", "claim"), rows, left=(0, 1, 3, 4))


def figures(outcome: Outcome) -> str:
    """Return one line with the figures of an outcome."""
    seen = outcome.seen
    settled = "never" if seen.settled_s is None else f"{_settled(outcome)} s"
    return (
        f"{seen.seconds:.1f} s, p99 {seen.sends.p99_s * 1000:.0f} ms (max {seen.sends.max_s:.2f} s), "
        f"+{_most(outcome)} MiB, loop {_stall(outcome)}, settled {settled}"
    )


def _row(outcome: Outcome) -> tuple[str, ...]:
    seen = outcome.seen
    return (
        outcome.attack,
        outcome.port,
        outcome.status,
        f"{seen.sends.p99_s:.3f}",
        f"{seen.sends.max_s:.3f}",
        f"{seen.reads.max_s:.3f}",
        "/".join(str(above // MIB) for above in outcome.peak_above_idle.values()),
        _stall(outcome),
        _settled(outcome),
        seen.answered[:ANSWER_CHARACTERS],
    )


def _settled(outcome: Outcome) -> str:
    """Return after how many seconds all was back; with a plus where only memory was not."""
    seen = outcome.seen
    if seen.settled_s is None:
        return "-"
    return f"{seen.settled_s:.1f}{'+' if seen.is_warm else ''}"


def _most(outcome: Outcome) -> int:
    return max(outcome.peak_above_idle.values(), default=0) // MIB


def _stall(outcome: Outcome) -> str:
    stalls = [each.stall_s for each in outcome.seen.nodes.values()]
    known = [each for each in stalls if each is not None]
    return "silent" if len(known) < len(stalls) else f"{max(known, default=0) * 1000:g} ms"
