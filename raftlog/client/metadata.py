"""The metadata of a cluster as a client sees it: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

EARLIEST: Final = -2
LATEST: Final = -1
"""The times in ListOffsets that mean a partition's first offset, and its end."""

PartitionKey = tuple[str, int]
"""A topic and the number of one of its partitions."""


class Node(NamedTuple):
    """A broker and its advertised address."""

    id: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition; `leader` is -1 while it has none."""

    id: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicMetadata(NamedTuple):
    """A topic and its partitions by number; a topic with an error has no partitions."""

    name: str
    error_code: int
    partitions: dict[int, PartitionMetadata]
    id: UUID | None = None
    """None if the broker does not know topic ids."""

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions.values()), default=0)


class Metadata(NamedTuple):
    """A response to Metadata; `controller` is -1 if it is not known."""

    cluster_id: str
    controller: int
    brokers: dict[int, Node]
    topics: dict[str, TopicMetadata]


def read_metadata(response: Any) -> Metadata:
    """Return the metadata in a response."""
    return Metadata(
        response.cluster_id or "",
        response.controller_id,
        {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
        {each.name: _read_topic(each) for each in response.topics},
    )


def _read_topic(topic: Any) -> TopicMetadata:
    partitions = {
        each.partition_index: PartitionMetadata(
            each.partition_index,
            each.leader_id,
            getattr(each, "leader_epoch", -1),
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in topic.partitions
    }
    return TopicMetadata(topic.name, topic.error_code, partitions, getattr(topic, "topic_id", None))
