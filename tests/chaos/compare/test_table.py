"""Claims about the text that a comparison becomes."""

from __future__ import annotations

import pytest

from raftlog_chaos.compare.figures import Comparison, Described, Figure
from raftlog_chaos.compare.table import as_markdown, caption, format_number, heads, note_lines, rows

SYSTEMS = [
    Described("raftlog", "raftlog", "1.0"),
    Described("peer", "Peer", "2.0"),
    Described("gone", "Gone", ""),
]


def comparison(*figures: Figure) -> Comparison:
    machine = {"cores": "2 cores"}
    return Comparison("2026-01-02T03:04:05+00:00", machine, SYSTEMS, rounds=2, figures=list(figures))


def cells(figure: Figure) -> list[str]:
    return next(rows(comparison(figure), [figure]))


def test_ratios_come_first_and_have_their_spread():
    """Then comes raftlog's own figure; what was not measured is a dash."""
    samples = {"raftlog": {1: 300.0, 2: 200.0}, "peer": {1: 100.0, 2: 100.0}}
    row = cells(Figure("part", "1 KB", "MB/s", "more", samples))
    assert row == ["1 KB", "2.50x (2.00-3.00)", "-", "250 MB/s (200-300)"]
    assert heads(comparison()) == ["figure", "vs Peer", "vs Gone", "raftlog"]


def test_a_peer_without_a_ratio_shows_its_own_figure():
    """In brackets, to distinguish it from a ratio."""
    assert cells(Figure("part", "p50", "ms", "less", {"peer": {1: 1.5}})) == ["p50", "(1.50 ms)", "-", "-"]


def test_markdown_has_a_row_for_each_figure_below_date_and_machine():
    """All rows have as many cells as the head."""
    lines = list(as_markdown(comparison(Figure("part", "1 KB", "MB/s", "more", {"raftlog": {1: 1.0}}))))
    assert lines[0].startswith("2026-01-02; 2 cores; 2 rounds; raftlog 1.0, Peer 2.0")
    assert {line.count("|") for line in lines[2:]} == {6}
    assert lines[-1] == "| part | 1 KB | - | - | 1.00 MB/s |"


def test_a_missing_system_has_no_version_in_the_caption():
    """Its column says that it was not measured."""
    assert "Gone" not in caption(comparison())


def test_a_reason_is_printed_once_for_all_of_its_parts():
    """With the system's title; a reason for the whole system names no part."""
    found = comparison()
    found.note("peer", "produce", "refused")
    found.note("peer", "consume", "refused")
    found.note("gone", "", "missing: there is no gone here")
    assert list(note_lines(found)) == [
        "Peer, produce, consume: refused",
        "Gone: missing: there is no gone here",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(0.123, "0.12"), (9.876, "9.88"), (12.34, "12.3"), (1234.5, "1,234"), (0.0, "0.00")]
)
def test_numbers_have_the_digits_that_count(value, text):
    """Two or three of them."""
    assert format_number(value) == text
