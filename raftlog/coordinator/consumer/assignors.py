"""What each member shall have: the server-side assignors of KIP-848, as functions of values.

Laws: every partition of a topic that somebody reads has exactly one member, which reads that topic. `uniform` balances
(where all read the same topics, nobody has two more than another) and moves no more than that takes; `range` gives each
member the same range of every topic, so that topics of equally many partitions are joined side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.coordinator.consumer.reconcile import count, union
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
_Sizes = dict[str, int]


class _Topic:
    """A topic while it is given out: which of its partitions have a member already."""

    __slots__ = ("count", "taken", "topic_id")

    def __init__(self, topic_id: UUID, count: int) -> None:
        self.topic_id = topic_id
        self.count = count
        self.taken: set[int] = set()

    def free(self) -> list[_Place]:
        return [(self.topic_id, index) for index in range(self.count) if index not in self.taken]


def assign_uniform(members: Members, counts: Counts) -> Shares:
    """Balance the partitions; what a member was to have stays with it as far as that allows."""
    topics = {each: _Topic(each, counts[each]) for each in _read_topics(members, counts)}
    shares = _kept(members, topics)
    free = [place for each in topics.values() for place in each.free()]
    if len({each.topics for each in members.values()}) == 1:
        _even_out(shares, free)
    else:
        _spread(members, shares, free)
        for _ in range(MOST_ROUNDS):
            if not _level(members, shares):
                break
    return shares


def assign_range(members: Members, counts: Counts) -> Shares:
    """Cut each topic into ranges, static members first, in the order of their names."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    shares: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in members}
    for topic_id in _read_topics(members, counts):
        readers = [each for each in order if topic_id in members[each].topics]
        least, more = divmod(counts[topic_id], len(readers))
        begin = 0
        for position, reader in enumerate(readers):
            end = begin + least + (position < more)
            if end > begin:
                shares[reader][topic_id] = frozenset(range(begin, end))
            begin = end
    return dict(shares)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that clients ask for (`group.remote.assignor`)."""


def _read_topics(members: Members, counts: Counts) -> list[UUID]:
    return sorted(frozenset().union(*(each.topics for each in members.values())) & counts.keys())


def _kept(members: Members, topics: Mapping[UUID, _Topic]) -> Shares:
    """What each member may keep: of topics that it reads, that exist, and that nobody named before it.

    Most may keep all, and that very value: there may be a thousand of them.
    """
    kept: Shares = {}
    for name, wanted in members.items():
        changed: dict[UUID, frozenset[int]] | None = None
        for topic_id, indexes in wanted.before.items():
            topic = topics.get(topic_id) if topic_id in wanted.topics else None
            valid = _valid(topic, indexes)
            if topic is not None:
                topic.taken |= valid
            if valid is not indexes:
                changed = dict(wanted.before) if changed is None else changed
                changed[topic_id] = valid
        kept[name] = wanted.before if changed is None else {each: its for each, its in changed.items() if its}
    return kept


def _valid(topic: _Topic | None, indexes: frozenset[int]) -> frozenset[int]:
    if topic is None:
        return frozenset()
    if indexes and max(indexes) < topic.count and not indexes & topic.taken:
        return indexes
    return frozenset(each for each in indexes - topic.taken if each < topic.count)


def _even_out(shares: Shares, free: list[_Place]) -> None:
    """All read the same: who has most may have one more than the others, who has too much gives it up."""
    sizes = {name: count(share) for name, share in shares.items()}
    least, more = divmod(len(free) + sum(sizes.values()), len(shares))
    by_size = sorted(sizes, key=lambda each: sizes[each], reverse=True)
    quotas = {name: least + (position < more) for position, name in enumerate(by_size)}
    for name, quota in quotas.items():
        if sizes[name] > quota:
            places = _places(shares[name])
            shares[name] = _share(places[:quota])
            free += places[quota:]
    for name, quota in quotas.items():
        missing = quota - sizes[name]
        if missing > 0:
            shares[name] = union(shares[name], _share(free[:missing]))
            del free[:missing]
    assert not free, "partitions were left over"


def _spread(members: Members, shares: Shares, free: list[_Place]) -> None:
    """Members read different topics: those that few read are given out first, each to who has least."""
    readers = _readers(members)
    sizes = {name: count(share) for name, share in shares.items()}
    given: dict[str, list[_Place]] = defaultdict(list)
    heaps: dict[UUID, list[tuple[int, str]]] = {}
    for topic_id, index in sorted(free, key=lambda each: (len(readers[each[0]]), each)):
        if topic_id not in heaps:
            heaps[topic_id] = sorted((sizes[each], each) for each in readers[topic_id])
        _, name = _newest(heaps[topic_id], sizes)
        given[name].append((topic_id, index))
        sizes[name] += 1
        heappush(heaps[topic_id], (sizes[name], name))
    for name, places in given.items():
        shares[name] = union(shares[name], _share(places))


def _newest(heap: list[tuple[int, str]], sizes: _Sizes, sign: int = 1) -> tuple[int, str]:
    """Take the first entry off a heap that still is true; those that are not are put right."""
    while True:
        size, name = heappop(heap)
        if size == sign * sizes[name]:
            return size, name
        heappush(heap, (sign * sizes[name], name))


def _level(members: Members, shares: Shares) -> bool:
    """Move partitions from who has much to who has two less, topic by topic; returns whether any was moved."""
    sizes = {name: count(share) for name, share in shares.items()}
    moved = False
    for topic_id, readers in sorted(_readers(members).items()):
        has = {each: sorted(shares[each][topic_id]) for each in readers if topic_id in shares[each]}
        givers = sorted((-sizes[each], each) for each in has)
        takers = sorted((sizes[each], each) for each in readers)
        changed: set[str] = set()
        while givers:
            giver, taker = _newest(givers, sizes, -1)[1], _newest(takers, sizes)[1]
            if sizes[giver] - sizes[taker] < 2:
                break
            has.setdefault(taker, []).append(has[giver].pop())
            sizes[giver], sizes[taker] = sizes[giver] - 1, sizes[taker] + 1
            if has[giver]:
                heappush(givers, (-sizes[giver], giver))
            heappush(takers, (sizes[taker], taker))
            changed |= {giver, taker}
        for name in changed:
            rest = {each: its for each, its in shares[name].items() if each != topic_id}
            shares[name] = {**rest, topic_id: frozenset(has[name])} if has[name] else rest
        moved = moved or bool(changed)
    return moved


def _readers(members: Members) -> dict[UUID, list[str]]:
    readers: dict[UUID, list[str]] = defaultdict(list)
    for name, wanted in members.items():
        for topic_id in wanted.topics:
            readers[topic_id].append(name)
    return readers


def _places(share: Partitions) -> list[_Place]:
    return [(topic_id, index) for topic_id, indexes in share.items() for index in sorted(indexes)]


def _share(places: Iterable[_Place]) -> Partitions:
    topics: dict[UUID, set[int]] = defaultdict(set)
    for topic_id, index in places:
        topics[topic_id].add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
