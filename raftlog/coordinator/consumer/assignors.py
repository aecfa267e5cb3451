"""What each member shall have: the server-side assignors of KIP-848, as functions of values.

Laws: every partition of a topic that somebody reads has exactly one member, which reads that topic. `uniform` balances
(where all read the same topics, nobody has two more than another) and moves no more than that takes; `range` gives each
member the same range of every topic, so that topics of equally many partitions are joined side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heapreplace
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.coordinator.consumer.reconcile import count, union
from raftlog.coordinator.consumer.state import NOTHING, Partitions

MOST_ROUNDS: Final = 100
"""How often the topics are gone through to even out members that read different ones; few are needed."""


MOST_WORK: Final = 1_000_000
"""Members and topics that are looked at in all rounds; two rounds there always are."""

LEAST_DIFFERENCE: Final = 2
"""Partitions that one must have more than another for one to be moved."""


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
_Heap = list[tuple[int, str]]
_number = attrgetter("int")
"""What UUIDs are sorted by: they compare in Python, numbers do not."""


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
    if len(_distinct(members)) == 1:
        _even_out(shares, free)
    else:
        readers = _Readers(members)
        _spread(shares, free, readers)
        _level(shares, readers)
    return shares


def assign_range(members: Members, counts: Counts) -> Shares:
    """Cut each topic into ranges, static members first, in the order of their names."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    shares: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in members}
    all_readers = _Readers(members, order)
    for topic_id in _read_topics(members, counts):
        readers = all_readers.of(topic_id)
        least, more = divmod(counts[topic_id], len(readers))
        begin = 0
        for position, reader in enumerate(readers if least else readers[:more]):
            end = begin + least + (position < more)
            shares[reader][topic_id] = frozenset(range(begin, end))
            begin = end
    return dict(shares)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that clients ask for (`group.remote.assignor`)."""


def _distinct(members: Members) -> list[frozenset[UUID]]:
    """The sets of topics that members read. Most share one value: to compare or hash those anew takes long."""
    shared = {id(each.topics): each.topics for each in members.values()}
    return list(shared.values() if len(shared) == 1 else set(shared.values()))


def _read_topics(members: Members, counts: Counts) -> list[UUID]:
    return sorted(frozenset().union(*_distinct(members)) & counts.keys(), key=_number)


class _Readers:
    """Who reads which topics. Topics of the same readers share one list of them, and so one heap.

    With an `order` of the members, that is the order of each list.
    """

    def __init__(self, members: Members, order: Iterable[str] = ()) -> None:
        numbers = {topics: number for number, topics in enumerate(_distinct(members))}
        by_id = {id(each.topics): numbers[each.topics] for each in members.values()}
        names: list[list[str]] = [[] for _ in numbers]
        for name, wanted in members.items():
            names[by_id[id(wanted.topics)]].append(name)
        kinds: dict[UUID, list[int]] = defaultdict(list)
        for topics, number in numbers.items():
            for topic_id in topics:
                kinds[topic_id].append(number)
        self._kinds = {topic_id: tuple(each) for topic_id, each in kinds.items()}
        self._names = {
            each: [name for number in each for name in names[number]] for each in set(self._kinds.values())
        }
        ranks = {name: rank for rank, name in enumerate(order)}
        for each in self._names.values() if ranks else ():
            each.sort(key=ranks.__getitem__)

    def of(self, topic_id: UUID) -> list[str]:
        """Return who reads a topic."""
        return self._names[self._kinds[topic_id]]

    def count(self, topic_id: UUID) -> int:
        return len(self.of(topic_id))

    @property
    def work(self) -> int:
        """How many names all heaps together hold."""
        return sum(map(len, self._names.values()))

    def heaps(self, sizes: _Sizes) -> Callable[[UUID], _Heap]:
        """Return what gives the heap of a topic's readers, who has least first; made when first asked for."""
        heaps: dict[tuple[int, ...], _Heap] = {}

        def heap_of(topic_id: UUID) -> _Heap:
            kinds = self._kinds[topic_id]
            if kinds not in heaps:
                heaps[kinds] = sorted((sizes[each], each) for each in self._names[kinds])
            return heaps[kinds]

        return heap_of


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


def _spread(shares: Shares, free: list[_Place], readers: _Readers) -> None:
    """Members read different topics: those that few read are given out first, each to who has least."""
    sizes = {name: count(share) for name, share in shares.items()}
    given: dict[str, list[_Place]] = defaultdict(list)
    heap_of = readers.heaps(sizes)
    for topic_id, index in sorted(free, key=lambda each: (readers.count(each[0]), each[0].int, each[1])):
        name = _first(heap_of(topic_id), sizes)
        given[name].append((topic_id, index))
        sizes[name] += 1
    for name, places in given.items():
        shares[name] = union(shares[name], _share(places))


def _first(heap: _Heap, sizes: _Sizes, sign: int = 1) -> str:
    """Return who is first in a heap; entries that are no longer true are put right, as far as they come up."""
    while True:
        size, name = heap[0]
        if size == sign * sizes[name]:
            return name
        heapreplace(heap, (sign * sizes[name], name))


def _level(shares: Shares, readers: _Readers) -> None:
    """Move partitions from who has much to who has two less, topic by topic, until that is nowhere so."""
    sizes = {name: count(share) for name, share in shares.items()}
    has: dict[UUID, dict[str, list[int]]] = defaultdict(dict)
    for name, share in shares.items():
        for topic_id, indexes in share.items():
            has[topic_id][name] = sorted(indexes)
    order = sorted(has, key=_number)
    changed: set[str] = set()
    for _ in range(max(2, min(MOST_ROUNDS, MOST_WORK // (readers.work + len(order) + 1)))):
        heap_of = readers.heaps(
            sizes
        )  # entries of who gave something away are too large: none is after this round
        moved: set[str] = set()
        for topic_id in order:
            moved |= _level_topic(has[topic_id], heap_of(topic_id), sizes)
        if not moved:
            break
        changed |= moved
    rebuilt: dict[str, dict[UUID, frozenset[int]]] = {name: {} for name in changed}
    for topic_id, holders in has.items():
        for name in changed & holders.keys():
            rebuilt[name][topic_id] = frozenset(holders[name])
    shares.update(rebuilt)


def _level_topic(has: dict[str, list[int]], takers: _Heap, sizes: _Sizes) -> set[str]:
    """Even out one topic; returns whose share has changed. `has` never holds an empty list."""
    givers = sorted((-sizes[each], each) for each in has)
    changed: set[str] = set()
    while givers:
        giver, taker = _first(givers, sizes, -1), _first(takers, sizes)
        if sizes[giver] - sizes[taker] < LEAST_DIFFERENCE:
            break
        has.setdefault(taker, []).append(has[giver].pop())
        sizes[giver], sizes[taker] = sizes[giver] - 1, sizes[taker] + 1
        if not has[giver]:
            del has[giver]
            heappop(givers)
        changed |= {giver, taker}
    return changed


def _places(share: Partitions) -> list[_Place]:
    return [(topic_id, index) for topic_id, indexes in share.items() for index in sorted(indexes)]


def _share(places: Iterable[_Place]) -> Partitions:
    topics: dict[UUID, set[int]] = defaultdict(set)
    for topic_id, index in places:
        topics[topic_id].add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
