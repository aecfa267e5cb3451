"""The server-side assignors of KIP-848, as functions of values: the target partitions of each member.

Laws: every partition of a subscribed topic has exactly one member, a subscriber. `uniform` balances (with equal
subscriptions, members differ by one partition at most) and moves no more than that takes. Among balanced shares it
prefers partitions with a replica in the member's rack, which no assignor of Kafka's does. `range` gives each member the
same range of every topic, so that topics of equally many partitions are joined side by side.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from heapq import heappop, heapreplace
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.coordinator.consumer.consumer_membership import NO_PARTITIONS, Partitions
from raftlog.coordinator.consumer.reconcile import count, union

MAX_ROUNDS: Final = 100
"""Rounds over the topics to balance members with different subscriptions; few are needed."""

MAX_TOPIC_VISITS: Final = 100_000
"""Topics that are visited in all rounds; there are always two rounds."""

MAX_EXCHANGES: Final = 20_000
"""Pairs of partitions that are tried for an exchange between members in different racks, a few µs each."""

MIN_IMBALANCE: Final = 2
"""A partition moves only if a member has this many more than another."""


class MemberSubscription(NamedTuple):
    """An assignor's view of a member: the names of its topics, its present target, its static id, its rack."""

    topics: frozenset[str]
    before: Partitions = NO_PARTITIONS
    instance_id: str | None = None
    rack: str | None = None


class TopicMetadata(NamedTuple):
    """An assignor's view of a topic: its id, its number of partitions, and the racks with replicas of each.

    `racks` is empty if no member is to prefer any of them.
    """

    topic_id: UUID
    partitions: int
    racks: tuple[frozenset[str], ...] = ()


Members = Mapping[str, MemberSubscription]
TopicsByName = Mapping[str, TopicMetadata]
"""Keyed by name: hashes of names are cached, hashes of ids are computed in Python each time."""

GroupAssignment = dict[str, Partitions]
Assignor = Callable[[Members, TopicsByName], GroupAssignment]

_IdAndIndex = tuple[UUID, int]
_Heap = list[tuple[int, int]]
_Held = tuple[str, _IdAndIndex]
"""A member, and a partition that it has."""


class _Topic:
    """A topic during the assignment: which of its partitions have a member already."""

    __slots__ = ("count", "name", "readers", "taken", "topic_id")

    def __init__(self, name: str, offered: TopicMetadata, readers: int) -> None:
        self.name = name
        self.readers = readers
        """The bits of its readers."""
        self.topic_id, self.count, _ = offered
        self.taken: set[int] = set()

    def free(self) -> list[_IdAndIndex]:
        return [(self.topic_id, index) for index in range(self.count) if index not in self.taken]


def assign_uniform(members: Members, topics: TopicsByName) -> GroupAssignment:
    """Balance the partitions; members keep their present targets as far as that allows."""
    readers = _Readers(members, topics.keys(), sorted(members))
    read = _read_topics(topics, readers)
    shares = _kept(members, {each.topic_id: each for each in read})
    if readers.are_alike:
        _even_out(shares, [tp for each in read for tp in each.free()])
        _bring_near(shares, members, topics)
    else:
        sizes = _Sizes([count(shares[each]) for each in readers.order])
        _spread(shares, read, readers, sizes)
        _level(shares, read, readers, sizes)
    return shares


def assign_range(members: Members, topics: TopicsByName) -> GroupAssignment:
    """Cut each topic into ranges, static members first, in the order of their names."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    shares: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in members}
    all_readers = _Readers(members, topics.keys(), order)
    for topic in _read_topics(topics, all_readers):
        readers = all_readers.names(topic.readers)
        least, more = divmod(topic.count, len(readers))
        begin = 0
        for position, reader in enumerate(readers if least else readers[:more]):
            end = begin + least + (position < more)
            shares[reader][topic.topic_id] = frozenset(range(begin, end))
            begin = end
    return dict(shares)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""Keyed by the name that clients ask for (`group.remote.assignor`)."""


