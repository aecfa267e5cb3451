"""A decision about a consumer group in the making: less of it where that is all that may be decided."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.coordinator.consumer.draft import Draft, Effort, Surroundings, TooMuchToRead, preferred_assignor
from raftlog.coordinator.consumer.state import ConsumerMembership, Subscriber, apply_consumer
from raftlog.coordinator.consumer.topics import Topics
from tests.coordinator.journals import image_of, topic_id


def draft_of(state: ConsumerMembership | None, topics: dict[str, int], **changes: Any) -> Draft:
    image = image_of(topics)
    return Draft("g", state, Surroundings(image, Topics(lambda: image), 1_000, **changes))


def joined(draft: Draft, member_id: str, **reads: Any) -> ConsumerMembership:
    changed = draft.describe(member_id, Subscriber(**reads))
    draft.settle(changed=changed)
    draft.reconcile(member_id, {})
    return draft.state


def test_the_records_of_a_draft_make_its_state() -> None:
    """What is told rests on records alone: who replays them knows all of it."""
    draft = draft_of(None, {"t": 4})
    state = joined(draft, "a", topics=("t",))
    assert apply_consumer(None, draft.records) == state
    assert state.current_of("a").assigned == {topic_id("t"): frozenset(range(4))}
    assert (state.epoch, state.target_epoch) == (1, 1)


@pytest.mark.parametrize(
    ("effort", "matched", "target"),
    [(Effort.ALL, 2, 3), (Effort.STEPS_LATER, 2, 3), (Effort.KNOWN_TOPICS, 1, 2), (Effort.NO_TARGETS, 1, 2)],
)
def test_less_effort_decides_less(effort: Effort, matched: int, target: int) -> None:
    """New topics wait first, then targets; the member that comes is in at any rate."""
    before = joined(draft_of(None, {"log-a": 2}), "a", regex="log-.*")
    draft = draft_of(before, {"log-a": 2, "log-b": 1}, effort=effort)
    state = joined(draft, "a", regex="log-.*")
    assert len(state.regexes["log-.*"].topics) == matched
    assert sum(map(len, state.target_of("a").values())) == target
    steps = [type(each).__name__ for each in draft.records].count("CurrentChanged")
    assert steps == (effort is Effort.ALL)


def test_a_draft_without_room_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is computed for it."""
    monkeypatch.setattr("raftlog.coordinator.consumer.draft.MOST_READ", 2)
    joined(draft_of(None, {"t": 1}), "a", topics=("t", "u"))
    draft = draft_of(None, {"t": 1})
    draft.describe("a", Subscriber(topics=("t", "u", "v")))
    with pytest.raises(TooMuchToRead):
        draft.settle(changed=True)


def test_most_members_choose_the_assignor() -> None:
    """Of those that are offered; the first of them where nobody asks for one."""
    members = {
        str(number): Subscriber(assignor=each)
        for number, each in enumerate(["range", "range", "uniform", None])
    }
    state = ConsumerMembership(members=members)
    assert preferred_assignor(state, ("uniform", "range")) == "range"
    assert preferred_assignor(state, ("uniform",)) == "uniform"
    assert preferred_assignor(ConsumerMembership(), ("range", "uniform")) == "range"
