"""The assignor "simple" of share groups: partitions go to several members if there are more members than partitions.

Each partition gets as many members as it needs for every member to have work. Members keep what they have as far as
possible, and their shares differ by at most one partition where all read the same topics. Where they read different
topics, the work on even shares is bounded, since the event loop waits for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.coordinator.consumer.consumer_membership import NO_PARTITIONS, Partitions

TopicPartitionId = tuple[UUID, int]

MOST_PAIRS: Final = 50_000
"""The pairs of members to try for moves that even their shares. Members of the same topics need few."""


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
        self._offered = {topic_id: sorted(offered[topic_id]) for topic_id in sorted(offered)}
        self._shares: dict[str, dict[UUID, set[int]]] = {
            member_id: {each: set() for each in members[member_id].topic_ids if each in offered}
            for member_id in sorted(members)
        }
        """The partitions of each member, by each topic that it reads."""
        self._sizes = dict.fromkeys(self._shares, 0)
        self._holders: Counter[TopicPartitionId] = Counter()
        self._readers: defaultdict[UUID, list[str]] = defaultdict(list)
        for member_id, share in self._shares.items():
            for topic_id in share:
                self._readers[topic_id].append(member_id)
        total = max(sum(map(len, self._offered.values())), 1)
        self._sharing = {topic_id: -(-len(each) // total) for topic_id, each in self._readers.items()}
        """How many members each partition of a topic needs."""

    def result(self) -> dict[str, Partitions]:
        self._keep()
        self._fill()
        self._balance()
        self._feed_idle()
        return {
            member_id: {each: frozenset(share[each]) for each in sorted(share) if share[each]}
            for member_id, share in self._shares.items()
        }

    def _give(self, member_id: str, partition: TopicPartitionId) -> None:
        topic_id, index = partition
        self._shares[member_id][topic_id].add(index)
        self._sizes[member_id] += 1
        self._holders[partition] += 1

    def _keep(self) -> None:
        """Let members keep their partitions, where these do not have members enough already."""
        for member_id, share in self._shares.items():
            for topic_id, indexes in self._members[member_id].owned.items():
                if topic_id in share:
                    for index in indexes.intersection(self._offered[topic_id]):
                        if self._holders[topic_id, index] < self._sharing[topic_id]:
                            self._give(member_id, (topic_id, index))

    def _fill(self) -> None:
        """Give each partition the members that it lacks, those with the smallest shares first."""
        for topic_id, readers in sorted(self._readers.items()):
            loads = [(self._sizes[each], each) for each in readers]
            heapify(loads)
            for index in self._offered[topic_id]:
                passed_over = []
                while self._holders[topic_id, index] < self._sharing[topic_id] and loads:
                    _, member_id = heappop(loads)
                    if index not in self._shares[member_id][topic_id]:
                        self._give(member_id, (topic_id, index))
                    passed_over.append((self._sizes[member_id], member_id))
                for each in passed_over:
                    heappush(loads, each)

    def _feed_idle(self) -> None:
        """Give a member without a partition the one of its topics with the fewest members."""
        for member_id, share in self._shares.items():
            if self._sizes[member_id]:
                continue
            wanted = [(topic_id, each) for topic_id in sorted(share) for each in self._offered[topic_id]]
            if wanted:
                self._give(member_id, min(wanted, key=lambda each: self._holders[each]))

    def _balance(self) -> None:
        """Move partitions from the largest shares to smaller, until no move evens them or it took long enough."""
        left = MOST_PAIRS
        while left > 0:
            tried = self._move_one(sorted(self._sizes, key=lambda each: self._sizes[each]))
            if tried is None:
                return
            left -= tried

    def _move_one(self, by_size: list[str]) -> int | None:
        """Return how many pairs of members were tried until a move was found, None if there is none."""
        tried = 0
        for smaller in by_size:
            for larger in reversed(by_size):
                if self._sizes[larger] - self._sizes[smaller] < 2:
                    break
                tried += 1
                if self._move(larger, smaller):
                    return tried
        return None

    def _move(self, larger: str, smaller: str) -> bool:
        """Move half of the difference at once; return whether any partition moved."""
        gives, takes = self._shares[larger], self._shares[smaller]
        left = before = (self._sizes[larger] - self._sizes[smaller]) // 2
        for topic_id in sorted(gives.keys() & takes.keys()):
            moved = sorted(gives[topic_id] - takes[topic_id])[:left]
            gives[topic_id].difference_update(moved)
            takes[topic_id].update(moved)
            left -= len(moved)
        self._sizes[larger] -= before - left
        self._sizes[smaller] += before - left
        return left < before
