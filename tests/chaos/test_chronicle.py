"""A failure is reported with the events that concern it, and no others."""

from __future__ import annotations

from itertools import count

from raftlog.base.types import TopicPartition
from raftlog_chaos.chronicle import TIMELINE_LINES, Chronicle

HERE = TopicPartition("t", 1)
ELSEWHERE = TopicPartition("t", 11)


def chronicle() -> Chronicle:
    seconds = count()
    return Chronicle(lambda: float(next(seconds)))


def test_a_failure_is_explained_by_the_partition_and_the_offset_that_it_names() -> None:
    """Both forms in which partitions are named; t-11 is not t-1."""
    scenario = chronicle()
    scenario.note("node1", "appended", "", where=HERE, offsets=(0, 5))
    scenario.note("node2", "appended", "", where=HERE, offsets=(0, 3))
    scenario.note("node2", "high watermark", "", where=HERE, offsets=(3, 5))
    scenario.note("node1", "role", "leading in epoch 2", where=HERE)
    scenario.note("node3", "role", "following", where=ELSEWHERE)
    for failure in ("t-1: b'x' was acknowledged at 4", "('t', 1): nothing at offset 4"):
        told = [(each.node, each.kind) for each in scenario.explain(failure)]
        assert told == [("node1", "appended"), ("node2", "high watermark"), ("node1", "role")]


def test_a_failure_without_a_partition_is_explained_by_leaders_and_faults() -> None:
    """Of all topics but raftlog's own; the partition stands before each line."""
    scenario = chronicle()
    scenario.note("node1", "appended", "", where=HERE, offsets=(0, 5))
    scenario.note("node1", "role", "leading", where=HERE)
    scenario.note("node3", "metadata", "leader 1", where=HERE)
    scenario.note("node3", "metadata", "leader 2", where=ELSEWHERE)
    scenario.note("node3", "metadata", "leader 3", where=TopicPartition("__consumer_offsets", 0))
    scenario.note_world(0.0, "node2", "crashed power_loss=True silent=False")
    texts = [each.text for each in scenario.explain("nobody leads at 3")]
    assert texts == ["t-1: leader 1", "t-11: leader 2", "crashed, unsynced writes lost"]


def test_a_story_ends_with_the_first_violation() -> None:
    """Later events do not explain it; events at the same moment keep their order."""
    scenario = Chronicle(lambda: 1.0)
    scenario.note("node1", "role", "leading", where=HERE)
    scenario.note("", "violated", "t-1: lost")
    scenario.note("node1", "fault", "crashed")
    assert [each.kind for each in scenario.explain("t-1: lost")] == ["role", "violated"]


def test_appends_in_a_row_are_one_event() -> None:
    """A thousand batches are one line; another node's append in between begins a new line."""
    scenario = chronicle()
    for offset in range(3):
        scenario.note("node1", "appended", "", where=HERE, offsets=(offset, offset + 1))
    scenario.note("node2", "appended", "", where=HERE, offsets=(0, 1))
    scenario.note("node1", "appended", "", where=HERE, offsets=(3, 4))
    told = [(each.node, each.start, each.end) for each in scenario.explain("t-1 is wrong")]
    assert told == [("node1", 0, 3), ("node2", 0, 1), ("node1", 3, 4)]


def test_a_long_story_loses_its_middle() -> None:
    """The beginning and the end explain most."""
    scenario = chronicle()
    for number in range(10 * TIMELINE_LINES):
        scenario.note("node1", "fault", f"event {number}")
    told = [each.text for each in scenario.explain("something")]
    assert len(told) <= TIMELINE_LINES + 1
    assert told[0] == "event 0" and told[-1] == f"event {10 * TIMELINE_LINES - 1}"
    assert f"{9 * TIMELINE_LINES} more events" in told
