"""The page of one run: the verdict on top, the drawing, the gaps in acknowledgements, the checker's output.

One self-contained HTML file: it fetches and executes no other file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from raftlog_chaos.runs.outcome import Outcome, Stall
from raftlog_chaos.runs.picture import ChartData, draw, family, said_s

STYLE: Final = Path(__file__).with_name("page.css")
MAX_STALLS: Final = 40
"""Rows of the table of injections; the longest gaps are shown."""
LANDMARKS: Final = (
    ("lost", "t lost"),
    ("fenced", "t fenced"),
    ("elected", "t controller"),
    ("led", "t leader"),
)


class Page(NamedTuple):
    """The content of a page: the drawing's scene, the checker's page, the case file's settings as text, when it
    began.
    """

    scene: ChartData
    verdict: str
    settings: str
    began: str


def render(page: Page) -> str:
    """Return the whole HTML document."""
    outcome = page.scene.outcome
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(outcome.case)}: {outcome.status}</title>",
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head><body><main>",
        *_head(outcome, page.began),
        *_tiles(outcome),
        f'<div class="card">{draw(page.scene)}</div>',
        *_unavailability(outcome),
        *_commits(outcome),
        *_stalls(outcome.stalls),
        "<h2>Verdict</h2>",
        f"<pre>{escape(page.verdict.strip())}</pre>",
        "<h2>The case</h2>",
        f"<pre>{escape(page.settings.strip())}</pre>",
        "<footer>Latencies and gaps are those of closed-loop acks=all producers, one record in flight for each"
        " partition, and of the workload's own writes. Hover over a mark to read it.</footer>",
        "</main></body></html>",
    ]
    return "\n".join(parts)


def _head(outcome: Outcome, began: str) -> Iterator[str]:
    kind = {"passed": "passed", "failed": "failed"}.get(outcome.status, "unrun")
    where = f"{outcome.case} · {outcome.place} · seed {outcome.seed} · {began} · {outcome.seconds:.0f} s"
    title = escape(outcome.title or outcome.case)
    yield f'<header><div class="stamp {kind}">{escape(outcome.status)}</div>'
    yield f"<div><h1>{title}</h1><p>{escape(where)}</p></div></header>"
    if outcome.reasons:
        yield from _list("reasons" if outcome.status == "failed" else "notes", outcome.reasons)
    if outcome.notes:
        yield from _list("notes", outcome.notes)


def _list(kind: str, lines: Sequence[str]) -> Iterator[str]:
    yield f'<ul class="{kind}">'
    yield from (f"<li>{escape(line)}</li>" for line in lines)
    yield "</ul>"


def _tiles(outcome: Outcome) -> Iterator[str]:
    anomalies = sum(outcome.anomalies.values())
    worst = max((each.gap_s for each in outcome.stalls), default=0.0)
    whole = "never" if outcome.whole_after_s is None else f"{outcome.whole_after_s:.1f} <small>s</small>"
    tiles = [
        ("anomalies", f"{anomalies}", anomalies > 0),
        ("acknowledged", f"{outcome.acked:,}", False),
        ("… during faults", f"{outcome.acked_during_faults:,}", False),
        ("operations", f"{outcome.operations:,}", False),
        ("records read", f"{outcome.read:,}", False),
        ("faults injected", f"{sum(outcome.injected.values()):,}", False),
        ("longest gap", f"{worst:.2f} <small>s</small>", False),
        ("whole again after", whole, outcome.whole_after_s is None),
    ]
    yield "<dl>"
    for name, value, alarming in tiles:
        alarm = ' class="alarm"' if alarming else ""
        yield f"<div><dt>{escape(name)}</dt><dd{alarm}>{value}</dd></div>"
    yield "</dl>"


def _unavailability(outcome: Outcome) -> Iterator[str]:
    if not outcome.unavailability:
        return
    meant = "longest time without an acknowledgement, worst partition of each injection"
    yield f"<h2>Unavailability <small>{meant}</small></h2>"
    yield '<div class="card"><table><tr><th>fault</th><th>injections</th><th>median</th><th>p99</th><th>max</th>'
    yield '<th class="left"></th><th>acks again after healing, median</th><th>max</th></tr>'
    longest = max(each.max_s for each in outcome.unavailability) or 1.0
    for each in outcome.unavailability:
        yield f"<tr><td>{_named(each.fault)}</td><td>{each.count}</td><td>{_s(each.median_s)}</td>"
        yield f"<td>{_s(each.p99_s)}</td><td>{_s(each.max_s)}</td>"
        yield f'<td class="wide"><span class="bar" style="width:{100 * each.max_s / longest:.1f}%"></span></td>'
        yield f"<td>{_s(each.after_heal_median_s)}</td><td>{_s(each.after_heal_max_s)}</td></tr>"
    yield "</table></div>"


def _commits(outcome: Outcome) -> Iterator[str]:
    if not outcome.commits:
        return
    meant = "longest time without a commit, worst transactional id or group of each injection"
    yield f"<h2>Coordinators <small>{meant}</small></h2>"
    yield '<div class="card"><table><tr><th>fault</th><th class="left">commits of</th><th>injections</th>'
    yield "<th>median</th><th>max</th></tr>"
    for what, found in outcome.commits.items():
        for each in found:
            yield f'<tr><td>{_named(each.fault)}</td><td class="left">{escape(what)}</td><td>{each.count}</td>'
            yield f"<td>{_s(each.median_s)}</td><td>{_s(each.max_s)}</td></tr>"
    yield "</table></div>"


def _stalls(stalls: Sequence[Stall]) -> Iterator[str]:
    if not stalls:
        return
    shown = sorted(sorted(stalls, key=lambda each: -each.gap_s)[:MAX_STALLS], key=lambda each: each.at_s)
    said = f"the {len(shown)} longest of {len(stalls)}" if len(shown) < len(stalls) else "in order of time"
    yield f"<h2>Injections <small>{said}; t: seconds after the injection, by the nodes' own logs</small></h2>"
    yield '<div class="card"><table><tr><th>fault</th><th class="left">target</th><th>at</th><th>for</th><th>gap</th>'
    yield "".join(f"<th>{label}</th>" for _, label in LANDMARKS)
    yield "<th>t acknowledged</th><th>gap on return</th></tr>"
    for each in shown:
        yield f'<tr><td>{_named(each.fault)}</td><td class="left">{escape(each.target)}</td>'
        lasted_s = each.until_s - each.at_s
        yield f"<td>{said_s(round(each.at_s, 1))}</td><td>{lasted_s:.1f} s</td><td>{_s(each.gap_s)}</td>"
        yield "".join(f"<td>{_s(each.moments.get(name))}</td>" for name, _ in LANDMARKS)
        yield f"<td>{_s(each.moments.get('acknowledged'))}</td><td>{_s(each.back_s)}</td></tr>"
    yield "</table></div>"


def _named(fault: str) -> str:
    return f'<i class="{family(fault)}"></i>{escape(fault)}'


def _s(seconds: float | None) -> str:
    """Return seconds so that a thousandth is seen where it counts."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.995 else f"{seconds:.2f} s"
