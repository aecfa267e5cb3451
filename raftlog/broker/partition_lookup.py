"""Finds the replica that serves a partition of a request, or the broker that leads it (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from raftlog.base.errors import (
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.broker.controller_session import may_be_led_elsewhere
from raftlog.broker.local_broker import LocalBroker
from raftlog.protocol.primitives import Endpoint

if TYPE_CHECKING:
    from raftlog.metadata.image import PartitionState
    from raftlog.replication.partition import Partition

TopicKey = str | UUID
"""A topic by name, or by id where the API's version has ids."""

MOVED = frozenset({NotLeaderOrFollower.code, FencedLeaderEpoch.code})
"""Errors that come with the current leader as a hint."""


def by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partitions as requests name them: their indexes by topic."""
    topics: dict[str, list[int]] = {}
    for topic, index in topic_partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def locate(broker: LocalBroker, topic: TopicKey, index: int, *, for_follower: bool = False) -> Partition:
    """Return this broker's replica. Raises UnknownTopicId, UnknownTopicOrPartition or NotLeaderOrFollower.

    NotLeaderOrFollower is also raised if this broker leads by its metadata, but is cut off from brokers that may lead
    by now. Followers may fetch all the same, since a follower that fetches here knows of no other leader.
    """
    replicas = broker.replicas
    key = (topic, index)  # as in `find_replica`, without a call for each partition of each request
    found = replicas.partitions.get(key) if isinstance(topic, str) else replicas.by_id.get(key)  # type: ignore[call-overload,arg-type]  # equal to a TopicPartition
    if found is None:
        if not isinstance(topic, str):
            raise _missing(broker, topic, index)
        found = replicas.get(topic, index)
    if broker.silent_members and not for_follower:
        state = broker.image().partition(found.topic, index)
        if state is not None and is_doubtful(broker, state):
            raise NotLeaderOrFollower(
                "this broker lost its controller session, and another broker may lead by now"
            )
    return found


def find_replica(broker: LocalBroker, topic: TopicKey, index: int) -> Partition | None:
    """Return this broker's replica in whatever role, or None if it has none."""
    replicas, key = broker.replicas, (topic, index)
    return replicas.partitions.get(key) if isinstance(topic, str) else replicas.by_id.get(key)  # type: ignore[call-overload,arg-type]  # equal to a TopicPartition


def _missing(broker: LocalBroker, topic_id: UUID, index: int) -> KafkaError:
    state = broker.image().topic_by_id(topic_id)
    if state is None:
        return UnknownTopicId()
    return NotLeaderOrFollower() if 0 <= index < len(state.partitions) else UnknownTopicOrPartition()


def current_leader(broker: LocalBroker, topic: TopicKey, index: int) -> tuple[int, int] | None:
    """Return (leader id, leader epoch) of the newest image, or None if it is unknown."""
    image = broker.image()
    name = topic if isinstance(topic, str) else image.topic_names.get(topic)
    state = None if name is None else image.partition(name, index)
    return None if state is None or is_doubtful(broker, state) else (state.leader, state.leader_epoch)


def may_be_made_here(broker: LocalBroker, topic: TopicKey, index: int) -> bool:
    """Return whether a partition without a replica here may soon be led here: no other broker is known to lead it."""
    leader = current_leader(broker, topic, index)
    return leader is None or leader[0] in (NO_BROKER, broker.config.node_id)


def is_doubtful(broker: LocalBroker, state: PartitionState) -> bool:
    """Return whether this broker leads a partition by its metadata, but may have been replaced while cut off."""
    return may_be_led_elsewhere(state, broker.config.node_id, broker.silent_members)


def endpoints_of(broker: LocalBroker, broker_ids: Iterable[int], listener: str) -> list[Endpoint]:
    """Return the endpoints of brokers on the client's listener; unknown brokers are left out."""
    brokers = broker.image().brokers
    found = []
    for broker_id in sorted(set(broker_ids)):
        state = brokers.get(broker_id)
        endpoint = None if state is None else state.endpoint(listener)
        if state is not None and endpoint is not None:
            found.append(Endpoint(broker_id, endpoint.host, endpoint.port, state.rack))
    return found
