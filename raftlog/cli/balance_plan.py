"""Few moves that balance a cluster: a pure function of where replicas are, how large they are, and the racks.

There are five aims. The replicas of a partition lie in as many racks as they can. No disk is fuller than `FULL_SHARE`.
Brokers hold equally many replicas of each topic, within one, and of all topics, within `REPLICA_TOLERANCE`. They lead
equally many partitions, of each topic and of all (`leader_plan`). A later aim never undoes an earlier one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, floor
from typing import Final, NamedTuple

from raftlog.cli.leader_plan import LeaderTable, PartitionKey

REPLICA_TOLERANCE: Final = 0.1
"""How far a broker may be from the mean number of replicas."""

FULL_SHARE: Final = 0.8
"""The share of a broker's disks that may be used."""


@dataclass(frozen=True, slots=True)
class BrokerRoom:
    """A broker in service. `used_bytes` and `total_bytes` are of its disks; 0 if unknown.

    A `cordoned` broker receives no replicas, and gives none away to balance their numbers.
    """

    broker_id: int
    rack: str | None = None
    used_bytes: int = 0
    total_bytes: int = 0
    cordoned: bool = False


class Placed(NamedTuple):
    """The place of a partition: its replicas, the first of which leads, and the bytes of one replica."""

    replicas: tuple[int, ...]
    size_bytes: int = 0


class Step(NamedTuple):
    """A partition's replicas before and after. `added_bytes`: what the new replicas copy."""

    key: PartitionKey
    before: tuple[int, ...]
    after: tuple[int, ...]
    added_bytes: int


def plan(brokers: Iterable[BrokerRoom], partitions: Mapping[PartitionKey, Placed]) -> list[Step]:
    """Return the moves, the smallest partitions first. Replicas on brokers that are not in service stay."""
    table = _Table({each.broker_id: each for each in brokers}, partitions)
    if table.brokers:
        table.spread_over_racks()
        table.make_room()
        if table.open:
            table.even_out_topics()
            table.even_out_replicas()
        table.even_out_leaders()
    return table.steps()


