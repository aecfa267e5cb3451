"""raftlog.client.member: assignments as Kafka's assignors make them, in the consumer protocol's own bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.client import member
from raftlog.client.member import assign_ranges, assign_round_robin, read_assignment
from raftlog.coordinator.consumer_protocol import (
    read_assignment as read_as_coordinator,
)
from raftlog.coordinator.consumer_protocol import (
    read_subscription,
    write_assignment,
)

names = st.text("abc", min_size=1, max_size=5)
counts = st.dictionaries(names, st.integers(1, 9), max_size=4)


def test_ranges_are_kafkas() -> None:
    """The first members get one partition more, in each topic anew (RangeAssignor)."""
    subscribed = {"b": ["t", "u"], "a": ["t", "u"], "c": ["t"]}
    assert assign_ranges(subscribed, {"t": 7, "u": 3}) == {
        "a": {"t": [0, 1, 2], "u": [0, 1]},
        "b": {"t": [3, 4], "u": [2]},
        "c": {"t": [5, 6]},
    }


def test_turns_are_kafkas() -> None:
    """The turn goes on from topic to topic, past members without a subscription (RoundRobinAssignor)."""
    subscribed = {"a": ["t", "u"], "b": ["u"]}
    assert assign_round_robin(subscribed, {"t": 2, "u": 3}) == {
        "a": {"t": [0, 1], "u": [1]},
        "b": {"u": [0, 2]},
    }


@given(st.dictionaries(names, st.lists(names, unique=True), min_size=1, max_size=4), counts)
def test_each_partition_that_is_subscribed_has_one_member(
    subscribed: dict[str, list[str]], there: dict[str, int]
) -> None:
    """No partition is assigned twice, none is forgotten, and none goes to a member without a subscription."""
    wanted = {
        (topic, number)
        for topic, count in there.items()
        if any(topic in topics for topics in subscribed.values())
        for number in range(count)
    }
    for assign in (assign_ranges, assign_round_robin):
        plan = assign(subscribed, there)
        assigned = [
            (topic, number)
            for topics in plan.values()
            for topic, numbers in topics.items()
            for number in numbers
        ]
        assert sorted(assigned) == sorted(wanted)
        assert all(topic in subscribed[who] for who, topics in plan.items() for topic in topics)


@given(st.lists(names, unique=True), st.dictionaries(names, st.frozensets(st.integers(0, 99), min_size=1)))
def test_the_coordinator_reads_what_a_member_writes_and_the_reverse(
    topics: list[str], assigned: dict[str, frozenset[int]]
) -> None:
    """Both ends have their own code for these bytes."""
    subscription = read_subscription(member._subscription(topics))
    assert subscription is not None and subscription.topics == frozenset(topics)
    written = member._assignment({topic: sorted(numbers) for topic, numbers in assigned.items()})
    assert read_as_coordinator(written) == assigned
    read = read_assignment(write_assignment(assigned, version=3))
    assert {topic: frozenset(numbers) for topic, numbers in read.items()} == assigned
    assert read_assignment(b"") == {}
