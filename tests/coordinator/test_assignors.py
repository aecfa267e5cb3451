"""Server-side assignors (KIP-848): every partition has one reader, shares are even, and little moves."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.coordinator.consumer import assignors
from raftlog.coordinator.consumer.assignors import (
    ASSIGNORS,
    GroupAssignment,
    MemberSubscription,
    TopicMetadata,
    assign_range,
    assign_uniform,
)
from raftlog.coordinator.consumer.reconcile import count, difference

TOPICS = tuple("ABCD")
"""Names; the ids are others, in another order."""
IDS = {name: UUID(int=9 - number) for number, name in enumerate(TOPICS)}
A, B = (IDS[each] for each in "AB")

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7)).map(
    lambda found: {name: TopicMetadata(IDS[name], number) for name, number in found.items()}
)
partitions = st.dictionaries(
    st.sampled_from(tuple(IDS.values())), st.frozensets(st.integers(0, 9), min_size=1)
)
topics = st.frozensets(st.sampled_from(TOPICS))
names = st.sampled_from("abcdef")
instances = st.none() | st.sampled_from("xyz")
members = st.dictionaries(names, st.builds(MemberSubscription, topics, partitions, instances), min_size=1)
alike = st.builds(
    lambda found, read: {name: each._replace(topics=read) for name, each in found.items()}, members, topics
)


def readers(shares: GroupAssignment) -> Counter[tuple[UUID, int]]:
    return Counter(
        (topic_id, index)
        for share in shares.values()
        for topic_id, indexes in share.items()
        for index in indexes
    )


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(found=members, numbers=counts)
def test_every_partition_that_is_read_has_one_reader(
    name: str, found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """A member gets no partition of topics that it does not read or that do not exist, whatever it had before."""
    shares = ASSIGNORS[name](found, numbers)
    wanted = [
        numbers[each] for each in {topic for it in found.values() for topic in it.topics} & numbers.keys()
    ]
    assert readers(shares) == Counter(
        (topic, index) for topic, number, _ in wanted for index in range(number)
    )
    assert shares.keys() == found.keys()
    for name, share in shares.items():
        assert share.keys() <= {IDS[each] for each in found[name].topics}
        assert all(share.values())


@given(alike, counts)
def test_uniform_shares_differ_by_one_at_most(
    found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """Members that all read the same."""
    sizes = [count(share) for share in assign_uniform(found, numbers).values()]
    assert max(sizes) - min(sizes) <= 1


@given(members, counts)
def test_uniform_moves_nothing_that_is_even_already(
    found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """Assigning again has no effect."""
    shares = assign_uniform(found, numbers)
    again = {name: each._replace(before=shares[name]) for name, each in found.items()}
    assert assign_uniform(again, numbers) == shares


@given(alike, counts)
def test_uniform_takes_no_more_from_anybody_than_evenness_asks(
    found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """When a member goes, the others keep all they have."""
    shares = assign_uniform(found, numbers)
    stay = {name: each._replace(before=shares[name]) for name, each in found.items() if name != min(found)}
    if stay:
        after = assign_uniform(stay, numbers)
        assert not any(difference(shares[name], after[name]) for name in stay)


@given(members, counts)
def test_no_member_has_two_partitions_more_than_another_that_could_take_one(
    found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """No single move would make it more even, also if members read different topics."""
    shares = assign_uniform(found, numbers)
    for giver, share in shares.items():
        for taker, each in found.items():
            if share.keys() & {IDS[topic] for topic in each.topics} and giver != taker:
                assert count(share) - count(shares[taker]) < 2, (giver, taker)


def test_range_gives_a_member_the_same_range_of_each_topic():
    """So topics of equally many partitions are joined side by side; static members come first, by their names."""
    both = frozenset("AB")
    found = {
        "c": MemberSubscription(both),
        "b": MemberSubscription(both, {}, "static"),
        "a": MemberSubscription(both),
    }
    shares = assign_range(found, {"A": TopicMetadata(A, 4), "B": TopicMetadata(B, 4)})
    assert shares == {
        "b": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "a": {A: frozenset({2}), B: frozenset({2})},
        "c": {A: frozenset({3}), B: frozenset({3})},
    }


def test_a_newcomer_gets_its_share_from_the_members_with_most():
    """Three of six move to a second member, one each from two to a third."""
    read, numbers = frozenset("A"), {"A": TopicMetadata(A, 6)}
    before = {A: frozenset(range(6))}
    first = assign_uniform({"a": MemberSubscription(read, before), "b": MemberSubscription(read)}, numbers)
    assert {name: count(share) for name, share in first.items()} == {"a": 3, "b": 3}
    found = {name: MemberSubscription(read, share) for name, share in first.items()}
    second = assign_uniform({**found, "c": MemberSubscription(read)}, numbers)
    assert all(count(difference(first[each], second[each])) == 1 for each in "ab")


def test_a_newcomer_among_members_that_read_different_topics_takes_no_more_than_its_share():
    """Each of ten reads all of a hundred topics and one of its own; the eleventh reads all."""
    numbers = {f"t{each:02}": TopicMetadata(UUID(int=each), 1) for each in range(100)}
    found = {f"m{each}": MemberSubscription(frozenset(numbers) - {f"t{each:02}"}) for each in range(10)}
    shares = assign_uniform(found, numbers)
    assert {count(share) for share in shares.values()} == {10}
    stay = {name: each._replace(before=shares[name]) for name, each in found.items()}
    after = assign_uniform({**stay, "new": MemberSubscription(frozenset(numbers))}, numbers)
    assert count(after["new"]) == 9
    assert sum(count(difference(shares[name], after[name])) for name in found) == 9


class CountedNames(frozenset[str]):
    """Counts how often its topics are iterated or looked up."""

    looks = 0

    def __contains__(self, topic: object) -> bool:
        type(self).looks += 1
        return super().__contains__(topic)

    def __iter__(self) -> Iterator[str]:
        for each in super().__iter__():
            type(self).looks += 1
            yield each


def everything_but(
    topics: int, members: int, *, missing: int
) -> tuple[dict[str, MemberSubscription], dict[str, TopicMetadata]]:
    """Members each of which reads all but some topics of its own."""
    ids = {f"t{number:04}": TopicMetadata(UUID(int=number), 1) for number in range(topics)}
    ordered = list(ids)
    return {
        f"m{number:03}": MemberSubscription(
            CountedNames(frozenset(ids) - set(ordered[number * missing : (number + 1) * missing]))
        )
        for number in range(members)
    }, ids


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_subscriptions_that_all_differ_are_not_gone_through_topic_by_topic(name: str):
    """A smaller case is left out: forty members, each of nearly all of five thousand topics, took a fifth of a
    second.
    """
    found, numbers = everything_but(500, 20, missing=5)
    CountedNames.looks = 0
    shares = ASSIGNORS[name](found, numbers)
    assert sum(map(count, shares.values())) == 500
    assert CountedNames.looks <= len(numbers)
    kept = {each: it._replace(before=shares[each]) for each, it in found.items()}
    CountedNames.looks = 0
    ASSIGNORS[name](kept, numbers)
    assert CountedNames.looks <= len(numbers), "and once for what each member had"


def steps_of(assign: Callable[[], object]) -> int:
    """How many lines of the assignors run."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != assignors.__file__:
            return None
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assign()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_subscriptions_that_all_differ_take_no_step_for_each_topic_and_member(name: str):
    """Four times the members take hardly more: each topic is looked at, and what each member does not read."""
    few, many = (everything_but(400, count, missing=5) for count in (10, 40))
    least, most = (steps_of(lambda case=case: ASSIGNORS[name](*case)) for case in (few, many))  # type: ignore[misc]
    assert most < 2 * least


