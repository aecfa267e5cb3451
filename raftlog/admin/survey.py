"""The cluster's partitions and brokers, counted from one metadata image: what health and metrics have in common.

Thousands of partitions are looked at in slices; the image is a value, so that nothing changes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog.base.config import NodeConfig, topic_config
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.metadata.image import MetadataImage, PartitionState

SLICE: Final = 1_000
"""Partitions that are looked at before others may run: well below a millisecond."""
KEY: Final = "min.insync.replicas"
MOST_NAMED: Final = 20
"""Partitions that are named of each kind; all are counted."""


class Kind:
    """Partitions in one condition: all counted, the first few named."""

    __slots__ = ("count", "named")

    def __init__(self) -> None:
        self.count = 0
        self.named: list[TopicPartition] = []

    def add(self, topic: str, partition: int) -> None:
        """One more."""
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(TopicPartition(topic, partition))


class Survey:
    """What a cluster is like. A partition is of several kinds at once where that is so."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.topics = len(image.topics)
        self.partitions = 0
        self.leaderless = Kind()
        self.isr_lost = Kind()
        """Only an unclean election can give them a leader that takes records."""
        self.under_replicated = Kind()
        self.under_min_isr = Kind()
        self.at_min_isr = Kind()
        self.not_preferred = Kind()
        self.reassigning = Kind()
        self.fenced = [each for each, state in sorted(image.brokers.items()) if state.fenced]
        self.active = [each for each, state in sorted(image.brokers.items()) if not state.fenced]

    def add(self, topic: str, partition: int, state: PartitionState, min_isr: int) -> None:
        """Look at one partition."""
        self.partitions += 1
        standing = stand(state, min_isr)
        if state.leader == NO_BROKER:
            self.leaderless.add(topic, partition)
        elif state.leader != state.replicas[0]:
            self.not_preferred.add(topic, partition)
        if state.isr_lost:
            self.isr_lost.add(topic, partition)
        if standing.under_replicated:
            self.under_replicated.add(topic, partition)
        if standing.under_min_isr:
            self.under_min_isr.add(topic, partition)
        if standing.at_min_isr:
            self.at_min_isr.add(topic, partition)
        if state.is_reassigned:
            self.reassigning.add(topic, partition)


class PartitionStanding(NamedTuple):
    """How one partition stands to its replication."""

    under_replicated: bool
    """Some replica that shall stay is not in the ISR."""
    under_min_isr: bool
    """acks=all is refused."""
    at_min_isr: bool
    """The next replica that fails makes it so."""


def stand(state: PartitionState, min_isr: int) -> PartitionStanding:
    """Judge one partition; `min_isr` is the topic's min.insync.replicas, of which there can't be more than replicas."""
    wanted = min(min_isr, len(state.target))
    have = 0 if state.isr_lost or state.leader == NO_BROKER else len(state.isr)
    missing = any(each not in state.isr for each in state.target)
    return PartitionStanding(missing or have == 0, have < wanted, have == wanted)


class MinIsr:
    """What min.insync.replicas is for each topic of one image. Few topics set it, so the rest is worked out once."""

    def __init__(self, config: NodeConfig, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._usual = self._of({})

    def of(self, topic: str) -> int:
        """Return a topic's."""
        overrides = self._image.config("topic", topic)
        return self._of(overrides) if KEY in overrides else self._usual

    def _of(self, overrides: Mapping[str, str]) -> int:
        brokers = self._image.config("broker", "")
        return topic_config(self._config, brokers, overrides).min_insync_replicas


async def survey(config: NodeConfig, image: MetadataImage) -> Survey:
    """Look at all partitions."""
    found, min_isrs = Survey(image), MinIsr(config, image)
    looked = 0
    for name, topic in image.topics.items():
        min_isr = min_isrs.of(name)
        for index, state in enumerate(topic.partitions):
            found.add(name, index, state, min_isr)
            looked += 1
            if looked % SLICE == 0:
                await asyncio.sleep(0)
    return found
