"""The cluster's partitions and brokers, counted from one metadata image, for health and metrics.

Thousands of partitions are visited in slices; the image is immutable, so the counts are consistent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from raftlog.base.config import NodeConfig, topic_config
from raftlog.base.types import INTERNAL_TOPICS, NO_BROKER, TopicPartition
from raftlog.metadata.image import MetadataImage, PartitionState, is_deprived
from raftlog.metadata.partition_health import PartitionHealth, partition_health

SLICE: Final = 1_000
"""Partitions in one slice: well below a millisecond."""
KEY: Final = "min.insync.replicas"
MOST_NAMED: Final = 20
"""Partitions that are named of each kind; all are counted."""


class Kind:
    """Partitions in one condition: all counted, also by topic, the first few named."""

    __slots__ = ("by_topic", "count", "named")

    def __init__(self) -> None:
        self.count = 0
        self.by_topic: Counter[str] = Counter()
        self.named: list[TopicPartition] = []

    def add(self, topic: str, partition: int) -> None:
        """Count a partition."""
        self.count += 1
        self.by_topic[topic] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(TopicPartition(topic, partition))


class Survey:
    """The state of a cluster. A partition is of several kinds at once where that is so."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.topics = len(image.topics)
        internal = [image.topics[each] for each in INTERNAL_TOPICS if each in image.topics]
        self.internal_topics = len(internal)
        self.internal_partitions = sum(len(each.partitions) for each in internal)
        self.partitions = 0
        self.leaderless = Kind()
        self.isr_lost = Kind()
        """Only an unclean election can give them a leader that takes records."""
        self.under_replicated = Kind()
        self.under_min_isr = Kind()
        self.at_min_isr = Kind()
        self.not_preferred = Kind()
        self.preferred: Counter[int] = Counter()
        """By broker, the partitions of which it is the preferred leader."""
        self.not_led: Counter[int] = Counter()
        """By broker, how many of these it does not lead, but could."""
        self.reassigning = Kind()
        self.fenced = [each for each, state in sorted(image.brokers.items()) if state.fenced]
        self.active = [each for each, state in sorted(image.brokers.items()) if not state.fenced]
        self._may_lead = {
            each
            for each in self.active
            if not (image.brokers[each].draining or image.brokers[each].in_controlled_shutdown)
            and each not in image.decommissions
        }

    def deprived(self, percentage: int) -> dict[int, int]:
        """Return the brokers that lead too few of their partitions, with the number that they could lead at once."""
        return {
            each: count
            for each, count in sorted(self.not_led.items())
            if is_deprived(count, self.preferred[each], percentage)
        }

    def add(self, topic: str, partition: int, state: PartitionState, health: PartitionHealth) -> None:
        """Look at one partition."""
        self.partitions += 1
        preferred = state.replicas[0]
        self.preferred[preferred] += 1
        if state.leader == NO_BROKER:
            self.leaderless.add(topic, partition)
        elif state.leader != preferred:
            self.not_preferred.add(topic, partition)
            self.not_led[preferred] += preferred in self._may_lead and preferred in state.isr
        if state.isr_lost:
            self.isr_lost.add(topic, partition)
        if health.under_replicated:
            self.under_replicated.add(topic, partition)
        if health.under_min_isr:
            self.under_min_isr.add(topic, partition)
        if health.at_min_isr:
            self.at_min_isr.add(topic, partition)
        if state.is_reassigned:
            self.reassigning.add(topic, partition)


class PartitionHealths:
    """The health of the partitions of one image.

    The value of min.insync.replicas depends on the topic, or else on the leader: brokers may have a dynamic config of
    their own. Few do either, so the usual value is computed once.
    """

    def __init__(self, config: NodeConfig, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._usual: dict[int, int] = {}

    def of(self, topic: str, state: PartitionState) -> PartitionHealth:
        """Return the health of a partition of a topic."""
        return partition_health(state, self.min_insync_of(topic, state))

    def min_insync_of(self, topic: str, state: PartitionState) -> int:
        """Return min.insync.replicas in force for a partition of a topic."""
        overrides = self._image.config("topic", topic)
        if KEY in overrides:
            return self._min_insync(state.leader, overrides)
        usual = self._usual.get(state.leader)
        if usual is None:
            usual = self._usual[state.leader] = self._min_insync(state.leader, {})
        return usual

    def _min_insync(self, leader: int, overrides: Mapping[str, str]) -> int:
        brokers = self._image.broker_configs(leader)
        return topic_config(self._config, brokers, overrides).min_insync_replicas


async def survey(config: NodeConfig, image: MetadataImage) -> Survey:
    """Look at all partitions."""
    found, healths = Survey(image), PartitionHealths(config, image)
    looked = 0
    for name, topic in image.topics.items():
        for index, state in enumerate(topic.partitions):
            found.add(name, index, state, healths.of(name, state))
            looked += 1
            if looked % SLICE == 0:
                await asyncio.sleep(0)
    return found