class _Readers:
    """The readers of each topic: a number with a bit for every member, the first of `order` the lowest.

    The work in Python for a member is proportional to the topics that it reads, or does not read, whichever are fewer.
    """

    def __init__(self, members: Members, topics: Set[str], order: Sequence[str]) -> None:
        self.order = order
        kinds: dict[frozenset[str], int] = defaultdict(int)
        for rank, name in enumerate(order):
            kinds[members[name].topics] |= 1 << rank
        self.are_alike = len(kinds) == 1
        """Whether all members read the same."""
        all_topics = frozenset(topics)
        self._usual = 0
        """The readers of most topics."""
        self._unusual = dict.fromkeys(topics, 0)
        """For each topic, the readers that differ from the usual."""
        for subscription, bits in kinds.items():
            exceptions = all_topics - subscription
            if 2 * len(exceptions) < len(all_topics):
                self._usual |= bits
            else:
                exceptions = all_topics & subscription
            for name in exceptions:
                self._unusual[name] |= bits
        self._names: dict[int, list[str]] = {}

    def of(self, topic: str) -> int:
        """Return the bits of a topic's readers."""
        return self._usual ^ self._unusual[topic]

    def names(self, bits: int) -> list[str]:
        """Return the names of some bits, in order."""
        if bits not in self._names:
            self._names[bits] = [name for rank, name in enumerate(self.order) if bits >> rank & 1]
        return self._names[bits]


def _read_topics(topics: TopicsByName, readers: _Readers) -> list[_Topic]:
    """Return the topics with readers, by name."""
    return [_Topic(name, topics[name], bits) for name in sorted(topics) if (bits := readers.of(name))]


class _Sizes:
    """The number of partitions of each member, by its rank; and the bits of the members of each size."""

    def __init__(self, sizes: list[int]) -> None:
        self.of = sizes
        self._who: dict[int, int] = defaultdict(int)
        for rank, size in enumerate(sizes):
            self._who[size] |= 1 << rank
        self._order = sorted(self._who)
        """The present sizes: few, since their sum is the number of partitions."""
        self.least = self._order[0]

    @property
    def difference(self) -> int:
        return self._order[-1] - self._order[0]

    def first(self, readers: int) -> int:
        """Return the rank of the reader with the fewest partitions."""
        found = next(some for size in self._order if (some := readers & self._who[size]))
        return (found & -found).bit_length() - 1

    def change(self, rank: int, by: int) -> None:
        """Add `by` partitions to a member."""
        before = self.of[rank]
        self.of[rank] = after = before + by
        self._who[before] ^= 1 << rank
        if not self._who[before]:
            del self._who[before]
            self._order.remove(before)
        if after not in self._who:
            insort(self._order, after)
        self._who[after] |= 1 << rank
        self.least = self._order[0]


def _kept(members: Members, topics: Mapping[UUID, _Topic]) -> GroupAssignment:
    """Return the partitions that each member may keep: of existing topics that it reads, and of no earlier member.

    Most members keep all, and the same object: there may be a thousand members.
    """
    kept: GroupAssignment = {}
    for name, wanted in members.items():
        changed: dict[UUID, frozenset[int]] | None = None
        for topic_id, indexes in wanted.before.items():
            topic = topics.get(topic_id)
            if topic is not None and topic.name not in wanted.topics:
                topic = None
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


def _even_out(shares: GroupAssignment, free: list[_IdAndIndex]) -> None:
    """Balance members with equal subscriptions: the largest may have one partition more than the others, and give up
    the rest.
    """
    sizes = {name: count(share) for name, share in shares.items()}
    least, more = divmod(len(free) + sum(sizes.values()), len(shares))
    by_size = sorted(sizes, key=lambda each: sizes[each], reverse=True)
    quotas = {name: least + (position < more) for position, name in enumerate(by_size)}
    for name, quota in quotas.items():
        if sizes[name] > quota:
            topic_partitions = _topic_partitions(shares[name])
            shares[name] = _share(topic_partitions[:quota])
            free += topic_partitions[quota:]
    for name, quota in quotas.items():
        missing = quota - sizes[name]
        if missing > 0:
            shares[name] = union(shares[name], _share(free[:missing]))
            del free[:missing]
    assert not free, "partitions were left over"


