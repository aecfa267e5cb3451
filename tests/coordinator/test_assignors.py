"""Server-side assignors (KIP-848): every partition has one reader, shares are even, and little moves."""

from __future__ import annotations

import time
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.coordinator.consumer.assignors import ASSIGNORS, Shares, Wanted, assign_range, assign_uniform
from raftlog.coordinator.consumer.reconcile import count, difference

TOPICS = tuple(UUID(int=number) for number in range(1, 5))
A, B = TOPICS[:2]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
partitions = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 9), min_size=1))
topics = st.frozensets(st.sampled_from(TOPICS))
names = st.sampled_from("abcdef")
instances = st.none() | st.sampled_from("xyz")
members = st.dictionaries(names, st.builds(Wanted, topics, partitions, instances), min_size=1)
alike = st.builds(
    lambda found, read: {name: each._replace(topics=read) for name, each in found.items()}, members, topics
)


def readers(shares: Shares) -> Counter[tuple[UUID, int]]:
    return Counter(
        (topic_id, index)
        for share in shares.values()
        for topic_id, indexes in share.items()
        for index in indexes
    )


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(found=members, numbers=counts)
def test_every_partition_that_is_read_has_one_reader(
    name: str, found: dict[str, Wanted], numbers: dict[UUID, int]
):
    """Nobody gets what it does not read or what is not there, whatever it had before."""
    shares = ASSIGNORS[name](found, numbers)
    wanted = {topic for each in found.values() for topic in each.topics} & numbers.keys()
    assert readers(shares) == Counter((topic, index) for topic in wanted for index in range(numbers[topic]))
    assert shares.keys() == found.keys()
    assert all(share.keys() <= found[each].topics and all(share.values()) for each, share in shares.items())


@given(alike, counts)
def test_uniform_shares_differ_by_one_at_most(found: dict[str, Wanted], numbers: dict[UUID, int]):
    """Where all read the same."""
    sizes = [count(share) for share in assign_uniform(found, numbers).values()]
    assert max(sizes) - min(sizes) <= 1


@given(members, counts)
def test_uniform_moves_nothing_that_is_even_already(found: dict[str, Wanted], numbers: dict[UUID, int]):
    """Assigning again changes nothing."""
    shares = assign_uniform(found, numbers)
    again = {name: each._replace(before=shares[name]) for name, each in found.items()}
    assert assign_uniform(again, numbers) == shares


@given(alike, counts)
def test_uniform_takes_no_more_from_anybody_than_evenness_asks(
    found: dict[str, Wanted], numbers: dict[UUID, int]
):
    """When a member goes, the others keep all they have."""
    shares = assign_uniform(found, numbers)
    stay = {name: each._replace(before=shares[name]) for name, each in found.items() if name != min(found)}
    if stay:
        after = assign_uniform(stay, numbers)
        assert not any(difference(shares[name], after[name]) for name in stay)


@given(members, counts)
def test_nobody_has_two_more_than_another_that_could_take_one(
    found: dict[str, Wanted], numbers: dict[UUID, int]
):
    """Where members read different topics, no single move would make it more even."""
    shares = assign_uniform(found, numbers)
    for giver, share in shares.items():
        for taker, each in found.items():
            if share.keys() & each.topics and giver != taker:
                assert count(share) - count(shares[taker]) < 2, (giver, taker)


def test_range_gives_a_member_the_same_range_of_each_topic():
    """So topics of equally many partitions are joined side by side; static members come first, by their names."""
    found = {
        "c": Wanted(frozenset({A, B})),
        "b": Wanted(frozenset({A, B}), {}, "static"),
        "a": Wanted(frozenset({A, B})),
    }
    shares = assign_range(found, {A: 4, B: 4})
    assert shares == {
        "b": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "a": {A: frozenset({2}), B: frozenset({2})},
        "c": {A: frozenset({3}), B: frozenset({3})},
    }


def test_a_newcomer_gets_its_share_from_who_has_most():
    """Three of six move to a second member, one each from two to a third."""
    before = {A: frozenset(range(6))}
    first = assign_uniform({"a": Wanted(frozenset({A}), before), "b": Wanted(frozenset({A}))}, {A: 6})
    assert {name: count(share) for name, share in first.items()} == {"a": 3, "b": 3}
    found = {name: Wanted(frozenset({A}), share) for name, share in first.items()}
    second = assign_uniform({**found, "c": Wanted(frozenset({A}))}, {A: 6})
    assert all(count(difference(first[each], second[each])) == 1 for each in "ab")


class CountedTopics(frozenset[UUID]):
    """Counts how often it is asked whether somebody reads a topic."""

    asked = 0

    def __contains__(self, topic_id: object) -> bool:
        type(self).asked += 1
        return super().__contains__(topic_id)


def test_range_asks_for_the_readers_of_each_kind_of_subscription_once():
    """Not each member for each topic: a thousand members of a thousand topics took a sixth of a second."""
    ids = [UUID(int=number) for number in range(100)]
    everything, fewer = CountedTopics(ids), CountedTopics(ids[50:])
    found = {f"m{number:03}": Wanted(fewer if number % 2 else everything) for number in range(100)}
    CountedTopics.asked = 0
    shares = assign_range(found, dict.fromkeys(ids, 4))
    assert CountedTopics.asked <= 2 * len(ids)
    assert [each for each, share in shares.items() if share] == [
        "m000",
        "m001",
        "m002",
        "m003",
        "m004",
        "m006",
    ]


def rolling(members: int, topics: int) -> tuple[dict[str, Wanted], dict[UUID, int]]:
    """Many members that have even shares, one of which reads a topic less from now on."""
    ids = [UUID(int=number) for number in range(topics)]
    numbers = dict.fromkeys(ids, 10)
    everything = frozenset(ids)
    names = [f"m{number:04}" for number in range(members)]
    shares = assign_uniform({each: Wanted(everything) for each in names}, numbers)
    found = {each: Wanted(everything, shares[each]) for each in names}
    return {**found, names[0]: Wanted(everything - {ids[0]}, shares[names[0]])}, numbers


def test_a_rolling_change_of_the_subscription_takes_no_time_for_each_topic_and_member():
    """A second it took; some milliseconds it takes. The bound is that of a stall of the loop, three times over."""
    found, numbers = rolling(1_000, 500)
    began = time.process_time()
    assign_uniform(found, numbers)
    assert time.process_time() - began < 0.3


class NotCompared(UUID):
    """A topic id that must not be compared: UUIDs do so in Python."""

    def __lt__(self, other: object) -> bool:
        raise AssertionError("compared")


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_topics_are_sorted_by_numbers(name: str):
    """A hundred thousand topics are half a second of comparisons otherwise."""
    topics = [NotCompared(int=number) for number in (3, 1, 2)]
    found = {"a": Wanted(frozenset(topics)), "b": Wanted(frozenset(topics[:2]))}
    shares = ASSIGNORS[name](found, dict.fromkeys(topics, 2))
    assert sum(map(count, shares.values())) == 6
