"""Claims about samples, medians, ratios and notes."""

from __future__ import annotations

import pytest

from raftlog_chaos.compare.figures import Better, Comparison, Described, Figure, Sample


def figure(better: Better | None, ours: dict[int, float], theirs: dict[int, float]) -> Figure:
    return Figure("part", "name", "MB/s", better, {"raftlog": ours, "peer": theirs})


def comparison() -> Comparison:
    return Comparison("2026-01-01T00:00:00+00:00", {}, [Described("raftlog", "raftlog", "1")])


def test_a_ratio_is_taken_within_its_round():
    """A machine that halves its speed between two rounds changes no ratio."""
    drifting = figure("more", {1: 100.0, 2: 50.0}, {1: 50.0, 2: 25.0})
    assert drifting.ratios("peer") == [2.0, 2.0]
    assert drifting.median("raftlog") == 75.0
    assert drifting.spread("raftlog") == (50.0, 100.0)


def test_a_ratio_above_one_says_that_raftlog_is_better():
    """Whether more is better, as for a throughput, or less, as for a latency."""
    assert figure("more", {1: 30.0}, {1: 10.0}).ratio("peer") == pytest.approx(3.0)
    assert figure("less", {1: 30.0}, {1: 10.0}).ratio("peer") == pytest.approx(1 / 3)


def test_a_round_that_only_one_of_them_has_makes_no_ratio():
    """A peer that died in a round is not compared with raftlog's figure of another round."""
    assert figure("more", {1: 30.0, 2: 40.0}, {2: 10.0}).ratios("peer") == [4.0]
    assert figure("more", {1: 30.0}, {2: 10.0}).ratio("peer") is None


@pytest.mark.parametrize(("better", "theirs"), [(None, 10.0), ("less", 0.0)])
def test_no_ratio_is_made_where_it_says_nothing(better, theirs):
    """For a figure that is neither better nor worse, and for a missing figure."""
    assert figure(better, {1: 30.0}, {1: theirs}).ratio("peer") is None


def test_a_sample_for_information_makes_no_ratio_in_its_round():
    """Ratios of the other rounds, and of other systems, stay."""
    found = comparison()
    for number, better in ((1, None), (2, "less")):
        found.add("part", "raftlog", number, Sample("name", 4.0, "s", "less"))
        found.add("part", "peer", number, Sample("name", 8.0 * number, "s", better))
        found.add("part", "tiny", number, Sample("name", 1.0, "s"))
    row = found.figures[0]
    assert row.ratios("peer") == [4.0]
    assert row.median("peer") == 12.0
    assert row.ratio("tiny") is None
    assert row.median("tiny") == 1.0


def test_samples_of_a_name_are_one_row():
    """Each system and round has its own place in it."""
    found = comparison()
    for number, system in ((1, "raftlog"), (1, "peer"), (2, "raftlog")):
        found.add("part", system, number, Sample("name", float(number), "s"))
    assert [each.samples for each in found.figures] == [{"raftlog": {1: 1.0, 2: 2.0}, "peer": {1: 1.0}}]


def test_a_row_that_the_first_system_lacks_stands_where_it_belongs():
    """A failed load of the first system does not move a row to the end of the table."""
    found = comparison()
    for name in ("a", "c"):
        found.add("part", "raftlog", 1, Sample(name, 1.0, "s"))
    for name in ("a", "b", "c"):
        found.add("part", "peer", 1, Sample(name, 1.0, "s"))
    assert [each.name for each in found.figures] == ["a", "b", "c"]


def test_a_note_is_kept_once():
    """A reason that repeats in each round is one line."""
    found = comparison()
    for _ in range(3):
        found.note("peer", "part", "refused")
    assert len(found.notes) == 1
