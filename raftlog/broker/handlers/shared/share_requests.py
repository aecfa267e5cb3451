"""The common part of ShareFetch and ShareAcknowledge: share sessions, acknowledgements, current leaders (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import InvalidRequest, KafkaError, UnknownTopicId
from raftlog.base.types import NO_BROKER, NO_EPOCH
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.share_group_configs import share_config
from raftlog.broker.long_work.turns import together
from raftlog.broker.partition_lookup import MOVED, current_leader, endpoints_of
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.security.acls import Operation
from raftlog.sharing.delivery import Acknowledgement, AcknowledgeType
from raftlog.sharing.share_sessions import SharedPartition, ShareSession, ShareSessionKey

FIRST_EPOCH: Final = 0
"""The epoch of a request that opens a share session."""

FINAL_EPOCH: Final = -1
"""The epoch of a request that ends its share session."""

Outcomes = dict[SharedPartition, KafkaError | None]
"""What became of the acknowledgements of each partition; None if they are written."""


def session_key(message: Any) -> ShareSessionKey:
    """Return the key of a request's share session."""
    if not message.group_id or not message.member_id:
        raise InvalidRequest("group_id and member_id must not be empty")
    return ShareSessionKey(message.group_id, message.member_id)


def lock_ms(broker: BrokerContext, group_id: str) -> int:
    """Return how long members of a group have their records, for the response."""
    return share_config(broker, group_id).share_record_lock_duration_ms


def follow_session(broker: BrokerContext, request: RequestContext, message: Any) -> ShareSession:
    """Return the session of a request that does not open one, in its next epoch; with the final epoch it has ended.

    Raises ShareSessionNotFound, InvalidShareSessionEpoch.
    """
    sessions, key = broker.share_partitions.sessions, session_key(message)
    if message.share_session_epoch == FINAL_EPOCH:
        return sessions.close(key, request.connection)
    return sessions.advance(key, message.share_session_epoch, request.connection)


# -- acknowledgements --------------------------------------------------------------------------------------


async def acknowledge(broker: BrokerContext, request: RequestContext, message: Any) -> Outcomes:
    """Return the outcome for each partition that has acknowledgements, once they are written.

    After the final epoch, what the member still holds is given up.
    """
    said: dict[SharedPartition, list[Any]] = {}
    for topic in message.topics:
        for each in topic.partitions:
            if each.acknowledgement_batches:
                said.setdefault((topic.topic_id, each.partition_index), []).extend(
                    each.acknowledgement_batches
                )
    refused = await refused_topics(broker, request, {topic_id for topic_id, _ in said})
    ended = await together(
        broker.env, said.items(), partial(_begin, broker, message, refused), size_of=lambda part: len(part[1])
    )
    if message.share_session_epoch == FINAL_EPOCH:
        broker.share_partitions.release_members([session_key(message)])
    return {part[0]: outcome for part, outcome in ended}


def _begin(
    broker: BrokerContext,
    message: Any,
    refused: dict[UUID, KafkaError],
    part: tuple[SharedPartition, list[Any]],
) -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_task(_acknowledge(broker, message, refused, part))


async def _acknowledge(
    broker: BrokerContext,
    message: Any,
    refused: dict[UUID, KafkaError],
    part: tuple[SharedPartition, list[Any]],
) -> None:
    (topic_id, index), batches = part
    if topic_id in refused:
        raise refused[topic_id]
    renews = getattr(message, "is_renew_ack", False)
    newest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    acknowledgements = [_acknowledgement(each, newest) for each in batches]
    led = await broker.share_partitions.get(SharePartitionKey(message.group_id, topic_id, index))
    await led.acknowledge(message.member_id, acknowledgements)


def _acknowledgement(batch: Any, newest: AcknowledgeType) -> Acknowledgement:
    if any(not 0 <= each <= newest for each in batch.acknowledge_types):
        raise InvalidRequest("an acknowledge type is unknown, or renews in a request that does not say so")
    return Acknowledgement(
        batch.first_offset, batch.last_offset, tuple(map(AcknowledgeType, batch.acknowledge_types))
    )


async def refused_topics(
    broker: BrokerContext, request: RequestContext, topic_ids: Collection[UUID]
) -> dict[UUID, KafkaError]:
    """Return the errors of topics that are unknown, or that the sender may not read."""
    names = broker.image().topic_names
    known = {each: names[each] for each in topic_ids if each in names}
    may_read = await among(
        broker, request, Operation.READ, TOPIC, frozenset(known.values()), log_if_denied=True
    )
    refused: dict[UUID, KafkaError] = {each: UnknownTopicId() for each in topic_ids if each not in known}
    refused |= {each: refusal(TOPIC) for each, name in known.items() if name not in may_read}
    return refused


# -- leaders -----------------------------------------------------------------------------------------------


def leader_fields(broker: BrokerContext, make: Any, partition: SharedPartition, error_code: int) -> Any:
    """Return the leader for a partition's part of a response; it is unknown unless the error says that it moved."""
    leader = current_leader(broker, *partition) if error_code in MOVED else None
    leader_id, leader_epoch = (NO_BROKER, NO_EPOCH) if leader is None else leader
    return make.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)


def node_endpoints(
    broker: BrokerContext,
    request: RequestContext,
    make: Any,
    errors: Iterable[tuple[SharedPartition, KafkaError | None]],
) -> tuple[Any, ...]:
    """Return the addresses of the leaders that a response names."""
    leaders = [
        current_leader(broker, *partition)
        for partition, error in errors
        if error is not None and error.code in MOVED
    ]
    ids = {each[0] for each in leaders if each is not None}
    return tuple(
        make.NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints_of(broker, ids, request.listener)
    )


def by_topic(partitions: Iterable[SharedPartition]) -> dict[UUID, list[SharedPartition]]:
    """Return partitions by topic, in order."""
    topics: dict[UUID, list[SharedPartition]] = {}
    for each in partitions:
        topics.setdefault(each[0], []).append(each)
    return topics
