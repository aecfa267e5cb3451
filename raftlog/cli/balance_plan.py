"""Few moves that balance a cluster: a pure function of where replicas are, how large they are, and the racks.

There are four aims. The replicas of a partition lie in as many racks as they can. No disk is fuller than `FULL_SHARE`.
Brokers hold equally many replicas, within `REPLICA_TOLERANCE`. They are the first replica, which leads, of equally many
partitions. A later aim never undoes an earlier one. The last moves no bytes: it changes the order of replicas.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Final, NamedTuple

REPLICA_TOLERANCE: Final = 0.1
"""How far a broker may be from the mean number of replicas."""

FULL_SHARE: Final = 0.8
"""The share of a broker's disks that may be used."""

PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerRoom:
    """A broker in service. `used_bytes` and `total_bytes` are of its disks; 0 if unknown."""

    broker_id: int
    rack: str | None = None
    used_bytes: int = 0
    total_bytes: int = 0


class Placed(NamedTuple):
    """Where a partition is: its replicas, the first of which leads, and the bytes of one replica."""

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
        table.even_out_replicas()
        table.even_out_leaders()
    return table.steps()


@dataclass
class _Table:
    """The placement as it changes."""

    brokers: Mapping[int, BrokerRoom]
    partitions: Mapping[PartitionKey, Placed]
    now: dict[PartitionKey, tuple[int, ...]] = field(init=False)
    replicas: Counter[int] = field(init=False)
    used_bytes: dict[int, int] = field(init=False)
    held: dict[int, set[PartitionKey]] = field(init=False)

    def __post_init__(self) -> None:
        self.now = {key: placed.replicas for key, placed in self.partitions.items()}
        self.used_bytes = {number: each.used_bytes for number, each in self.brokers.items()}
        self.held = {number: set() for number in self.brokers}
        for key, replicas in self.now.items():
            for number in replicas:
                if number in self.held:
                    self.held[number].add(key)
        self.replicas = Counter({number: len(keys) for number, keys in self.held.items()})

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
        racks = {each.rack for each in self.brokers.values()}
        for key in self._by_size(self.now):
            size_bytes = self.partitions[key].size_bytes
            for _ in range(len(racks) if self._is_complete(key) else 0):
                doubled = Counter(self.brokers[each].rack for each in self._live(key))
                leaving = [each for each in self._live(key) if doubled[self.brokers[each].rack] > 1]
                free = [n for n, each in self.brokers.items() if not doubled[each.rack]]
                free = [each for each in free if self._has_room(each, size_bytes)]
                if not (leaving and free):
                    break
                self._move(key, max(leaving, key=self._load), min(free, key=self._load))

    def make_room(self) -> None:
        """Take the largest partitions off brokers whose disks are too full, for those with most room."""
        for number in sorted(self.brokers):
            for key in reversed(self._by_size(self.held[number])):
                if self._share(number) <= FULL_SHARE:
                    break
                size_bytes = self.partitions[key].size_bytes
                fits = [each for each in self._receivers(key, number) if self._has_room(each, size_bytes)]
                if size_bytes and fits:
                    self._move(key, number, min(fits, key=lambda each: (self._share(each), each)))

    def even_out_replicas(self) -> None:
        """Take the smallest partitions off brokers with too many replicas, and give them to those with too few."""
        mean = sum(self.replicas.values()) / len(self.brokers)
        least = floor(mean * (1 - REPLICA_TOLERANCE) + 1e-9) if mean >= 10 else floor(mean)
        most = ceil(mean * (1 + REPLICA_TOLERANCE) - 1e-9) if mean >= 10 else ceil(mean)
        for number in self._most_loaded():
            for key in self._by_size(self.held[number]):
                if self.replicas[number] <= most:
                    break
                self._give_away(key, number, below=most)
        for number in reversed(self._most_loaded()):
            if self.replicas[number] >= least:
                break
            keys = {key for each in self.brokers for key in self.held[each]} - self.held[number]
            for key in self._by_size(keys):
                if self.replicas[number] >= least:
                    break
                more = max(least, self.replicas[number] + 1)
                donors = [
                    each
                    for each in self._live(key)
                    if self.replicas[each] > more and number in self._receivers(key, each)
                ]
                if donors and self._has_room(number, self.partitions[key].size_bytes):
                    self._move(key, max(donors, key=lambda each: (self.replicas[each], each)), number)

    def even_out_leaders(self) -> None:
        """Make brokers the first replica of equally many partitions, by other orders of the replicas alone."""
        led: dict[int, set[PartitionKey]] = {number: set() for number in self.brokers}
        for key, replicas in self.now.items():
            if replicas[0] in led:
                led[replicas[0]].add(key)
        while (path := self._next_path(led)) is not None:
            for key, leader in path:
                led[self.now[key][0]].remove(key)
                led[leader].add(key)
                rest = [each for each in self.now[key] if each != leader]
                self.now[key] = (leader, *rest)

    # -- inside --------------------------------------------------------------------------

    def _next_path(self, led: Mapping[int, set[PartitionKey]]) -> list[tuple[PartitionKey, int]] | None:
        """Return changes of leaders that make two brokers' numbers more alike; None if there are none."""
        fewest = min(map(len, led.values()))
        for number in sorted(led, key=lambda each: (-len(led[each]), each)):
            if len(led[number]) <= fewest + 1:
                return None
            goals = {each for each in led if len(led[each]) + 1 < len(led[number])}
            path = self._path(led, number, goals)
            if path is not None:
                return path
        return None

    def _path(
        self, led: Mapping[int, set[PartitionKey]], start: int, goals: set[int]
    ) -> list[tuple[PartitionKey, int]] | None:
        """Return changes of leaders that take one from `start` and give one to a goal, over others if need be."""
        came: dict[int, tuple[int, PartitionKey]] = {}
        queue = deque([start])
        while queue:
            number = queue.popleft()
            if number in goals:
                path = []
                while number != start:
                    before, key = came[number]
                    path.append((key, number))
                    number = before
                return path
            found: dict[int, PartitionKey] = {}
            for key in led[number]:
                for other in self._live(key):
                    if other != start and other not in came and (other not in found or key < found[other]):
                        found[other] = key
            for other in sorted(found):
                came[other] = (number, found[other])
                queue.append(other)
        return None

    def _move(self, key: PartitionKey, old: int, new: int) -> None:
        size_bytes = self.partitions[key].size_bytes
        self.now[key] = tuple(new if each == old else each for each in self.now[key])
        self.held[old].remove(key)
        self.held[new].add(key)
        self.replicas.update({old: -1, new: 1})
        self.used_bytes[old] -= size_bytes
        self.used_bytes[new] += size_bytes

    def _give_away(self, key: PartitionKey, number: int, *, below: int) -> None:
        size_bytes = self.partitions[key].size_bytes
        free = [
            each
            for each in self._receivers(key, number)
            if self.replicas[each] < below and self._has_room(each, size_bytes)
        ]
        if free:
            self._move(key, number, min(free, key=self._load))

    def _receivers(self, key: PartitionKey, old: int) -> list[int]:
        """Return the brokers that may take over a replica: none of the replicas, and no rack is lost.

        There are none while a replica is out of service, since the move would not complete.
        """
        if not self._is_complete(key):
            return []
        here = self._live(key)
        racks = Counter(self.brokers[each].rack for each in here)
        before = len(racks)
        racks[self.brokers[old].rack] -= 1
        left = +racks
        return [
            number
            for number, each in self.brokers.items()
            if number not in self.now[key] and len(left) + (each.rack not in left) >= before
        ]

    def _is_complete(self, key: PartitionKey) -> bool:
        return all(each in self.brokers for each in self.now[key])

    def _live(self, key: PartitionKey) -> list[int]:
        return [each for each in self.now[key] if each in self.brokers]

    def _by_size(self, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
        return sorted(keys, key=lambda key: (self.partitions[key].size_bytes, key))

    def _load(self, number: int) -> tuple[int, int]:
        return self.replicas[number], number

    def _most_loaded(self) -> list[int]:
        return sorted(self.brokers, key=self._load, reverse=True)

    def _share(self, number: int) -> float:
        total = self.brokers[number].total_bytes
        return self.used_bytes[number] / total if total else 0.0

    def _has_room(self, number: int, size_bytes: int) -> bool:
        total = self.brokers[number].total_bytes
        return not total or self.used_bytes[number] + size_bytes <= FULL_SHARE * total
