"""A run as one drawing: faults as bands, latency, throughput, elections and silences, all over the same seconds.

Inline SVG without script or outside font; colours are the page's CSS variables, so that it is dark where the page is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from raftlog_chaos.runs.outcome import Outcome, Stall
from raftlog_chaos.runs.series import Bucket, merged

WIDTH: Final = 1200
LEFT: Final = 118
RIGHT: Final = 1184
MAX_BUCKETS: Final = 1000
LANE: Final = 20
LATENCY_HEIGHT: Final = 230
RATE_HEIGHT: Final = 110
GAP: Final = 26
CHARACTER: Final = 6.1
"""The width of a small letter, about."""
RATE_BUCKET_S: Final = 0.5
BUSY_SHARE: Final = 0.98
"""A chart is as high as this share of its values, so that one spike does not flatten the rest."""

FAMILIES: Final = {
    "kill": "process",
    "terminate": "process",
    "restart": "process",
    "safe-restarts": "process",
    "pause": "pause",
    "power": "power",
    "blackout": "power",
    "cut": "network",
    "majorities": "network",
    "isolate": "network",
    "slow-link": "network",
    "lossy": "network",
    "slow-disk": "disk",
    "full": "disk",
    "roll-back": "disk",
    "out-of-files": "disk",
    "log-trouble": "disk",
    "lose-identity": "process",
    "clone": "process",
    "wrong-start": "process",
    "failing": "disk",
    "slow-follower": "disk",
    "flip": "damage",
    "wipe": "damage",
    "clock": "clock",
}
"""By how a fault's name begins; each family has a colour."""

EVENT_LANES: Final = {
    "election": "elections",
    "leaders": "leaders",
    "isr": "in-sync sets",
    "fence": "fenced",
    "disk": "disk",
    "start": "starts",
    "stop": "stops",
}
STEPS_S: Final = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
TICKS: Final = 14


class Mark(NamedTuple):
    """A log event of a node, at a second of the run."""

    at_s: float
    kind: str
    text: str


class Silence(NamedTuple):
    """A time in which a partition of the meter acknowledged no record, seconds of the run."""

    partition: int
    from_s: float
    until_s: float


class ChartData(NamedTuple):
    """The data of a chart."""

    outcome: Outcome
    buckets: Sequence[Bucket]
    marks: Sequence[Mark]
    silences: Sequence[Silence]
    partitions: int


class Canvas:
    """Collects the drawing from top to bottom. `y` is where the next part begins."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(seconds, 0.001)
        self.y = 0.0
        self.parts: list[str] = []

    def x(self, at_s: float) -> float:
        """Return where a second of the run is."""
        return LEFT + (RIGHT - LEFT) * min(max(at_s / self.seconds, 0.0), 1.0)

    def text(self, x: float, y: float, text: str, kind: str = "label") -> None:
        """Write; `kind` is a CSS class: label (ends at x), axis (centred), in (begins at x)."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>')

    def box(self, x: float, y: float, *, to_x: float, height: float, kind: str, title: str = "") -> None:
        """Fill a box, at least a pixel wide."""
        inner = f"<title>{escape(title)}</title>" if title else ""
        width = max(to_x - x, 1.2)
        shape = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect {shape} class="{kind}">{inner}</rect>')

    def line(self, x: float, y: float, *, to_x: float, to_y: float, kind: str, title: str = "") -> None:
        """Draw a straight line."""
        inner = f"<title>{escape(title)}</title>" if title else ""
        shape = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
        self.parts.append(f'<line {shape} class="{kind}">{inner}</line>')

    def path(self, points: str, kind: str) -> None:
        """Draw a path from its data."""
        if points:
            self.parts.append(f'<path d="{points}" class="{kind}"/>')

    def done(self, label: str) -> str:
        """Return the whole drawing; `label` says in words what it shows."""
        size = f'viewBox="0 0 {WIDTH} {self.y:.0f}"'
        return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(self.parts)}</svg>'


