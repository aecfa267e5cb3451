"""What each member shall have: the server-side assignors of KIP-848, as functions of values.

Laws: every partition of a topic that somebody reads has exactly one member, which reads that topic. `uniform` balances
(where all read the same topics, nobody has two more than another) and moves no more than that takes; `range` gives each
member the same range of every topic, so that topics of equally many partitions are joined side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.coordinator.consumer.state import NOTHING, Partitions

MOST_ROUNDS: Final = 100
"""How often the topics are gone through to even out members that read different ones; few are needed."""


class Wanted(NamedTuple):
    """What an assignor knows of a member: the topics it reads, what it was to have so far, and its static id."""

    topics: frozenset[UUID]
    before: Partitions = NOTHING
    instance_id: str | None = None


Members = Mapping[str, Wanted]
Counts = Mapping[UUID, int]
"""Number of partitions by topic id."""

Shares = dict[str, Partitions]
Assignor = Callable[[Members, Counts], Shares]

_Place = tuple[UUID, int]


def assign_uniform(members: Members, counts: Counts) -> Shares:
    """Balance the partitions; what a member was to have stays with it as far as that allows."""
    places = _kept(members, counts)
    free = _free(members, counts, places.values())
    if len({each.topics for each in members.values()}) == 1:
        _even_out(places, free)
    else:
        _spread(members, places, free)
        for _ in range(MOST_ROUNDS):
            if not _level(members, places):
                break
    return _shares(places)


def assign_range(members: Members, counts: Counts) -> Shares:
    """Cut each topic into ranges, static members first, in the order of their names."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    places: dict[str, list[_Place]] = {each: [] for each in members}
    for topic_id in _read_topics(members, counts):
        readers = [each for each in order if topic_id in members[each].topics]
        least, more = divmod(counts[topic_id], len(readers))
        begin = 0
        for position, reader in enumerate(readers):
            end = begin + least + (position < more)
            places[reader] += [(topic_id, index) for index in range(begin, end)]
            begin = end
    return _shares(places)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that clients ask for (`group.remote.assignor`)."""


def _read_topics(members: Members, counts: Counts) -> list[UUID]:
    return sorted(frozenset().union(*(each.topics for each in members.values())) & counts.keys())


def _kept(members: Members, counts: Counts) -> dict[str, list[_Place]]:
    """What each member may keep: of topics that it reads, that exist, and that nobody named before it."""
    taken: set[_Place] = set()
    kept: dict[str, list[_Place]] = {}
    for name, wanted in members.items():
        mine = [
            (topic_id, index)
            for topic_id, indexes in wanted.before.items()
            if topic_id in wanted.topics
            for index in sorted(indexes)
            if index < counts.get(topic_id, 0) and (topic_id, index) not in taken
        ]
        taken.update(mine)
        kept[name] = mine
    return kept


def _free(members: Members, counts: Counts, kept: Iterable[list[_Place]]) -> list[_Place]:
    taken = {place for mine in kept for place in mine}
    every = (
        (topic_id, index) for topic_id in _read_topics(members, counts) for index in range(counts[topic_id])
    )
    return [place for place in every if place not in taken]


def _even_out(places: dict[str, list[_Place]], free: list[_Place]) -> None:
    """All read the same: who has most may have one more than the others, who has too much gives it up."""
    total = len(free) + sum(map(len, places.values()))
    least, more = divmod(total, len(places))
    by_size = sorted(places, key=lambda each: len(places[each]), reverse=True)
    quotas = {name: least + (position < more) for position, name in enumerate(by_size)}
    for name, quota in quotas.items():
        free += places[name][quota:]
        del places[name][quota:]
    for name, quota in quotas.items():
        missing = quota - len(places[name])
        places[name].extend(free[:missing])
        del free[:missing]
    assert not free, "partitions were left over"


def _spread(members: Members, places: dict[str, list[_Place]], free: list[_Place]) -> None:
    """Members read different topics: those that few read are given out first, each to who has least."""
    readers = _readers(members)
    for place in sorted(free, key=lambda each: (len(readers[each[0]]), each)):
        min((places[reader] for reader in readers[place[0]]), key=len).append(place)


def _level(members: Members, places: dict[str, list[_Place]]) -> bool:
    """Move partitions from who has much to who has two less, topic by topic; returns whether any was moved."""
    moved = False
    for topic_id, readers in sorted(_readers(members).items()):
        while True:
            givers = [each for each in readers if any(topic == topic_id for topic, _ in places[each])]
            if not givers:
                break
            giver = max(givers, key=lambda each: len(places[each]))
            taker = min(readers, key=lambda each: len(places[each]))
            if len(places[giver]) - len(places[taker]) < 2:
                break
            place = next(each for each in reversed(places[giver]) if each[0] == topic_id)
            places[giver].remove(place)
            places[taker].append(place)
            moved = True
    return moved


def _readers(members: Members) -> dict[UUID, list[str]]:
    readers: dict[UUID, list[str]] = defaultdict(list)
    for name, wanted in members.items():
        for topic_id in wanted.topics:
            readers[topic_id].append(name)
    return readers


def _shares(places: Mapping[str, Iterable[_Place]]) -> Shares:
    shares: Shares = {}
    for name, mine in places.items():
        topics: dict[UUID, set[int]] = defaultdict(set)
        for topic_id, index in mine:
            topics[topic_id].add(index)
        shares[name] = {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
    return shares
