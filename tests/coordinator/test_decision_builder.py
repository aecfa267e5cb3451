"""A decision about a consumer group in the making: less of it where that is all that may be decided."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    MemberMetadata,
    apply_consumer,
)
from raftlog.coordinator.consumer.decision_builder import (
    DecisionBuilder,
    DecisionContext,
    DecisionScope,
    TooManySubscribedTopics,
    preferred_assignor,
)
from raftlog.coordinator.consumer.topic_regex_resolver import TopicRegexResolver
from tests.coordinator.group_coordinator_setup import image_of, topic_id


def draft_of(state: ConsumerMembership | None, topics: dict[str, int], **changes: Any) -> DecisionBuilder:
    image = image_of(topics)
    return DecisionBuilder(
        "g", state, DecisionContext(image, TopicRegexResolver(lambda: image), 1_000, **changes)
    )


def joined(builder: DecisionBuilder, member_id: str, **reads: Any) -> ConsumerMembership:
    changed = builder.update_member(member_id, MemberMetadata(**reads))
    builder.update_epoch_and_targets(changed=changed)
    builder.reconcile(member_id, {})
    return builder.state


def test_the_records_of_a_draft_make_its_state() -> None:
    """The result rests on records alone: a reader that replays them knows all of it."""
    builder = draft_of(None, {"t": 4})
    state = joined(builder, "a", topics=("t",))
    assert apply_consumer(None, builder.records) == state
    assert state.current_assignment_of("a").assigned == {topic_id("t"): frozenset(range(4))}
    assert (state.epoch, state.target_epoch) == (1, 1)


@pytest.mark.parametrize(
    ("effort", "matched", "target"),
    [
        (DecisionScope.ALL, 2, 3),
        (DecisionScope.STEPS_LATER, 2, 3),
        (DecisionScope.KNOWN_TOPICS, 1, 2),
        (DecisionScope.NO_TARGETS, 1, 2),
    ],
)
def test_less_effort_decides_less(effort: DecisionScope, matched: int, target: int) -> None:
    """New topics wait first, then targets; the member that comes is in at any rate."""
    before = joined(draft_of(None, {"log-a": 2}), "a", regex="log-.*")
    builder = draft_of(before, {"log-a": 2, "log-b": 1}, scope=effort)
    state = joined(builder, "a", regex="log-.*")
    assert len(state.regexes["log-.*"].topics) == matched
    assert sum(map(len, state.target_assignment_of("a").values())) == target
    steps = [type(each).__name__ for each in builder.records].count("CurrentAssignmentChanged")
    assert steps == (effort is DecisionScope.ALL)


def test_a_draft_without_room_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is computed for it."""
    monkeypatch.setattr("raftlog.coordinator.consumer.decision_builder.MAX_SUBSCRIBED_TOPICS", 2)
    joined(draft_of(None, {"t": 1}), "a", topics=("t", "u"))
    builder = draft_of(None, {"t": 1})
    builder.update_member("a", MemberMetadata(topics=("t", "u", "v")))
    with pytest.raises(TooManySubscribedTopics):
        builder.update_epoch_and_targets(changed=True)


def test_most_members_choose_the_assignor() -> None:
    """Among the offered assignors; the first of them by default."""
    members = {
        str(number): MemberMetadata(assignor=each)
        for number, each in enumerate(["range", "range", "uniform", None])
    }
    state = ConsumerMembership(members=members)
    assert preferred_assignor(state, ("uniform", "range")) == "range"
    assert preferred_assignor(state, ("uniform",)) == "uniform"
    assert preferred_assignor(ConsumerMembership(), ("range", "uniform")) == "range"