def _bring_near(shares: GroupAssignment, members: Members, topics: TopicsByName) -> None:
    """Exchange partitions between members so that more have a replica in their member's rack; sizes stay as they are.

    Only where that differs: if all partitions have replicas in the same racks, no exchange helps.
    """
    racks_of = {each.topic_id: each.racks for each in topics.values() if each.racks}
    if len({racks for each in racks_of.values() for racks in each}) > 1:
        _Neighbours(shares, members, racks_of).exchange()


class _Neighbours:
    """The partitions of all members, by the rack of the member and the racks of the partition's replicas."""

    def __init__(
        self, shares: GroupAssignment, members: Members, racks_of: Mapping[UUID, tuple[frozenset[str], ...]]
    ) -> None:
        self._shares = shares
        self._rack_of = {name: member.rack for name, member in members.items()}
        self._held: dict[str | None, dict[frozenset[str], list[_Held]]] = {
            rack: {} for rack in self._rack_of.values()
        }
        self._begun_at: dict[_IdAndIndex, str] = {}
        self._now_at: dict[_IdAndIndex, str] = {}
        """The members that have the exchanged partitions: at first, and now."""
        self._left = MAX_EXCHANGES
        for name in sorted(shares):
            for topic_id, indexes in shares[name].items():
                for index in sorted(indexes) if topic_id in racks_of else ():
                    self._hold(name, (topic_id, index), racks_of[topic_id][index])
        self._sizes = {name: count(share) for name, share in shares.items()}
        self._least = min(self._sizes.values())
        self._small: dict[str | None, list[str]] = {rack: [] for rack in self._held}
        """The members that have one partition less than others, by rack."""
        for name in sorted(name for name, size in self._sizes.items() if size == self._least):
            self._small[self._rack_of[name]].append(name)

    def _hold(self, name: str, tp: _IdAndIndex, racks: frozenset[str]) -> None:
        self._held[self._rack_of[name]].setdefault(racks, []).append((name, tp))

    def exchange(self) -> None:
        """Exchange as long as one of two partitions comes near and the other is no farther than before."""
        moved = True
        while moved and self._left > 0:
            moved = False
            for rack, racks in self._far():
                moved |= self._bring(rack, racks)
        lost: dict[str, set[_IdAndIndex]] = defaultdict(set)
        got: dict[str, set[_IdAndIndex]] = defaultdict(set)
        for tp, name in self._now_at.items():
            before = self._begun_at[tp]
            if before != name:
                lost[before].add(tp)
                got[name].add(tp)
        for name in lost.keys() | got.keys():
            kept = set(_topic_partitions(self._shares[name])) - lost[name]
            self._shares[name] = _share(kept | got[name])

    def _far(self) -> list[tuple[str | None, frozenset[str]]]:
        """Return the racks of members, and of the replicas of partitions that these members have from other racks."""
        self._left -= sum(map(len, self._held.values()))
        return [
            (rack, racks)
            for rack, held in self._held.items()
            for racks, partitions in held.items()
            if rack not in racks and partitions
        ]

    def _bring(self, rack: str | None, racks: frozenset[str]) -> bool:
        """Bring such partitions to members near their replicas. Return whether any was moved."""
        moved = False
        for near in sorted(racks & self._held.keys()):
            moved |= self._give(rack, racks, near)
            for others in list(self._held[near]):
                if not self._held[rack][racks] or self._left <= 0:
                    return moved
                self._left -= 1
                if near not in others or rack in others:
                    moved |= self._swap(rack, racks, near, others)
        return moved

    def _give(self, rack: str | None, racks: frozenset[str], near: str) -> bool:
        """Move partitions of the largest members to members in the rack `near` that have a partition less."""
        mine, small = self._held[rack][racks], self._small[near]
        if not small:
            return False
        self._left -= len(mine)
        staying: list[_Held] = []
        for name, tp in mine:
            if not small or self._sizes[name] == self._least:
                staying.append((name, tp))
                continue
            taker = small.pop()
            self._small[rack].append(name)
            self._sizes[name] -= 1
            self._sizes[taker] += 1
            self._move(name, taker, tp, racks)
        self._held[rack][racks] = staying
        return len(staying) < len(mine)

    def _swap(self, rack: str | None, racks: frozenset[str], near: str, others: frozenset[str]) -> bool:
        mine, theirs = self._held[rack][racks], self._held[near][others]
        moved = False
        while mine and theirs and self._left > 0:
            self._left -= 1
            (name, tp), (other_name, other_tp) = mine.pop(), theirs.pop()
            self._move(name, other_name, tp, racks)
            self._move(other_name, name, other_tp, others)
            moved = True
        return moved

    def _move(self, name: str, taker: str, tp: _IdAndIndex, racks: frozenset[str]) -> None:
        self._begun_at.setdefault(tp, name)
        self._now_at[tp] = taker
        self._hold(taker, tp, racks)


