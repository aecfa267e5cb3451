"""The assignor `simple` shares partitions among members (KIP-932)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.coordinator.consumer.consumer_membership import Partitions
from raftlog.coordinator.share.simple_assignor import (
    MOST_PAIRS,
    ShareSubscription,
    _Assignment,
    assign,
)

TOPICS = [UUID(int=number) for number in (1, 2, 3)]


def offered(*counts: int) -> Partitions:
    return {
        topic_id: frozenset(range(count)) for topic_id, count in zip(TOPICS, counts, strict=False) if count
    }


def members_of(
    count: int, topics: frozenset[UUID], has: dict[str, Partitions] | None = None
) -> dict[str, ShareSubscription]:
    names = [f"m{number:03}" for number in range(count)]
    return {name: ShareSubscription(topics, (has or {}).get(name, {})) for name in names}


def sizes(found: dict[str, Partitions]) -> list[int]:
    return sorted(sum(map(len, partitions.values())) for partitions in found.values())


def holders(found: dict[str, Partitions]) -> dict[tuple[UUID, int], int]:
    counts: dict[tuple[UUID, int], int] = {}
    for partitions in found.values():
        for topic_id, indexes in partitions.items():
            for index in indexes:
                counts[topic_id, index] = counts.get((topic_id, index), 0) + 1
    return counts


@given(st.integers(1, 12), st.lists(st.integers(0, 7), min_size=1, max_size=3), st.integers(1, 12))
def test_members_have_equal_shares_and_partitions_enough_members(
    before: int, counts: list[int], after: int
) -> None:
    """Each partition has ceil(members / partitions) members or more, and shares differ by at most one, also later."""
    topics = frozenset(offered(*counts))
    found = assign(members_of(before, topics), offered(*counts))
    for count in (before, after):
        found = assign(members_of(count, topics, found), offered(*counts))
        assert len(found) == count
        total = sum(counts)
        assert sizes(found)[-1] - sizes(found)[0] <= 1
        assert len(holders(found)) == total
        assert all(each >= -(-count // total) for each in holders(found).values())
        assert assign(members_of(count, topics, found), offered(*counts)) == found, "it is stable"


def test_members_keep_what_they_have() -> None:
    """A newcomer takes from the others only its own share."""
    topics = frozenset(offered(9))
    before = assign(members_of(2, topics), offered(9))
    after = assign(members_of(3, topics, before), offered(9))
    assert sizes(after) == [3, 3, 3]
    for name in ("m000", "m001"):
        assert after[name][TOPICS[0]] <= before[name][TOPICS[0]]


def test_members_get_partitions_of_their_topics_only() -> None:
    """Members may read different topics: none is idle as long as its topics have partitions."""
    members = {
        "a": ShareSubscription(frozenset(TOPICS[:1])),
        "b": ShareSubscription(frozenset(TOPICS[:2])),
        "c": ShareSubscription(frozenset(TOPICS[:2])),
        "d": ShareSubscription(frozenset(TOPICS[2:]), {TOPICS[0]: frozenset({0})}),
    }
    found = assign(members, offered(1, 3))
    assert found["a"] == {TOPICS[0]: frozenset({0})}
    assert sizes({name: found[name] for name in "bc"}) == [1, 2]
    assert found["d"] == {}
    assert len(holders(found)) == 4


def test_no_member_is_idle_beside_a_partition_of_its_topic() -> None:
    """The topic with five partitions, which one member reads, does not leave the readers of the other without work."""
    members = {
        "a": ShareSubscription(frozenset(TOPICS[:2])),
        "b": ShareSubscription(frozenset(TOPICS[:1])),
        "c": ShareSubscription(frozenset(TOPICS[:1])),
    }
    found = assign(members, offered(1, 5))
    assert found["b"] == found["c"] == {TOPICS[0]: frozenset({0})}
    assert sizes(found) == [1, 1, 5]


def test_many_partitions_are_shared() -> None:
    """Two hundred members, `group.share.max.size`, share ten thousand partitions."""
    topics = frozenset(offered(10_000))
    found = assign(members_of(200, topics), offered(10_000))
    assert sizes(found) == [50] * 200


def test_even_shares_are_not_sought_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that each share a topic with the next pass partitions on and on; it took half a minute."""
    members, topics = 200, [UUID(int=number) for number in range(1, 202)]
    partitions = {each: frozenset(range(5_000 if each in topics[:2] else 50)) for each in topics}
    subscribed = {
        f"m{number:03}": ShareSubscription(frozenset(topics[number : number + 2]))
        for number in range(members)
    }
    subscribed["m000"] = subscribed["m000"]._replace(owned={each: partitions[each] for each in topics[:2]})
    move, tried = _Assignment._move, 0

    def counted(it: _Assignment, larger: str, smaller: str) -> bool:
        nonlocal tried
        tried += 1
        return move(it, larger, smaller)

    monkeypatch.setattr(_Assignment, "_move", counted)
    found = assign(subscribed, partitions)
    assert MOST_PAIRS <= tried < MOST_PAIRS + members**2
    assert len(holders(found)) == sum(map(len, partitions.values()))
    assert all(found[each].keys() <= it.topic_ids for each, it in subscribed.items())


def test_a_topic_without_partitions_is_no_work() -> None:
    """No partition of the topic is initialized yet."""
    assert assign(members_of(2, frozenset(TOPICS[:1])), {TOPICS[0]: frozenset()}) == {"m000": {}, "m001": {}}
