"""The holders of partitions that others are to get: the answer, and how much is looked at for it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    CurrentAssignment,
    Partitions,
)
from raftlog.coordinator.consumer.decision_builder import PartitionsOfOthers
from tests.coordinator.group_coordinator_setup import topic_id

T, U, V = map(topic_id, "tuv")


class Counting(dict[str, CurrentAssignment]):
    """Counts how often it is gone through."""

    rounds = 0

    def items(self):  # type: ignore[no-untyped-def]
        self.rounds += 1
        return super().items()


def test_what_others_read_or_have_yet_to_give_up_is_held():
    """Of what is asked about only, and not by the member itself."""
    some: Partitions = {T: frozenset({0, 1})}
    state = ConsumerMembership(
        current_assignments={
            "a": CurrentAssignment(assigned=some, revoking={U: frozenset({3, 4})}),
            "b": CurrentAssignment(assigned={T: frozenset({2}), V: frozenset({0})}),
        }
    )
    wanted: Partitions = {T: frozenset({1, 2, 5}), U: frozenset({4})}
    assert PartitionsOfOthers(state, but="c")(wanted) == {T: frozenset({1, 2}), U: frozenset({4})}
    assert PartitionsOfOthers(state, but="a")(wanted) == {T: frozenset({2})}
    assert PartitionsOfOthers(state, but="c")({}) == {}


def topics(count: int) -> Iterator[UUID]:
    return (UUID(int=number) for number in range(count))


def test_members_are_gone_through_once_however_many_topics_are_missing():
    """A thousand members and five thousand topics are five thousand steps, not five million."""
    currents = Counting({"a": CurrentAssignment(assigned=dict.fromkeys(topics(50), frozenset({0})))})
    missing = dict.fromkeys(topics(100), frozenset({0, 1}))
    held = PartitionsOfOthers(ConsumerMembership(current_assignments=currents), but="b")(missing)
    assert held == dict.fromkeys(topics(50), frozenset({0}))
    assert currents.rounds == 1
