"""A comparison as rows of text: the subject's own figure, and how many times better it is than each other system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from raftlog_chaos.compare.figures import SUBJECT, Comparison, Figure

NOTHING: Final = "-"
"""The cell of what was not measured."""
FEW: Final = 2
"""Rounds below which there is no spread to show."""


def heads(comparison: Comparison) -> list[str]:
    """Return the heads of the columns: ratios first, then the figure itself."""
    return ["figure", *(f"vs {each.title}" for each in comparison.systems if each.key != SUBJECT), "raftlog"]


def rows(comparison: Comparison, figures: Sequence[Figure]) -> Iterator[list[str]]:
    """Yield a row for each figure."""
    for figure in figures:
        cells = [_cell(figure, each.key) for each in comparison.systems if each.key != SUBJECT]
        yield [figure.name, *cells, _own(figure)]


def _cell(figure: Figure, system: str) -> str:
    """Return the ratio and its spread; the other's own figure where no ratio can be made."""
    ratio = figure.ratio(system)
    if ratio is None:
        other = figure.median(system)
        return NOTHING if other is None else f"({_with_unit(other, figure.unit)})"
    return f"{format_number(ratio)}x{_between(figure.ratios(system))}"


def _own(figure: Figure) -> str:
    own = figure.median(SUBJECT)
    if own is None:
        return NOTHING
    return f"{_with_unit(own, figure.unit)}{_between(list(figure.samples[SUBJECT].values()))}"


def _with_unit(value: float, unit: str) -> str:
    return f"{format_number(value)} {unit}".rstrip()


def _between(values: Sequence[float]) -> str:
    return f" ({format_number(min(values))}-{format_number(max(values))})" if len(values) >= FEW else ""


def format_number(value: float) -> str:
    """Return a number with two or three digits that count."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def note_lines(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each system and reason, with the parts that it concerns."""
    titles = {each.key: each.title for each in comparison.systems}
    gathered: dict[tuple[str, str], list[str]] = {}
    for note in comparison.notes:
        gathered.setdefault((note.system, note.why), []).append(note.part)
    for (system, why), parts in gathered.items():
        yield ", ".join([titles.get(system, system), *filter(None, parts)]) + f": {why}"


def as_markdown(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of one Markdown table of all parts, with date, machine and versions above it."""
    yield caption(comparison)
    yield ""
    names = heads(comparison)
    yield _markdown_row(["part", *names])
    yield _markdown_row(["---", "---", *("---:" for _ in names[1:])])
    for part, figures in comparison.by_part():
        for cells in rows(comparison, figures):
            yield _markdown_row([part, *cells])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def caption(comparison: Comparison) -> str:
    """Return one line: when, where, and which versions."""
    machine = ", ".join(comparison.machine.values())
    versions = ", ".join(f"{each.title} {each.version}" for each in comparison.systems if each.version)
    rounds = f"{comparison.rounds} round{'s' if comparison.rounds != 1 else ''}"
    return f"{comparison.began[:10]}; {machine}; {rounds}; {versions}"
