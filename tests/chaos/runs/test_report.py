"""Claims about a run's page: it stands alone, says the verdict first, and shows every fault."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from raftlog_chaos.faults import FAULTS
from raftlog_chaos.runs import folder as run_folder
from raftlog_chaos.runs.outcome import Judgement
from raftlog_chaos.runs.picture import FAMILIES, LEFT, RIGHT, Canvas, family
from raftlog_chaos.runs.report import STYLE
from raftlog_chaos.runs.series import Bucket, Series, merged
from tests.chaos.runs.runs import leave


@pytest.fixture
def page(tmp_path) -> str:
    leave(tmp_path)
    return (tmp_path / run_folder.REPORT).read_text()


def svg_of(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])


def test_a_page_stands_alone(page):
    """The page fetches and executes no file: it can be mailed, and opened years later."""
    assert not re.search(r"https?://|<script|<link|@import|url\(|<img|\son\w+=", page)


def test_the_verdict_comes_first(page):
    """Before any figure, in words."""
    body = page[page.index("<body>") :]
    assert body.index('stamp passed">passed') < body.index("<dl>") < body.index("<svg")


def test_names_from_a_case_are_text_and_never_markup(page):
    """A title is a person's."""
    assert "By hand &amp; &lt;quickly&gt;" in page
    assert "<quickly>" not in page


def test_every_fault_is_a_band_over_the_charts_and_has_a_lane(page):
    """Its begin and end, and the nodes that it hit."""
    drawing = svg_of(page)
    bands = [each for each in drawing.iter("rect") if (each.get("class") or "").startswith("band")]
    titles = [each.text or "" for each in drawing.iter("title")]
    assert [each.get("class") for each in bands] == ["band process", "band pause"]
    assert any(text.startswith("kill-leader node 2: 3.0 s to 5.0 s, longest gap 0.75 s") for text in titles)
    assert "0.75 s" in titles, "the silence itself is drawn in its partition's lane"


def test_nothing_is_drawn_beside_the_picture(page):
    """Every box lies between the margins and above the bottom."""
    drawing = svg_of(page)
    height = float((drawing.get("viewBox") or "").split()[3])
    for each in drawing.iter("rect"):
        x, y, wide, high = (float(each.get(name) or 0) for name in ("x", "y", "width", "height"))
        assert x >= LEFT - 1
        assert x + wide <= RIGHT + 2
        assert 0 <= y <= y + high <= height


def test_a_failed_case_says_why_and_names_the_anomaly(tmp_path):
    """In the page as in the files for programs and for people."""
    leave(tmp_path, Judgement({"lost-write": 1}, {}, "INVALID: lost-write"))
    for name in (run_folder.REPORT, run_folder.WORDS, run_folder.VERDICT):
        text = (tmp_path / name).read_text()
        assert "failed" in text
        assert "1 lost-write" in text


def test_every_fault_has_a_family_and_every_family_a_colour():
    """A fault without a colour would be drawn in another's."""
    style = STYLE.read_text()
    for name in FAULTS:
        assert any(name.startswith(start) for start in FAMILIES), name
        assert f"svg .{family(name)} " in style
        assert f"i.{family(name)} " in style


def test_the_time_axis_holds_every_second_of_the_run():
    """And no time outside, whatever is asked for."""
    canvas = Canvas(20.0)
    assert [canvas.x(at_s) for at_s in (-5, 0, 20, 30)] == [LEFT, LEFT, RIGHT, RIGHT]


def test_buckets_have_latency_and_rates_of_each_tenth_of_a_second():
    """Percentiles by nearest rank; a bucket without acknowledgements has none."""
    series = Series()
    series.add_acks([0.01, 0.02, 0.05], [0.001, 0.002, 0.009], written=False)
    series.add_acks([0.06, 0.31], [0.003, 0.5], written=True)
    series.add_reads([0.35], [7])
    first, second, _, fourth = series.buckets(0.4)
    assert (first.acked, first.written, first.p50_ms, first.max_ms) == (4, 1, 2.0, 9.0)
    assert second == Bucket(at_s=0.1)
    assert (fourth.max_ms, fourth.read) == (500.0, 7)


def test_merged_buckets_keep_the_worst():
    """An hour is drawn in a thousand columns, and no stall gets lost."""
    buckets = [Bucket(at_s=n / 10, acked=1, p50_ms=1.0, p99_ms=2.0, max_ms=float(n)) for n in range(95)]
    few = merged(buckets, 10)
    assert len(few) == 10
    assert few[-1].max_ms == 94.0
    assert sum(each.acked for each in few) == 95
    assert merged(buckets, 95) == buckets