def draw(scene: ChartData) -> str:
    """Return a run's drawing as SVG."""
    outcome = scene.outcome
    metered_s = max((each.at_s for each in scene.buckets), default=0.0)
    canvas = Canvas(max(outcome.seconds, metered_s))
    _phases(canvas, outcome)
    _faults(canvas, outcome.stalls)
    charts_at = canvas.y
    backdrop = len(canvas.parts)
    _latency(canvas, merged(scene.buckets, MAX_BUCKETS))
    _rates(canvas, scene.buckets)
    _silences(canvas, scene)
    _events(canvas, scene.marks)
    bands = Canvas(canvas.seconds)
    for each in outcome.stalls:
        bands.box(
            canvas.x(each.at_s),
            charts_at,
            to_x=canvas.x(each.until_s),
            height=canvas.y - charts_at - 8,
            kind=f"band {family(each.fault)}",
        )
    canvas.parts[backdrop:backdrop] = bands.parts
    _seconds(canvas, charts_at)
    return canvas.done(
        f"{outcome.case}: latency and throughput over {outcome.seconds:.0f} seconds with its faults"
    )


def family(fault: str) -> str:
    """Return the family of a fault, which is the class of its colour."""
    return next((kind for start, kind in FAMILIES.items() if fault.startswith(start)), "process")


def _phases(canvas: Canvas, outcome: Outcome) -> None:
    for name, began_s, ended_s in outcome.phases:
        left, right = canvas.x(began_s), canvas.x(ended_s)
        canvas.box(
            left + 1,
            canvas.y,
            to_x=right - 1,
            height=18,
            kind="phase",
            title=f"{name}: {ended_s - began_s:.1f} s",
        )
        if right - left > len(name) * CHARACTER + 8:
            canvas.text((left + right) / 2, canvas.y + 13, name, "axis")
    canvas.text(LEFT - 10, canvas.y + 13, "phase")
    canvas.y += 26


def _faults(canvas: Canvas, stalls: Sequence[Stall]) -> None:
    for fault in dict.fromkeys(each.fault for each in stalls):
        canvas.text(LEFT - 10, canvas.y + 13, fault)
        canvas.line(LEFT, canvas.y + LANE / 2 - 1, to_x=RIGHT, to_y=canvas.y + LANE / 2 - 1, kind="lane")
        for each in stalls:
            if each.fault == fault:
                _fault(canvas, each)
        canvas.y += LANE
    canvas.y += 10


def _fault(canvas: Canvas, each: Stall) -> None:
    left, right = canvas.x(each.at_s), canvas.x(each.until_s)
    title = f"{each.fault} {each.target}: {each.at_s:.1f} s to {each.until_s:.1f} s, longest gap {each.gap_s:.2f} s"
    canvas.box(
        left, canvas.y + 1, to_x=right, height=LANE - 4, kind=f"fault {family(each.fault)}", title=title
    )
    if right - left > len(each.target) * CHARACTER + 6:
        canvas.text(left + 4, canvas.y + 13, each.target, "on")


# --- charts


