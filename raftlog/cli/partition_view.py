"""Partitions as the metadata of a cluster shows them, and how each stands to its replication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from raftlog.base.types import INTERNAL_TOPICS
from raftlog.cli.target import Target
from raftlog.client.metadata import Metadata, PartitionKey
from raftlog.metadata.image import PartitionState
from raftlog.metadata.partition_health import PartitionHealth, partition_health
from raftlog.protocol.apis import ApiKey


class Move(NamedTuple):
    """A reassignment that is under way: all replicas, those that are added, and those that are removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


Moves = Mapping[PartitionKey, Move]


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

    def stand(self, min_insync: int, reassigned: Moves) -> PartitionHealth:
        """Judge it by the rule of the brokers; `min_insync` is the topic's min.insync.replicas."""
        _, adding, removing = reassigned.get((self.topic, self.number), Move((), (), ()))
        state = PartitionState(
            self.replicas, self.isr, self.leader, adding_replicas=adding, removing_replicas=removing
        )
        return partition_health(state, min_insync)


def partitions_in(metadata: Metadata) -> list[Partition]:
    """Return all partitions of all topics."""
    return [
        Partition(name, each.id, each.leader, tuple(each.replicas), tuple(each.isr))
        for name, topic in sorted(metadata.topics.items())
        for each in sorted(topic.partitions.values(), key=lambda each: int(each.id))
    ]


def counts_of(partitions: Iterable[Partition]) -> dict[str, int]:
    """Return the numbers of topics and of partitions, internal topics apart."""
    found = list(partitions)
    own = [each for each in found if each.topic not in INTERNAL_TOPICS]
    return {
        "topics": len({each.topic for each in own}),
        "partitions": len(own),
        "internal_partitions": len(found) - len(own),
    }


def ongoing_moves(target: Target) -> dict[PartitionKey, Move]:
    """Return the reassignments that are under way. Raise Failure."""

    def build(make: Any) -> Any:
        return make.ListPartitionReassignmentsRequest(timeout=int(target.timeout_s * 1000), topics=None)

    answer = target.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, build, needs="DESCRIBE")
    return {
        (topic.name, each.partition_index): Move(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
