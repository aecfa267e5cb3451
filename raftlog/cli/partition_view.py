"""Partitions as the metadata of a cluster shows them, and how each stands to its replication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raftlog.metadata.image import PartitionState
from raftlog.metadata.partition_health import PartitionHealth, partition_health

Added = Mapping[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]]
"""(replicas that are being added, replicas that are being removed) of each partition that is reassigned."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the metadata shows it; `leader` < 0: none."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"{self.topic}-{self.number}"

    def stand(self, min_insync: int, reassigned: Added) -> PartitionHealth:
        """Judge it by the rule of the brokers; `min_insync` is the topic's min.insync.replicas."""
        adding, removing = reassigned.get((self.topic, self.number), ((), ()))
        state = PartitionState(
            self.replicas, self.isr, self.leader, adding_replicas=adding, removing_replicas=removing
        )
        return partition_health(state, min_insync)


def partitions_in(metadata: Any) -> list[Partition]:
    """Return all partitions of all topics."""
    return [
        Partition(name, each.id, each.leader, tuple(each.replicas), tuple(each.isrs))
        for name, topic in sorted(metadata.topics.items())
        for each in sorted(topic.partitions.values(), key=lambda each: int(each.id))
    ]