def _spread(shares: GroupAssignment, topics: list[_Topic], readers: _Readers, sizes: _Sizes) -> None:
    """Assign to members with different subscriptions: topics with few readers first, each partition to the smallest
    reader.
    """
    given: dict[int, list[_IdAndIndex]] = defaultdict(list)
    for topic in sorted(topics, key=lambda each: each.readers.bit_count()):
        for tp in topic.free():
            rank = sizes.first(topic.readers)
            given[rank].append(tp)
            sizes.change(rank, 1)
    for rank, topic_partitions in given.items():
        name = readers.order[rank]
        shares[name] = union(shares[name], _share(topic_partitions))


def _first(heap: _Heap, sizes: _Sizes) -> int:
    """Return the member with the most partitions in a heap; stale entries are corrected as they come up."""
    while True:
        size, rank = heap[0]
        if size == -sizes.of[rank]:
            return rank
        heapreplace(heap, (-sizes.of[rank], rank))


def _level(shares: GroupAssignment, topics: list[_Topic], readers: _Readers, sizes: _Sizes) -> None:
    """Move partitions from members to others with two fewer, topic by topic, until there are none."""
    if sizes.difference < MIN_IMBALANCE:
        return
    has: dict[UUID, dict[int, list[int]]] = {each.topic_id: {} for each in topics}
    for rank, name in enumerate(readers.order):
        for topic_id, indexes in shares[name].items():
            has[topic_id][rank] = sorted(indexes)
    size_of = sizes.of.__getitem__
    changed: set[int] = set()
    for _ in range(max(2, min(MAX_ROUNDS, MAX_TOPIC_VISITS // (len(topics) + 1)))):
        moved: set[int] = set()
        for topic, holders in zip(topics, has.values(), strict=True):
            if max(map(size_of, holders)) - sizes.least >= MIN_IMBALANCE:
                moved |= _level_topic(holders, topic.readers, sizes)
        changed |= moved
        if not moved or sizes.difference < MIN_IMBALANCE:
            break
    rebuilt: dict[int, dict[UUID, frozenset[int]]] = {rank: {} for rank in changed}
    for topic_id, holders in has.items():
        for rank in changed & holders.keys():
            rebuilt[rank][topic_id] = frozenset(holders[rank])
    shares.update({readers.order[rank]: share for rank, share in rebuilt.items()})


def _level_topic(has: dict[int, list[int]], readers: int, sizes: _Sizes) -> set[int]:
    """Balance one topic; return the members with changed shares. `has` never holds an empty list."""
    givers = sorted((-sizes.of[each], each) for each in has)
    changed: set[int] = set()
    while givers:
        giver, taker = _first(givers, sizes), sizes.first(readers)
        if sizes.of[giver] - sizes.of[taker] < MIN_IMBALANCE:
            break
        has.setdefault(taker, []).append(has[giver].pop())
        sizes.change(giver, -1)
        sizes.change(taker, 1)
        if not has[giver]:
            del has[giver]
            heappop(givers)
        changed |= {giver, taker}
    return changed


def _topic_partitions(share: Partitions) -> list[_IdAndIndex]:
    return [(topic_id, index) for topic_id, indexes in share.items() for index in sorted(indexes)]


def _share(topic_partitions: Iterable[_IdAndIndex]) -> Partitions:
    topics: dict[UUID, set[int]] = defaultdict(set)
    for topic_id, index in topic_partitions:
        topics[topic_id].add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