def _latency(canvas: Canvas, buckets: Sequence[Bucket]) -> None:
    """Draw latency on a logarithmic scale: the median as a line, up to p99 as a band, the maximum as dots."""
    usual = sorted(each.p50_ms for each in buckets if each.p50_ms is not None)
    least = usual[len(usual) // 20] if usual else 1.0
    most = max((each.max_ms for each in buckets if each.max_ms is not None), default=1.0)
    low = math.floor(math.log10(max(least, 0.1)))
    high = max(math.ceil(math.log10(max(most, 0.1))), low + 2)
    top, bottom = canvas.y + 8, canvas.y + LATENCY_HEIGHT

    def y(value_ms: float) -> float:
        share = (math.log10(max(value_ms, 0.01)) - low) / (high - low)
        return bottom - (bottom - top) * min(max(share, 0.0), 1.0)

    for power in range(low, high + 1):
        at = y(10.0**power)
        canvas.line(LEFT, at, to_x=RIGHT, to_y=at, kind="grid")
        canvas.text(LEFT - 10, at + 4, said_ms(10.0**power))
    for run in _runs(buckets):
        upper = [(canvas.x(each.at_s), y(each.p99_ms or 0)) for each in run]
        lower = [(canvas.x(each.at_s), y(each.p50_ms or 0)) for each in run]
        canvas.path(_path([*upper, *reversed(lower)]) + "Z", "spread")
        canvas.path(_path(upper), "p99")
        canvas.path(_path(lower), "p50")
    dots = "".join(
        f"M{canvas.x(each.at_s):.1f} {y(each.max_ms):.1f}h0" for each in buckets if each.max_ms is not None
    )
    canvas.path(dots, "max")
    _caption(canvas, "acknowledgement latency", [("p50", "p50"), ("p99", "p99"), ("max", "max")])
    canvas.y = bottom + GAP


def _runs(buckets: Iterable[Bucket]) -> Iterator[list[Bucket]]:
    """Yield stretches of buckets in which something was acknowledged."""
    run: list[Bucket] = []
    for each in buckets:
        if each.p50_ms is None:
            if run:
                yield run
            run = []
        else:
            run.append(each)
    if run:
        yield run


def _rates(canvas: Canvas, buckets: Sequence[Bucket]) -> None:
    """Draw writes and reads per second."""
    width_s = buckets[1].at_s - buckets[0].at_s if len(buckets) > 1 else RATE_BUCKET_S
    coarse = max(1, round(RATE_BUCKET_S / width_s), math.ceil(len(buckets) / MAX_BUCKETS))
    groups = merged(buckets, math.ceil(len(buckets) / coarse)) if buckets else []
    span_s = groups[1].at_s - groups[0].at_s if len(groups) > 1 else width_s
    written = [each.written / span_s for each in groups]
    read = [each.read / span_s for each in groups]
    most = _nice(max(_busy(written), _busy(read), 1.0))
    top, bottom = canvas.y + 8, canvas.y + RATE_HEIGHT

    def y(rate: float) -> float:
        return bottom - (bottom - top) * min(rate / most, 1.0)

    for rate in (0.0, most / 2, most):
        canvas.line(LEFT, y(rate), to_x=RIGHT, to_y=y(rate), kind="grid")
        canvas.text(LEFT - 10, y(rate) + 4, f"{rate:,.0f}/s" if rate else "0")
    spots = [canvas.x(each.at_s + span_s / 2) for each in groups]
    if spots:
        outline = list(zip(spots, map(y, written), strict=True))
        canvas.path(_path([(spots[0], bottom), *outline, (spots[-1], bottom)]) + "Z", "written")
        canvas.path(_path(outline), "written-line")
        canvas.path(_path(list(zip(spots, map(y, read), strict=True))), "read")
    _caption(canvas, "records per second", [("written-key", "written"), ("read", "read")])
    canvas.y = bottom + GAP


def _busy(values: Sequence[float]) -> float:
    return sorted(values)[int((len(values) - 1) * BUSY_SHARE)] if values else 0.0


def _nice(value: float) -> float:
    """Return the next round number: a small one times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def _caption(canvas: Canvas, text: str, keys: Sequence[tuple[str, str]]) -> None:
    x, y = LEFT + 2.0, canvas.y + 2
    canvas.text(x, y, text, "caption")
    x += len(text) * CHARACTER * 1.12 + 16
    for kind, label in keys:
        canvas.path(f"M{x:.1f} {y - 4:.1f}h{0.01 if kind == 'max' else 14}", kind)
        canvas.text(x + (8 if kind == "max" else 19), y, label, "key")
        x += len(label) * CHARACTER + 38


# --- lanes


def _silences(canvas: Canvas, scene: ChartData) -> None:
    """Draw a lane for each of the meter's partitions, with gaps where it acknowledged no record."""
    if not scene.partitions:
        return
    canvas.text(LEFT + 2, canvas.y, "silences of a closed-loop producer, one lane a partition", "caption")
    canvas.y += 8
    phases = {name: (began_s, ended_s) for name, began_s, ended_s in scene.outcome.phases}
    from_s = phases.get("quiet", (0.0, 0.0))[0]
    until_s = phases.get("heal", (0.0, scene.outcome.seconds))[1]
    for partition in range(scene.partitions):
        canvas.text(LEFT - 10, canvas.y + 9, f"beat {partition}")
        canvas.box(canvas.x(from_s), canvas.y, to_x=canvas.x(until_s), height=10, kind="beating")
        for each in scene.silences:
            if each.partition == partition:
                left, right = canvas.x(each.from_s), canvas.x(each.until_s)
                seconds = f"{each.until_s - each.from_s:.2f} s"
                canvas.box(left, canvas.y, to_x=right, height=10, kind="silent", title=seconds)
                if right - left > len(seconds) * CHARACTER:
                    canvas.text((left + right) / 2, canvas.y + 8.5, seconds, "tiny")
        canvas.y += 14
    canvas.y += GAP - 8


def _events(canvas: Canvas, marks: Sequence[Mark]) -> None:
    """Draw a lane for each kind of event that the nodes logged, a tick each."""
    kinds = [kind for kind in EVENT_LANES if any(each.kind == kind for each in marks)]
    if not kinds:
        return
    canvas.text(LEFT + 2, canvas.y, "what the nodes logged", "caption")
    canvas.y += 8
    for kind in kinds:
        canvas.text(LEFT - 10, canvas.y + 11, EVENT_LANES[kind])
        canvas.line(LEFT, canvas.y + 7, to_x=RIGHT, to_y=canvas.y + 7, kind="lane")
        for each in _distinct(canvas, [mark for mark in marks if mark.kind == kind]):
            x = canvas.x(each.at_s)
            title = f"{each.at_s:.2f} s: {each.text}"
            canvas.line(x, canvas.y + 1, to_x=x, to_y=canvas.y + 13, kind=f"tick {kind}", title=title)
        canvas.y += 17
    canvas.y += 12


def _distinct(canvas: Canvas, marks: Sequence[Mark]) -> Iterator[Mark]:
    """Yield marks that fall on different pixels; marks on one pixel share a tick at the first, and their texts."""
    pixel: int | None = None
    gathered: list[Mark] = []
    for each in marks:
        spot = round(canvas.x(each.at_s))
        if spot != pixel and gathered:
            yield gathered[0]._replace(text="\n".join(one.text for one in gathered[:12]))
            gathered = []
        pixel = spot
        gathered.append(each)
    if gathered:
        yield gathered[0]._replace(text="\n".join(one.text for one in gathered[:12]))


def _seconds(canvas: Canvas, top: float) -> None:
    """Draw the time axis below everything."""
    step = next((each for each in STEPS_S if canvas.seconds / each <= TICKS), STEPS_S[-1])
    for number in range(math.floor(canvas.seconds / step) + 1):
        x = canvas.x(number * step)
        canvas.line(x, top, to_x=x, to_y=canvas.y - 8, kind="second")
        canvas.text(x, canvas.y + 8, said_s(number * step), "axis")
    canvas.y += 18


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def said_ms(value: float) -> str:
    """Return milliseconds in few characters, as seconds from 1,000 on."""
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"


def said_s(seconds: float) -> str:
    """Return a moment of a run: seconds, from two minutes on minutes, from two hours on hours."""
    if seconds < 120:
        return f"{seconds:g} s"
    if seconds < 7200:
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f} min"
    return f"{seconds // 3600:.0f}:{seconds % 3600 // 60:02.0f} h"
