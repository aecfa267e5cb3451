"""The common part of ShareFetch and ShareAcknowledge: share sessions, acknowledgements, current leaders (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import InvalidRequest, KafkaError, UnknownTopicId
from raftlog.base.types import NAME_MAX_CHARS, NO_BROKER, NO_EPOCH
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, Handler, RequestContext
from raftlog.broker.coordination.share_group_configs import share_config
from raftlog.broker.long_work.turns import each_part, together
from raftlog.broker.partition_lookup import MOVED, current_leader, endpoints_of
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.coordinator.groups import check_group_id
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Demanded, Operation, ResourceType, Right
from raftlog.sharing.delivery import Acknowledgement, AcknowledgeType, add_batch
from raftlog.sharing.share_sessions import SharedPartition, ShareSession, ShareSessionKey

FIRST_EPOCH: Final = 0
"""The epoch of a request that opens a share session."""

FINAL_EPOCH: Final = -1
"""The epoch of a request that ends its share session."""

_TYPES: Final = tuple(AcknowledgeType)

Outcomes = dict[SharedPartition, KafkaError | None]
"""What became of the acknowledgements of each partition; None if they are written."""


def session_key(message: Any) -> ShareSessionKey:
    """Return the key of a request's share session. Raise InvalidRequest, InvalidGroupId."""
    if not message.group_id or not message.member_id:
        raise InvalidRequest("group_id and member_id must not be empty")
    check_group_id(message.group_id)
    if len(message.member_id) > NAME_MAX_CHARS:  # the broker remembers it for long
        raise InvalidRequest(f"member_id has at most {NAME_MAX_CHARS} characters")
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

    A partition without any has an outcome if it could not take them. It has none in a ShareFetch that acknowledges
    nowhere. The last mention of a partition counts, as in Apache Kafka. After the final epoch, what the member still
    holds is given up.
    """
    said: dict[SharedPartition, Sequence[Any]] = {}

    def note(topic_id: UUID, each: Any) -> None:
        said[topic_id, each.partition_index] = each.acknowledgement_batches

    await each_part(broker.env, named_partitions(message), lambda each: note(*each))
    ended: list[tuple[Any, Any]] = []
    if any(said.values()) or request.api_key == ApiKey.SHARE_ACKNOWLEDGE:
        refused = await refused_topics(broker, request, said)
        ended = await together(
            broker.env,
            said.items(),
            partial(_acknowledge, broker, message, refused),
            size_of=lambda part: len(part[1]),
        )
    if message.share_session_epoch == FINAL_EPOCH:
        broker.share_partitions.release_members([session_key(message)])
    return {part[0]: outcome for part, outcome in ended if part[1] or outcome is not None}


async def _acknowledge(
    broker: BrokerContext,
    message: Any,
    refused: dict[UUID, KafkaError],
    part: tuple[SharedPartition, Sequence[Any]],
) -> None:
    (topic_id, index), batches = part
    refused_topic = refused.get(topic_id)
    if isinstance(refused_topic, UnknownTopicId):
        raise refused_topic
    renews = getattr(message, "is_renew_ack", False)
    newest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    acknowledgements: list[Acknowledgement] = []
    await each_part(
        broker.env,
        batches,
        lambda each: add_batch(acknowledgements, _acknowledgement(each, newest)),
        size_of=lambda each: len(each.acknowledge_types),
    )
    if refused_topic is not None:
        raise refused_topic
    key = SharePartitionKey(message.group_id, topic_id, index)
    if not batches:
        broker.share_partitions.replica(key)
        return
    led = await broker.share_partitions.get(key)
    await led.acknowledge(message.member_id, acknowledgements)


def _acknowledgement(batch: Any, newest: AcknowledgeType) -> Acknowledgement:
    types = batch.acknowledge_types
    if types and not 0 <= min(types) <= max(types) <= newest:
        raise InvalidRequest("an acknowledge type is unknown, or renews in a request that does not say so")
    return Acknowledgement(batch.first_offset, batch.last_offset, tuple(map(_TYPES.__getitem__, types)))


def named_partitions(message: Any) -> Iterator[tuple[UUID, Any]]:
    """Yield the partitions of a request, each with its topic."""
    for topic in message.topics:
        for each in topic.partitions:
            yield topic.topic_id, each


async def refused_topics(
    broker: BrokerContext, request: RequestContext, partitions: Iterable[SharedPartition]
) -> dict[UUID, KafkaError]:
    """Return the errors of topics that are unknown, or that the sender may not read."""
    names, known, refused = broker.image().topic_names, dict[UUID, str](), dict[UUID, KafkaError]()

    def look_up(partition: SharedPartition) -> None:
        topic_id = partition[0]
        if topic_id in known or topic_id in refused:
            return
        name = names.get(topic_id)
        if name is None:
            refused[topic_id] = UnknownTopicId()
        else:
            known[topic_id] = name

    await each_part(broker.env, partitions, look_up)
    may_read = await among(
        broker, request, Operation.READ, TOPIC, frozenset(known.values()), log_if_denied=True
    )
    return refused | {each: refusal(TOPIC) for each, name in known.items() if name not in may_read}


# -- leaders -----------------------------------------------------------------------------------------------


class NamedLeaders:
    """The leaders that a response names where a partition's error says that it moved, and their addresses."""

    def __init__(self, broker: BrokerContext, request: RequestContext) -> None:
        self._broker = broker
        self._listener = request.listener
        self._make = response_builders(request.api_key, request.api_version)
        self._ids = set[int]()

    def fields(self, partition: SharedPartition, error_code: int) -> Any:
        """Return the leader for a partition's part of a response; without such an error it is unknown."""
        leader = current_leader(self._broker, *partition) if error_code in MOVED else None
        leader_id, leader_epoch = (NO_BROKER, NO_EPOCH) if leader is None else leader
        if leader is not None:
            self._ids.add(leader_id)
        return self._make.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    def endpoints(self) -> Iterator[Any]:
        """Yield the addresses, once the response has its partitions."""
        for each in endpoints_of(self._broker, self._ids, self._listener):
            yield self._make.NodeEndpoint(
                node_id=each.node_id, host=each.host, port=each.port, rack=each.rack
            )


def share_records_api(api_key: ApiKey, handle: Handler) -> Api:
    """Return the row of an API."""
    return Api(
        key=api_key,
        handle=handle,
        needs=Demanded(
            (Right(Operation.READ, ResourceType.GROUP, "group_id"),),
            by_part=(Right(Operation.READ, ResourceType.TOPIC),),
        ),
        max_parts=IN_TURNS,
        audit=NoChange(),
        controllers=False,
        prepared=(2,),
    )


async def by_topic(
    broker: BrokerContext, partitions: Iterable[SharedPartition]
) -> dict[UUID, list[SharedPartition]]:
    """Return partitions by topic, each once."""
    topics: dict[UUID, dict[SharedPartition, None]] = {}

    def note(partition: SharedPartition) -> None:
        topics.setdefault(partition[0], {})[partition] = None

    await each_part(broker.env, partitions, note)
    return {topic_id: list(some) for topic_id, some in topics.items()}
