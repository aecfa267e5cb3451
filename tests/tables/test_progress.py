"""raftlog.tables.progress: which writer may append, and what became of an attempt."""

from __future__ import annotations

import pytest

from raftlog.tables.progress import (
    Attempt,
    Fenced,
    Head,
    Outcome,
    Source,
    Tampered,
    WrongSource,
    check_source,
    judge,
    next_attempt,
)
from tests.tables.in_memory import SOURCE

ATTEMPT = Attempt(3, {0: 10, 1: 5}, {0: 20, 1: 5})


def test_an_attempt_is_judged_by_the_epoch_and_the_offsets_of_the_head():
    """Whether its own response came, was an error or got lost makes no difference."""
    assert judge(Head("8", SOURCE, 3, {0: 20, 1: 5}), ATTEMPT) is Outcome.DONE
    assert judge(Head("9", SOURCE, 3, {0: 10, 1: 5}), ATTEMPT) is Outcome.AGAIN
    with pytest.raises(Fenced, match="epoch 4"):
        judge(Head("8", SOURCE, 4, {0: 20, 1: 5}), ATTEMPT)
    with pytest.raises(Tampered):
        judge(Head("8", SOURCE, 3, {0: 15, 1: 5}), ATTEMPT)


def test_a_takeover_keeps_the_offsets_of_the_table_and_adds_new_partitions():
    """Where to begin is only for partitions that the table does not know."""
    found = next_attempt(Head("8", SOURCE, 3, {0: 20}), {0: 7, 1: 7})
    assert found == Attempt(4, {0: 20}, {0: 20, 1: 7})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "not made by raftlog"),
        (Source("other", SOURCE.topic, SOURCE.topic_id), "cluster other, and not of cluster"),
        (Source(SOURCE.cluster, "payments", ""), "topic payments"),
        (Source(SOURCE.cluster, SOURCE.topic, "9d4c"), "topic id 9d4c"),
    ],
)
def test_a_table_of_another_log_is_refused(found: Source | None, said: str):
    """The offsets of a topic that was created again, or of a restored cluster, mean other records."""
    with pytest.raises(WrongSource, match=said):
        check_source(Head("1", found), SOURCE)


def test_ids_that_old_brokers_do_not_know_are_not_compared():
    """The cluster id is known since Kafka 0.10.1, topic ids since 2.8."""
    check_source(Head("1", Source("", SOURCE.topic, "")), SOURCE)
    check_source(Head("1", SOURCE), Source("", SOURCE.topic, ""))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster": "c"}', "null"])
def test_an_unreadable_source_is_an_error_with_its_text(text: str):
    """A property that something else wrote."""
    with pytest.raises(WrongSource, match="readable source: '"):
        Source.from_json(text)
    assert Source.from_json(SOURCE.to_json()) == SOURCE