def test_a_rolling_change_of_the_subscription_takes_no_step_for_each_topic_and_member():
    """Of a hundred members one reads a topic less from now on."""
    numbers = {f"t{each:03}": TopicMetadata(UUID(int=each), 10) for each in range(50)}
    everything = frozenset(numbers)
    found = {f"m{each:04}": MemberSubscription(everything) for each in range(100)}
    shares = assign_uniform(found, numbers)
    found = {name: MemberSubscription(everything, shares[name]) for name in found}
    found["m0000"] = found["m0000"]._replace(topics=everything - {"t000"})
    partitions = sum(each.partitions for each in numbers.values())
    assert steps_of(lambda: assign_uniform(found, numbers)) < 30 * (len(found) + partitions)


class NotCompared(UUID):
    """A topic id that must not be compared: UUIDs do so in Python."""

    def __lt__(self, other: object) -> bool:
        raise AssertionError("compared")


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_topics_are_sorted_by_name(name: str):
    """A hundred thousand ids are half a second of comparisons."""
    numbers = {each: TopicMetadata(NotCompared(int=number), 2) for number, each in enumerate("CAB")}
    found = {"a": MemberSubscription(frozenset("ABC")), "b": MemberSubscription(frozenset("AB"))}
    assert sum(map(count, ASSIGNORS[name](found, numbers).values())) == 6


