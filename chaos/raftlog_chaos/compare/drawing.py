"""The drawings of a comparison: ratios as dots on a logarithmic axis, and curves over rates, partitions or brokers.

Inline SVG on the canvas of a chaos run's drawing; a system's colour is a CSS class, `s0` to `s6`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from raftlog_chaos.compare.figures import SUBJECT, Comparison, Described, Figure
from raftlog_chaos.compare.table import format_number
from raftlog_chaos.runs.picture import RIGHT, WIDTH, Canvas

LABELS: Final = 330
"""Width of the column of names in a picture of ratios."""
RATIOS_RIGHT: Final = RIGHT - 16
ROW: Final = 22
CHART_HEIGHT: Final = 250
CHART_LEFT: Final = 90
CHARTS_BETWEEN: Final = 70
FURTHEST: Final = 1000.0
"""A ratio beyond this, or beneath its inverse, is drawn at the edge."""
DOT: Final = 10


class Curve(NamedTuple):
    """One system's values over something that grows, in ascending order."""

    system: int
    title: str
    points: Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """Curves with both axes logarithmic."""

    title: str
    unit: str
    across: str
    curves: Sequence[Curve]


def ratios(comparison: Comparison, figures: Sequence[Figure]) -> str:
    """Return a picture of all figures with ratios, or "" if there are none."""
    others = [(at, each) for at, each in enumerate(comparison.systems) if each.key != SUBJECT]
    shown = [each for each in figures if any(each.ratios(other.key) for _, other in others)]
    found = [value for each in shown for _, other in others for value in each.ratios(other.key)]
    if not found:
        return ""
    low = math.floor(math.log10(max(1 / FURTHEST, min(*found, 0.5))))
    high = math.ceil(math.log10(min(FURTHEST, max(*found, 2.0))))
    canvas = Canvas(1.0)
    _key(canvas, others)
    _axis(canvas, low, high, len(shown))
    for figure in shown:
        canvas.text(LABELS - 12, canvas.y + 15, figure.name)
        for at, other in others:
            _dot(canvas, figure, at, other, low=low, high=high)
        canvas.y += ROW
    canvas.y += 26
    return canvas.done("How many times better raftlog is than each other system, a row for each figure")


def _ratio_x(value: float, low: int, high: int) -> float:
    share = (math.log10(min(max(value, 1 / FURTHEST), FURTHEST)) - low) / (high - low)
    return LABELS + (RATIOS_RIGHT - LABELS) * min(max(share, 0.0), 1.0)


def _key(canvas: Canvas, systems: Sequence[tuple[int, Described]]) -> None:
    x = float(LABELS)
    for at, system in systems:
        canvas.box(x, canvas.y + 2, to_x=x + DOT, height=DOT, kind=f"s{at}")
        canvas.text(x + DOT + 6, canvas.y + 11, system.title, "key")
        x += len(system.title) * 6.1 + 46
    canvas.y += 28


def _axis(canvas: Canvas, low: int, high: int, rows: int) -> None:
    top, bottom = canvas.y, canvas.y + rows * ROW + 4
    for power in range(low, high + 1):
        x = _ratio_x(10.0**power, low, high)
        canvas.line(x, top, to_x=x, to_y=bottom, kind="even" if power == 0 else "grid")
        canvas.text(x, bottom + 14, f"{10.0**power:g}x", "axis")
    one = _ratio_x(1.0, low, high)
    canvas.text(one + 8, top - 4, "raftlog is better \N{RIGHTWARDS ARROW}", "key")


def _dot(canvas: Canvas, figure: Figure, at: int, other: Described, *, low: int, high: int) -> None:
    found, ratio = figure.ratios(other.key), figure.ratio(other.key)
    if ratio is None:
        return
    y = canvas.y + ROW / 2
    least, most = (_ratio_x(value, low, high) for value in (min(found), max(found)))
    if len(found) > 1:
        canvas.line(least, y, to_x=most, to_y=y, kind=f"s{at} range")
    x = _ratio_x(ratio, low, high)
    title = f"{figure.name}: {format_number(ratio)} times better than {other.title}"
    canvas.box(x - DOT / 2, y - DOT / 2, to_x=x + DOT / 2, height=DOT, kind=f"s{at} dot", title=title)


