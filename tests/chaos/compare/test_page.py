"""Claims about the page: it stands alone, says what is missing, and draws what there is."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from raftlog_chaos.compare.drawing import charts_of, ratios
from raftlog_chaos.compare.figures import Comparison, Described, Figure
from raftlog_chaos.compare.page import render

SYSTEMS = [
    Described("raftlog", "raftlog", "1.0"),
    Described("peer", "<Peer>", "2.0"),
    Described("gone", "Gone", ""),
]


class Balance(HTMLParser):
    """Counts tags that are open, and fails on a tag that closes another."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def comparison() -> Comparison:
    figures = [
        Figure(
            "produce", "1 KB", "MB/s", "more", {"raftlog": {1: 300.0, 2: 200.0}, "peer": {1: 100.0, 2: 90.0}}
        )
    ]
    for rate in ("200", "1,000"):
        samples = {"raftlog": {1: 1.0}, "peer": {1: 3.0}}
        figures.append(Figure("latency", f"ack at {rate}/s, p50", "ms", "less", samples))
    found = Comparison("2026-01-02T03:04:05+00:00", {"cores": "2 cores"}, SYSTEMS, rounds=2, figures=figures)
    found.note("gone", "", "missing: there is no gone here")
    return found


def test_the_page_is_well_formed_and_fetches_nothing():
    """No script, no link, no address; what systems are called is escaped."""
    html = render(comparison(), {"produce": "Producers"})
    reader = Balance()
    reader.feed(html)
    assert not reader.open
    assert not {"script", "link", "img"} & set(reader.seen)
    assert not re.search(r"https?://", html)
    assert "<Peer>" not in html
    assert "&lt;Peer&gt;" in html


def test_the_page_says_what_is_missing():
    """As a note, and as an alarming tile of that system."""
    html = render(comparison(), {})
    assert "Gone: missing: there is no gone here" in html
    assert '<dd class="alarm">missing</dd>' in html


def test_a_row_without_a_ratio_is_not_drawn():
    """A picture of no ratios is no picture."""
    lonely = Figure("produce", "1 KB", "MB/s", "more", {"raftlog": {1: 1.0}})
    assert ratios(comparison(), [lonely]) == ""
    drawn = ratios(
        comparison(), [*comparison().figures, Figure("produce", "10 KB", "MB/s", "more", lonely.samples)]
    )
    assert drawn.count("dot") == 3
    assert "10 KB" not in drawn


def test_a_better_raftlog_is_drawn_right_of_the_line_of_equals():
    """Twice as good is as far to the right as half as good is to the left."""

    def x_of(ours: float, theirs: float) -> float:
        figure = Figure("produce", "1 KB", "MB/s", "more", {"raftlog": {1: ours}, "peer": {1: theirs}})
        found = re.search(r'<rect x="([\d.]+)"[^>]*dot"', ratios(comparison(), [figure]))
        assert found
        return float(found[1])

    even = x_of(1.0, 1.0)
    assert x_of(2.0, 1.0) - even > 0
    assert abs((x_of(2.0, 1.0) - even) - (even - x_of(1.0, 2.0))) < 0.2


def test_a_chart_has_a_point_for_each_rate():
    """In ascending order of the rates that the rows are named after."""
    chart = next(each for each in charts_of(comparison(), "latency") if each.curves)
    assert chart.unit == "ms"
    assert [curve.points for curve in chart.curves] == [
        [(200.0, 1.0), (1000.0, 1.0)],
        [(200.0, 3.0), (1000.0, 3.0)],
    ]
