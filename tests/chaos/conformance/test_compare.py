"""Claims about comparing observations: what counts as a difference, and what the list of differences explains."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog_chaos.conformance.compare import DEFAULT, NO_ELEMENT, differences, is_broken, story
from raftlog_chaos.conformance.differences import Known, judge
from raftlog_chaos.conformance.history import History, Needs

KAFKA: list[dict[str, Any]] = [
    {"asked": "Produce v9", "answer": {"error_code": "NONE", "base_offset": 4}},
    {"asked": "read topic", "answer": {"records": [{"value": "a"}, {"value": "b"}]}},
]
OTHER: list[dict[str, Any]] = [
    {"asked": "Produce v9", "answer": {"error_code": "INVALID_RECORD"}},
    {"asked": "read topic", "answer": {"records": [{"value": "a"}]}},
]
HISTORY = History("produce", "one", "A batch is stored.", Needs(), lambda _: None)


def test_a_difference_is_named_by_its_step_and_path() -> None:
    """A field that is not shown has its default, and an element that is missing is shown whole on the other side."""
    found = [(each.step, each.path, each.kafka, each.other) for each in differences("h", KAFKA, OTHER)]
    assert found == [
        (1, "answer.error_code", "NONE", "INVALID_RECORD"),
        (1, "answer.base_offset", 4, DEFAULT),
        (2, "answer.records.1", {"value": "b"}, NO_ELEMENT),
    ]


def test_equal_observations_do_not_differ() -> None:
    """A field of one side only would be a difference, so equality is complete."""
    assert differences("h", KAFKA, KAFKA) == []
    assert differences("h", KAFKA, KAFKA[:1]) != []


@pytest.mark.parametrize(
    "entry",
    [
        Known("by design", "why", "other/*"),
        Known("by design", "why", "produce/*", path="answer.base_offset"),
        Known("by design", "why", "produce/*", path="answer.error_code", raftlog="NONE"),
        Known("by design", "why", "produce/*"),
        Known("by design", "why", "produce/*", errors="NONE=CORRUPT_MESSAGE"),
    ],
)
def test_a_difference_that_no_entry_explains_is_unknown(entry: Known) -> None:
    """History, path and values must all fit; an entry explains no other difference."""
    unknown = judge(differences("produce/one", KAFKA, OTHER), [entry]).unknown
    assert ("answer.error_code", "INVALID_RECORD") in [(each.path, each.other) for each in unknown]


def test_a_wide_entry_explains_the_errors_that_it_names() -> None:
    """Without their names it explains every other value, and no error."""
    found = [each for each in differences("produce/one", KAFKA, OTHER) if each.path == "answer.error_code"]
    entry = Known("by design", "why", "produce/*", errors="NONE=CORRUPT_MESSAGE NONE=INVALID_RECORD")
    assert judge(found, [entry]).unknown == []


def test_an_entry_that_ends_a_history_explains_what_follows_and_not_what_came_before() -> None:
    """A batch that only one side stored is missing in every later answer."""
    entry = Known("by design", "why", "produce/*", path="answer.error_code", ends=True)
    judged = judge(differences("produce/one", KAFKA, OTHER), [entry])
    assert judged.unknown == []
    assert judged.used == [entry]
    late = Known("by design", "why", "produce/*", path="answer.records.*", ends=True)
    assert [each.step for each in judge(differences("produce/one", KAFKA, OTHER), [late]).unknown] == [1, 1]


def test_a_story_shows_equal_answers_once_and_others_side_by_side() -> None:
    """A reader sees every step, and the two values below each other."""
    lines = story(HISTORY, KAFKA, [OTHER[0], KAFKA[1]], names=("Kafka 4.3", "raftlog"))
    assert lines == [
        "produce/one: A batch is stored.",
        "   1 Produce v9",
        "     answer.error_code",
        "       Kafka 4.3  NONE",
        "       raftlog    INVALID_RECORD",
        "     answer.base_offset",
        "       Kafka 4.3  4",
        "       raftlog    (default)",
        "   2 read topic",
        "     both: records=[(value=a) (value=b)]",
    ]


def test_a_history_that_stopped_is_broken() -> None:
    """Both sides may stop at the same place, and then agree about little."""
    assert not is_broken(KAFKA)
    assert is_broken([*KAFKA, {"asked": "the history stopped", "answer": "KeyError"}])