def charts_of(comparison: Comparison, part: str) -> Iterator[Chart]:
    """Yield the charts of a part: latency over rates, or its figures over partitions or brokers."""
    if part == "latency":
        for title, start in (("acknowledgement", "ack at "), ("end to end", "end to end at ")):
            for quantile in ("p50", "p99"):
                yield _chart(
                    comparison, part, f"{title}, {quantile}", (start, f"/s, {quantile}", "records/s")
                )
        yield _chart(comparison, part, "CPU user for a record", ("at ", "/s, CPU user", "records/s"))
        yield _chart(comparison, part, "CPU system for a record", ("at ", "/s, CPU system", "records/s"))
        machine = ("at ", "/s, CPU of the whole machine", "records/s")
        yield _chart(comparison, part, "CPU of the whole machine for a record", machine)
    if part == "partitions":
        for title, end in (
            ("create", " partitions created and in sync"),
            ("CPU at rest", " partitions, CPU at rest, a node"),
        ):
            yield _chart(comparison, part, title, ("", end, "partitions"))
    if part == "brokers":
        yield _chart(comparison, part, "1 KB produced", ("", ", 1 KB produced", "brokers"))


def _chart(comparison: Comparison, part: str, title: str, pattern: tuple[str, str, str]) -> Chart:
    """Return the chart of all rows whose names are a number between two texts."""
    start, end, across = pattern
    rows: list[tuple[float, Figure]] = []
    for figure in comparison.figures:
        if figure.part == part and figure.name.startswith(start) and figure.name.endswith(end):
            number = figure.name[len(start) : len(figure.name) - len(end)].split(" ")[0].replace(",", "")
            rows.extend([(float(number), figure)] if number.isdigit() else [])
    curves = [
        Curve(
            at,
            system.title,
            [(x, y) for x, figure in sorted(rows, key=_first) if (y := figure.median(system.key))],
        )
        for at, system in enumerate(comparison.systems)
    ]
    unit = rows[0][1].unit if rows else ""
    return Chart(title, unit, across, [each for each in curves if each.points])


def _first(row: tuple[float, Figure]) -> float:
    return row[0]


def draw_charts(charts: Sequence[Chart]) -> str:
    """Return a picture of charts, two beside each other, or "" if all are empty."""
    drawn = [each for each in charts if any(len(curve.points) > 1 for curve in each.curves)]
    if not drawn:
        return ""
    canvas = Canvas(1.0)
    titles = {curve.system: curve.title for each in drawn for curve in each.curves}
    _key(canvas, [(at, Described(title, title, "")) for at, title in sorted(titles.items())])
    width = (WIDTH - 2 * CHARTS_BETWEEN - CHART_LEFT) / 2
    for number, chart in enumerate(drawn):
        left = CHART_LEFT + (number % 2) * (width + CHARTS_BETWEEN + 20)
        _draw_chart(canvas, chart, left=left, right=left + width)
        if number % 2 or number == len(drawn) - 1:
            canvas.y += CHART_HEIGHT
    return canvas.done("; ".join(each.title for each in drawn))


def _draw_chart(canvas: Canvas, chart: Chart, *, left: float, right: float) -> None:
    points = [point for curve in chart.curves for point in curve.points]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    high = max(high, low + 1)
    top, bottom = canvas.y + 22, canvas.y + CHART_HEIGHT - 44
    span = max(math.log10(xs[-1] / xs[0]), 1e-9)

    def x_of(value: float) -> float:
        return left + 16 + (right - left - 32) * math.log10(value / xs[0]) / span

    def y_of(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(value) - low) / (high - low)

    canvas.text(left, canvas.y + 10, f"{chart.title}, {chart.unit}", "caption")
    for power in range(low, high + 1):
        canvas.line(left, y_of(10.0**power), to_x=right, to_y=y_of(10.0**power), kind="grid")
        canvas.text(left - 8, y_of(10.0**power) + 4, f"{10.0**power:,g}")
    for x in xs:
        canvas.text(x_of(x), bottom + 16, f"{x:,.0f}", "axis")
    canvas.text(right, bottom + 32, chart.across)
    for curve in chart.curves:
        line = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in curve.points)
        canvas.path(f"M{line}", f"s{curve.system} curve")
        for x, y in curve.points:
            title = f"{curve.title}: {format_number(y)} {chart.unit} at {x:,.0f} {chart.across}"
            at_x, at_y = x_of(x), y_of(y)
            canvas.box(at_x - 3, at_y - 3, to_x=at_x + 3, height=6, kind=f"s{curve.system} dot", title=title)