RACKS = ("r1", "r2", "r3")
placements = st.lists(
    st.frozensets(st.sampled_from(RACKS), min_size=1, max_size=2), min_size=1, max_size=9
).map(tuple)
placed = st.dictionaries(st.sampled_from(TOPICS), placements, min_size=1).map(
    lambda found: {name: TopicMetadata(IDS[name], len(racks), racks) for name, racks in found.items()}
)
in_racks = st.dictionaries(
    names,
    st.builds(
        MemberSubscription,
        st.just(frozenset(TOPICS)),
        partitions,
        instances,
        st.none() | st.sampled_from(RACKS),
    ),
    min_size=1,
)


def near(
    shares: GroupAssignment, found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
) -> int:
    """How many partitions have a replica in their member's rack."""
    racks_of = {each.topic_id: each.racks for each in numbers.values()}
    return sum(
        found[name].rack in racks_of[topic_id][index]
        for name, share in shares.items()
        for topic_id, indexes in share.items()
        for index in indexes
    )


@given(in_racks, placed)
def test_uniform_brings_partitions_near_their_members_and_stays_balanced(
    found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """Sizes come first; near replicas second, as far as one exchange or move helps; what members had last."""
    shares = assign_uniform(found, numbers)
    assert readers(shares) == Counter(
        (each.topic_id, index) for each in numbers.values() for index in range(each.partitions)
    )
    sizes = {name: count(share) for name, share in shares.items()}
    assert max(sizes.values()) - min(sizes.values()) <= 1
    plain = assign_uniform(found, {name: each._replace(racks=()) for name, each in numbers.items()})
    assert near(shares, found, numbers) >= near(plain, found, numbers)
    racks_of = {each.topic_id: each.racks for each in numbers.values()}
    held = [
        (name, racks_of[topic_id][index])
        for name, share in shares.items()
        for topic_id, indexes in share.items()
        for index in indexes
    ]
    for name, racks in held:
        rack = found[name].rack
        if rack in racks or len({other for each in racks_of.values() for other in each}) == 1:
            continue
        for other, size in sizes.items():
            assert found[other].rack not in racks or size >= sizes[name], "it could move there"
        for other, others in held:
            if found[other].rack in racks:
                assert found[other].rack in others and rack not in others, "they could be exchanged"


@given(in_racks, placed)
def test_uniform_with_racks_moves_nothing_that_is_near_already(
    found: dict[str, MemberSubscription], numbers: dict[str, TopicMetadata]
):
    """Assigning again changes nothing."""
    shares = assign_uniform(found, numbers)
    again = {name: each._replace(before=shares[name]) for name, each in found.items()}
    assert assign_uniform(again, numbers) == shares


def test_members_in_three_racks_read_their_own_replicas():
    """Nine partitions with one replica each: nobody reads from another rack, whoever had what before."""
    racks = tuple(frozenset({RACKS[index // 3]}) for index in range(9))
    numbers = {"A": TopicMetadata(A, 9, racks)}
    before = {A: frozenset(range(9))}
    found = {
        "a": MemberSubscription(frozenset("A"), rack="r2"),
        "b": MemberSubscription(frozenset("A"), before, rack="r3"),
        "c": MemberSubscription(frozenset("A"), rack="r1"),
    }
    shares = assign_uniform(found, numbers)
    assert {name: sorted(share[A]) for name, share in shares.items()} == {
        "a": [3, 4, 5],
        "b": [6, 7, 8],
        "c": [0, 1, 2],
    }


def test_racks_that_all_partitions_share_move_nothing():
    """Then no member is nearer to one partition than to another."""
    everywhere = frozenset(RACKS)
    found = {each: MemberSubscription(frozenset("A"), {A: frozenset({0})}, rack=each) for each in RACKS}
    found["r2"] = found["r2"]._replace(before={A: frozenset({1, 2})})
    plain, racked = (
        assign_uniform(found, {"A": TopicMetadata(A, 5, racks)}) for racks in ((), (everywhere,) * 5)
    )
    assert plain == racked


def test_exchanges_have_a_limit():
    """Thousands of partitions in racks that all differ: a heartbeat does not wait for the best of all shares."""
    racks = tuple(frozenset({f"r{index % 100}", f"r{index * 7 % 101}"}) for index in range(5_000))
    numbers = {"A": TopicMetadata(A, 5_000, racks)}
    found = {f"m{each:03}": MemberSubscription(frozenset("A"), rack=f"r{each % 103}") for each in range(500)}
    plain = {name: each._replace(rack=None) for name, each in found.items()}
    steps, least = (steps_of(lambda case=case: assign_uniform(case, numbers)) for case in (found, plain))  # type: ignore[misc]
    assert steps < least + 20 * assignors.MAX_EXCHANGES
