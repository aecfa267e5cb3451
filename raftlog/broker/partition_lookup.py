"""Finds the replica that serves a partition of a request, or the broker that leads it (KIP-951).

A consumer with a rack may be served by a follower in its rack (KIP-392).
"""

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
from raftlog.broker.controller_session import NEVER, may_be_led_elsewhere
from raftlog.broker.local_broker import LocalBroker
from raftlog.metadata.features import serves_consumers_as_follower
from raftlog.protocol.primitives import Endpoint
from raftlog.replication.leader_role import LeaderRole

if TYPE_CHECKING:
    from raftlog.metadata.image import BrokerState, PartitionState
    from raftlog.replication.follower_progress import FollowerProgress
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


def choose_read_replica(
    broker: LocalBroker, partition: Partition, offset: int, *, rack: str, listener: str
) -> int:
    """Return the follower in a consumer's rack that should serve it, or NO_BROKER if the leader does (KIP-392).

    A follower is in the ISR, has the offset, and can be reached on the consumer's listener. A follower that would send
    its readers back is not named: it stopped fetching (`FollowerRole`), or runs an older release. Of several, the
    largest log end decides.
    """
    role = partition.role
    if type(role) is not LeaderRole or broker.config.broker_rack == rack:
        return NO_BROKER
    brokers, isr = broker.image().brokers, role.isr.committed

    def serves(progress: FollowerProgress) -> bool:
        state = brokers.get(progress.broker_id)
        return (
            state is not None
            and state.rack == rack
            and progress.broker_id in isr
            and progress.log_start_offset <= offset <= progress.end_offset
            and serves_consumers_as_follower(state)
            and _is_reachable(state, listener)
            and not _stopped_fetching(broker, progress.broker_id)
        )

    found = filter(serves, role.progress.values())
    best = max(found, key=lambda each: (each.end_offset, each.caught_up_at, each.broker_id), default=None)
    return NO_BROKER if best is None else best.broker_id


def _is_reachable(state: BrokerState, listener: str) -> bool:
    return not state.fenced and not state.in_controlled_shutdown and state.endpoint(listener) is not None


def _stopped_fetching(broker: LocalBroker, broker_id: int) -> bool:
    """Return whether a broker sent no fetch for replica.lag.time.max.ms. It stays in sync if nothing was written."""
    if broker.session is None:
        return False
    replicas = broker.replicas
    return broker.session.fetched_at.get(broker_id, NEVER) < replicas.now() - replicas.replica_lag_time_max
