"""Partitions by broker, so that a broker's failure costs only its own partitions.

Kafka's controller calls the nearest thing BrokersToIsrs. It is derived from the image alone and kept beside it, soft
and mutable. It follows the difference of two images, in either direction, since a tail may be lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from typing import Final

from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionState, changed_partitions

COLLISION_CHARS: Final = frozenset("._")


def fold_name(topic: str) -> str:
    """Return the name that a topic has in Kafka's metrics: they turn dots into underscores."""
    return topic.replace(".", "_")


class PartitionIndex:
    """Indexes of the partitions of one image. Call `at` first, which updates it to an image."""

    __slots__ = (
        "_by_folded_name",
        "_decommissioned",
        "_eligible",
        "_image",
        "_in_sync",
        "_out_of_sync",
        "imbalanced",
        "leaving",
        "preferred_leaders",
        "reassigned",
        "replicas",
        "with_eligible",
        "without_leader",
    )

    def __init__(self) -> None:
        self._image = EMPTY_IMAGE
        self._in_sync: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self._out_of_sync: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        """Partitions by each broker that has a replica of them outside their ISR."""
        self._eligible: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self._by_folded_name: defaultdict[str, set[str]] = defaultdict(set)
        """Topics with a dot or an underscore, by the name that Kafka's metrics fold them to."""
        self._decommissioned: Set[int] = frozenset()
        self.leaving: dict[TopicPartition, None] = {}
        """Partitions with a replica on a decommissioned broker, in sync or not, in the order of their turns."""
        self.without_leader: set[TopicPartition] = set()
        """Partitions with no leader, or with a leader for reading only."""
        self.with_eligible: set[TopicPartition] = set()
        """Partitions with eligible leaders, so that the high watermark stands still."""
        self.reassigned: set[TopicPartition] = set()
        self.imbalanced: set[TopicPartition] = set()
        """Partitions that another broker leads than their first replica."""
        self.replicas: Counter[int] = Counter()
        """How many replicas each broker has."""
        self.preferred_leaders: Counter[int] = Counter()
        """How many partitions each broker is the first replica of."""

    def at(self, image: MetadataImage) -> PartitionIndex:
        """Return the index of `image`; O(difference to the last image)."""
        if image is not self._image:
            for name, _, was, state in changed_partitions(self._image, image):
                if was is None or state is None or was.replicas != state.replicas:
                    self._count(was, -1)
                    self._count(state, 1)
                self._sort(name, was, state)
                if name.partition == 0:
                    self._note_topic(name.topic, exists=state is not None)
            self._image = image
            if image.decommissions.keys() != self._decommissioned:
                self._decommissioned = frozenset(image.decommissions)
                self.leaving = dict.fromkeys(sorted(self.held_by_any(self._decommissioned)))
        return self

    def held_by_any(self, broker_ids: Iterable[int]) -> Set[TopicPartition]:
        """Return the partitions that any of these brokers has a replica of."""
        found = set(self.in_sync_on_any(broker_ids))
        for broker_id in broker_ids:
            found |= self._out_of_sync.get(broker_id, frozenset())
        return found

    def postpone(self, name: TopicPartition) -> None:
        """Have all other leaving partitions come before this."""
        del self.leaving[name]
        self.leaving[name] = None

    def _note_topic(self, topic: str, *, exists: bool) -> None:
        if COLLISION_CHARS.isdisjoint(topic):
            return
        alike = self._by_folded_name[fold_name(topic)]
        if exists:
            alike.add(topic)
            return
        alike.discard(topic)
        if not alike:
            del self._by_folded_name[fold_name(topic)]

    def colliding_topic(self, name: str) -> str | None:
        """Return a topic with a name that differs from this only in dots and underscores (Kafka:
        Topic.hasCollision).
        """
        found = self._by_folded_name.get(fold_name(name), set())
        return min((each for each in found if each != name), default=None)

    def _count(self, state: PartitionState | None, sign: int) -> None:
        if state is None:
            return
        self.preferred_leaders[state.replicas[0]] += sign
        for broker_id in state.replicas:
            self.replicas[broker_id] += sign

    def _sort(self, name: TopicPartition, was: PartitionState | None, state: PartitionState | None) -> None:
        if was is not None:
            for broker_id in was.replicas:
                (self._in_sync if broker_id in was.isr else self._out_of_sync)[broker_id].discard(name)
            for broker_id in was.eligible:
                self._eligible[broker_id].discard(name)
            self.with_eligible.discard(name)
            self.without_leader.discard(name)
            self.reassigned.discard(name)
            self.imbalanced.discard(name)
        if state is None or self._decommissioned.isdisjoint(state.replicas):
            self.leaving.pop(name, None)
        elif name not in self.leaving:
            self.leaving[name] = None
        if state is None:
            return
        for broker_id in state.replicas:
            (self._in_sync if broker_id in state.isr else self._out_of_sync)[broker_id].add(name)
        for broker_id in state.eligible:
            self._eligible[broker_id].add(name)
            self.with_eligible.add(name)
        if state.leader == NO_BROKER or state.isr_lost:
            self.without_leader.add(name)
        if state.adding_replicas or state.removing_replicas:
            self.reassigned.add(name)
        if state.leader not in (state.replicas[0], NO_BROKER):
            self.imbalanced.add(name)

    def in_sync_on(self, broker_id: int) -> Set[TopicPartition]:
        """Return the partitions that have a broker in their ISR."""
        return self._in_sync.get(broker_id, frozenset())

    def trusted_on(self, broker_id: int) -> Set[TopicPartition]:
        """Return the partitions that have a broker in their ISR, or as an eligible leader."""
        return self.in_sync_on(broker_id) | self._eligible.get(broker_id, frozenset())

    def in_sync_on_any(self, broker_ids: Iterable[int]) -> Set[TopicPartition]:
        """Return the partitions that have any of these brokers in their ISR."""
        return frozenset().union(*map(self.in_sync_on, broker_ids))

    def in_sync_outside(self, broker_ids: Set[int]) -> Set[TopicPartition]:
        """Return the partitions that have any broker but these in their ISR."""
        return self.in_sync_on_any(self._in_sync.keys() - broker_ids)