@dataclass
class _Table:
    """The placement as it changes. `held`: the partitions on each broker, by topic. `open` brokers receive replicas."""

    brokers: Mapping[int, BrokerRoom]
    partitions: Mapping[PartitionKey, Placed]
    now: dict[PartitionKey, tuple[int, ...]] = field(init=False)
    open: list[int] = field(init=False)
    replicas: Counter[int] = field(init=False)
    used_bytes: dict[int, int] = field(init=False)
    held: dict[int, dict[str, set[PartitionKey]]] = field(init=False)

    def __post_init__(self) -> None:
        self.now = {key: placed.replicas for key, placed in self.partitions.items()}
        self.open = sorted(number for number, each in self.brokers.items() if not each.cordoned)
        self.used_bytes = {number: each.used_bytes for number, each in self.brokers.items()}
        self.held = {number: defaultdict(set) for number in self.brokers}
        self.replicas = Counter(dict.fromkeys(self.brokers, 0))
        for key, replicas in self.now.items():
            for number in replicas:
                if number in self.held:
                    self.held[number][key[0]].add(key)
                    self.replicas[number] += 1

    def steps(self) -> list[Step]:
        found = [
            Step(key, placed.replicas, after, placed.size_bytes * len(set(after) - set(placed.replicas)))
            for key, placed in self.partitions.items()
            if (after := self.now[key]) != placed.replicas
        ]
        return sorted(found, key=lambda step: (step.added_bytes, step.key))

    # -- the aims, in their order --------------------------------------------------------

    def spread_over_racks(self) -> None:
        """Move one of two replicas of a rack to a rack without a replica, the largest partitions last."""
        racks = {self.brokers[each].rack for each in self.open}
        for key in self._by_size(self.now) if len(racks) > 1 else ():
            for _ in range(len(racks) if self._is_complete(key) else 0):
                doubled = Counter(self.brokers[each].rack for each in self._live(key))
                leaving = [each for each in self._live(key) if doubled[self.brokers[each].rack] > 1]
                free = [each for each in self.open if not doubled[self.brokers[each].rack]] if leaving else []
                free = [each for each in free if self._has_room(each, self.partitions[key].size_bytes)]
                if not free:
                    break
                self._move(key, max(leaving, key=self._load), min(free, key=self._load))

    def make_room(self) -> None:
        """Take the largest partitions off brokers whose disks are too full, for those with most room."""
        for number in sorted(self.brokers):
            for key in (
                reversed(self._by_size(self._held_by(number))) if self._share(number) > FULL_SHARE else ()
            ):
                if self._share(number) <= FULL_SHARE:
                    break
                fits = [each for each in self.open if self._may_give(key, number, each)]
                if self.partitions[key].size_bytes and fits:
                    self._move(key, number, min(fits, key=lambda each: (self._share(each), each)))

    def even_out_topics(self) -> None:
        """Move replicas of a topic from brokers that hold more of them than others, the smallest partitions first."""
        for topic in sorted({topic for topic, _ in self.now}):
            keys = {number: iter(self._by_size(self.held[number][topic])) for number in self.open}
            while (number := self._holds_most(topic, keys)) is not None:
                if not any(self._give_away(key, number, by=2) for key in keys[number]):
                    del keys[number]

    def even_out_replicas(self) -> None:
        """Take the smallest partitions off brokers with too many replicas, and give them to those with too few."""
        mean = sum(self.replicas[each] for each in self.open) / len(self.open)
        least = floor(mean * (1 - REPLICA_TOLERANCE) + 1e-9) if mean >= 10 else floor(mean)
        most = ceil(mean * (1 + REPLICA_TOLERANCE) - 1e-9) if mean >= 10 else ceil(mean)
        for number in sorted(self.open, key=self._load, reverse=True):
            for key in self._by_size(self._held_by(number)) if self.replicas[number] > most else ():
                if self.replicas[number] <= most:
                    break
                self._give_away(key, number, by=1, below=most)
        for number in sorted(self.open, key=self._load):
            if self.replicas[number] < least:
                self._fill(number, least)

    def _fill(self, number: int, least: int) -> None:
        """Give a broker the smallest partitions of those that hold more, until it has as many replicas as it shall."""
        for key in self._by_size({key for each in self.open for key in self._held_by(each)}):
            if self.replicas[number] >= least:
                return
            more = max(least, self.replicas[number] + 1)
            donors = [
                each
                for each in self._live(key)
                if self.replicas[each] > more
                and self._of_topic(key, number) < self._of_topic(key, each)
                and self._may_give(key, each, number)
            ]
            if donors:
                self._move(key, max(donors, key=self._load), number)

    def even_out_leaders(self) -> None:
        """Make brokers the first replica of equally many partitions, by other orders of the replicas alone."""
        live: dict[str, dict[PartitionKey, list[int]]] = {}
        for key, replicas in self.now.items():
            if replicas[0] in self.brokers:
                live.setdefault(key[0], {})[key] = self._live(key)
        table = LeaderTable(self.brokers, live)
        table.even_out()
        for key, leader in table.leaders.items():
            replicas = self.now[key]
            if leader != replicas[0]:
                self.now[key] = (leader, *(each for each in replicas if each != leader))

    # -- inside --------------------------------------------------------------------------

    def _move(self, key: PartitionKey, old: int, new: int) -> None:
        size_bytes = self.partitions[key].size_bytes
        self.now[key] = tuple(new if each == old else each for each in self.now[key])
        self.held[old][key[0]].remove(key)
        self.held[new][key[0]].add(key)
        self.replicas.update({old: -1, new: 1})
        self.used_bytes[old] -= size_bytes
        self.used_bytes[new] += size_bytes

    def _holds_most(self, topic: str, among: Iterable[int]) -> int | None:
        """Return which of these brokers has most replicas of a topic, if any broker has two less."""
        counts = {each: len(self.held[each][topic]) for each in self.open}
        least = min(counts.values()) + 2
        more = [each for each in among if counts[each] >= least]
        return max(more, key=lambda each: (counts[each], self._load(each)), default=None)

    def _give_away(self, key: PartitionKey, number: int, *, by: int, below: int | None = None) -> bool:
        """Move a replica to a broker with fewer of its topic, `by` at least, and fewer than `below` of all."""
        most = self._of_topic(key, number) - by
        free = [
            each
            for each in self.open
            if (below is None or self.replicas[each] < below)
            and self._of_topic(key, each) <= most
            and self._may_give(key, number, each)
        ]
        if not free:
            return False
        self._move(key, number, min(free, key=lambda each: (self._of_topic(key, each), self._load(each))))
        return True

    def _may_give(self, key: PartitionKey, old: int, new: int) -> bool:
        """Return whether a broker may take over a replica: it has none and has room, and no rack is lost.

        It may not while a replica is out of service, since the move would not complete.
        """
        if new in self.now[key] or not self._is_complete(key):
            return False
        left = {self.brokers[each].rack for each in self.now[key] if each != old}
        is_spread = self.brokers[new].rack not in left or self.brokers[old].rack in left
        return is_spread and self._has_room(new, self.partitions[key].size_bytes)

    def _of_topic(self, key: PartitionKey, number: int) -> int:
        return len(self.held[number][key[0]])

    def _held_by(self, number: int) -> Iterator[PartitionKey]:
        return chain.from_iterable(self.held[number].values())

    def _is_complete(self, key: PartitionKey) -> bool:
        return all(each in self.brokers for each in self.now[key])

    def _live(self, key: PartitionKey) -> list[int]:
        return [each for each in self.now[key] if each in self.brokers]

    def _by_size(self, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
        return sorted(keys, key=lambda key: (self.partitions[key].size_bytes, key))

    def _load(self, number: int) -> tuple[int, int]:
        return self.replicas[number], number

    def _share(self, number: int) -> float:
        total = self.brokers[number].total_bytes
        return self.used_bytes[number] / total if total else 0.0

    def _has_room(self, number: int, size_bytes: int) -> bool:
        total = self.brokers[number].total_bytes
        return not total or self.used_bytes[number] + size_bytes <= FULL_SHARE * total
