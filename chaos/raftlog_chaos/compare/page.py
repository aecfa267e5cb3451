"""The page of a comparison: each part as a picture of ratios, its curves, and a table of all figures with spreads.

One self-contained HTML file in the style of a chaos run's page: it fetches and executes no other file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from raftlog_chaos.compare.drawing import charts_of, draw_charts, ratios
from raftlog_chaos.compare.figures import SUBJECT, Comparison, Figure
from raftlog_chaos.compare.table import format_number, note_lines
from raftlog_chaos.runs.report import STYLE as COMMON_STYLE

STYLE: Final = Path(__file__).with_name("page.css")
FOOTER: Final = (
    "Ratios are taken within a round, and then the median over the rounds; the lines beside the dots show the spread."
    " Hover over a mark to read it. Client and systems share the machine's cores."
)


def render(comparison: Comparison, titles: Mapping[str, str]) -> str:
    """Return the whole HTML document; `titles` are the titles of the parts."""
    style = COMMON_STYLE.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>raftlog compared</title>",
        f"<style>{style}</style></head><body><main>",
        *_head(comparison),
        *_notes(comparison),
        *(
            line
            for part, figures in comparison.by_part()
            for line in _part(comparison, part, figures, titles)
        ),
        f"<footer>{escape(FOOTER)}</footer>",
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _head(comparison: Comparison) -> Iterator[str]:
    where = " · ".join([comparison.began, *comparison.machine.values(), f"{comparison.seconds / 60:.0f} min"])
    yield f"<header><div><h1>raftlog compared</h1><p>{escape(where)}</p></div></header>"
    yield "<dl>"
    for system in comparison.systems:
        version = escape(system.version) or "missing"
        alarm = "" if system.version else ' class="alarm"'
        yield f"<div><dt>{escape(system.title)}</dt><dd{alarm}>{version}</dd></div>"
    yield "</dl>"


def _notes(comparison: Comparison) -> Iterator[str]:
    lines = list(note_lines(comparison))
    if lines:
        yield "<h2>Not measured</h2>"
        yield '<ul class="notes">'
        yield from (f"<li>{escape(line)}</li>" for line in lines)
        yield "</ul>"


def _part(
    comparison: Comparison, part: str, figures: Sequence[Figure], titles: Mapping[str, str]
) -> Iterator[str]:
    yield f"<h2>{escape(titles.get(part, part))}</h2>"
    for picture in (ratios(comparison, figures), draw_charts(list(charts_of(comparison, part)))):
        if picture:
            yield f'<div class="card">{picture}</div>'
    yield '<div class="card"><table><tr><th>figure</th>'
    yield "".join(f"<th>{escape(each.title)}</th>" for each in comparison.systems)
    yield "<th>unit</th></tr>"
    for figure in figures:
        cells = "".join(_cell(figure, each.key) for each in comparison.systems)
        yield f"<tr><td>{escape(figure.name)}</td>{cells}<td>{escape(figure.unit)}</td></tr>"
    yield "</table></div>"


def _cell(figure: Figure, system: str) -> str:
    """Return a system's median and spread, and how many times better the subject is."""
    median, spread, ratio = figure.median(system), figure.spread(system), figure.ratio(system)
    if median is None or spread is None:
        return '<td class="none">-</td>'
    least, most = spread
    between = f" ({format_number(least)}-{format_number(most)})" if least != most else ""
    better = f"<small>{format_number(ratio)}x</small>" if ratio is not None and system != SUBJECT else ""
    kind = ' class="own"' if system == SUBJECT else ""
    return f"<td{kind}>{format_number(median)}{between}{better}</td>"
