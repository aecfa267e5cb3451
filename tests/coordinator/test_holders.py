"""Who holds what others are to get: the answer, and how much is looked at for it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from raftlog.coordinator.consumer.draft import Holders
from raftlog.coordinator.consumer.state import ConsumerMembership, Current, Partitions
from tests.coordinator.journals import topic_id

T, U, V = map(topic_id, "tuv")


class Counting(dict[str, Current]):
    """Counts how often it is gone through."""

    rounds = 0

    def items(self):  # type: ignore[no-untyped-def]
        self.rounds += 1
        return super().items()


def test_what_others_read_or_have_yet_to_give_up_is_held():
    """Of what is asked about only, and not by the member itself."""
    some: Partitions = {T: frozenset({0, 1})}
    state = ConsumerMembership(
        currents={
            "a": Current(assigned=some, revoking={U: frozenset({3, 4})}),
            "b": Current(assigned={T: frozenset({2}), V: frozenset({0})}),
        }
    )
    wanted: Partitions = {T: frozenset({1, 2, 5}), U: frozenset({4})}
    assert Holders(state, but="c")(wanted) == {T: frozenset({1, 2}), U: frozenset({4})}
    assert Holders(state, but="a")(wanted) == {T: frozenset({2})}
    assert Holders(state, but="c")({}) == {}


def topics(count: int) -> Iterator[UUID]:
    return (UUID(int=number) for number in range(count))


def test_members_are_gone_through_once_however_many_topics_are_missing():
    """A thousand members and five thousand topics are five thousand steps, not five million."""
    currents = Counting({"a": Current(assigned=dict.fromkeys(topics(50), frozenset({0})))})
    missing = dict.fromkeys(topics(100), frozenset({0, 1}))
    held = Holders(ConsumerMembership(currents=currents), but="b")(missing)
    assert held == dict.fromkeys(topics(50), frozenset({0}))
    assert currents.rounds == 1
