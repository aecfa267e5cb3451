"""The assignor "simple" of share groups: partitions go to several members if there are more members than partitions.

Each partition gets as many members as it needs for every member to have work. Members keep what they have as far as
possible, and their shares differ by at most one partition where all read the same topics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

from raftlog.coordinator.consumer.consumer_membership import NO_PARTITIONS, Partitions

TopicPartitionId = tuple[UUID, int]


class ShareSubscription(NamedTuple):
    """The topics that a member reads, and its present partitions."""

    topic_ids: frozenset[UUID]
    owned: Partitions = NO_PARTITIONS


def assign(members: Mapping[str, ShareSubscription], offered: Partitions) -> dict[str, Partitions]:
    """Return the partitions of each member, among those offered."""
    return _Assignment(members, offered).result()


class _Assignment:
    """The shares of members, which grow and move until they are balanced."""

    def __init__(self, members: Mapping[str, ShareSubscription], offered: Partitions) -> None:
        self._members = members
        self._partitions = [
            (topic_id, each) for topic_id in sorted(offered) for each in sorted(offered[topic_id])
        ]
        self._shares: dict[str, set[TopicPartitionId]] = {member_id: set() for member_id in sorted(members)}
        self._holders: Counter[TopicPartitionId] = Counter()
        readers = Counter(topic_id for each in members.values() for topic_id in each.topic_ids)
        total = max(len(self._partitions), 1)
        self._sharing = {topic_id: -(-count // total) for topic_id, count in readers.items()}
        """How many members each partition of a topic needs."""

    def result(self) -> dict[str, Partitions]:
        self._keep()
        self._fill()
        self._balance()
        self._feed_idle()
        return {member_id: _by_topic(share) for member_id, share in self._shares.items()}

    def _give(self, member_id: str, partition: TopicPartitionId) -> None:
        self._shares[member_id].add(partition)
        self._holders[partition] += 1

    def _keep(self) -> None:
        """Let members keep their partitions, where these do not have members enough already."""
        offered = set(self._partitions)
        for member_id, it in sorted(self._members.items()):
            for topic_id, indexes in it.owned.items():
                for partition in ((topic_id, each) for each in indexes if topic_id in it.topic_ids):
                    if partition in offered and self._holders[partition] < self._sharing[topic_id]:
                        self._give(member_id, partition)

    def _fill(self) -> None:
        """Give each partition the members that it lacks, those with the smallest shares first."""
        loads = [(len(share), member_id) for member_id, share in self._shares.items()]
        heapify(loads)
        for partition in self._partitions:
            passed_over = []
            while self._holders[partition] < self._sharing.get(partition[0], 0) and loads:
                load, member_id = heappop(loads)
                if self._may_have(member_id, partition):
                    self._give(member_id, partition)
                    load += 1
                passed_over.append((load, member_id))
            for each in passed_over:
                heappush(loads, each)

    def _may_have(self, member_id: str, partition: TopicPartitionId) -> bool:
        return partition[0] in self._members[member_id].topic_ids and partition not in self._shares[member_id]

    def _feed_idle(self) -> None:
        """Give a member without a partition the one of its topics with the fewest members."""
        for member_id, share in self._shares.items():
            wanted = (
                [each for each in self._partitions if self._may_have(member_id, each)] if not share else ()
            )
            if wanted:
                self._give(member_id, min(wanted, key=lambda each: self._holders[each]))

    def _balance(self) -> None:
        """Move partitions from the largest shares to smaller, until no move evens them."""
        by_size = sorted(self._shares, key=lambda each: len(self._shares[each]))
        while self._move_one(by_size):
            by_size.sort(key=lambda each: len(self._shares[each]))

    def _move_one(self, by_size: list[str]) -> bool:
        for smaller in by_size:
            for larger in reversed(by_size):
                if len(self._shares[larger]) - len(self._shares[smaller]) < 2:
                    break
                movable = [each for each in self._shares[larger] if self._may_have(smaller, each)]
                if movable:
                    self._move(larger, smaller, movable)
                    return True
        return False

    def _move(self, larger: str, smaller: str, movable: list[TopicPartitionId]) -> None:
        """Move half of the difference at once."""
        count = (len(self._shares[larger]) - len(self._shares[smaller])) // 2
        for partition in sorted(movable)[:count]:
            self._shares[larger].remove(partition)
            self._shares[smaller].add(partition)


def _by_topic(share: Iterable[TopicPartitionId]) -> Partitions:
    found: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic_id, index in share:
        found[topic_id].add(index)
    return {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found)}
