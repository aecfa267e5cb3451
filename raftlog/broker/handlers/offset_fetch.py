"""OffsetFetch 1-10: what a group committed; several groups since v8 (KIP-709), member epochs v9, topic ids v10.

A client that requires stable offsets (KIP-447) is told to come again where an open transaction may still move one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import (
    NONE,
    CoordinatorLoadInProgress,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnstableOffsetCommit,
)
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.rights import GROUP, TOPIC, demand, may
from raftlog.broker.turns import TurnCounter
from raftlog.coordinator.group import NOTHING_COMMITTED, CommittedOffset, Group
from raftlog.coordinator.offsets import check_consumer_fetch
from raftlog.coordinator.transactional_offsets import is_unstable
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.OFFSET_FETCH

FIRST_TOP_LEVEL_ERROR_VERSION: Final = 2
FIRST_BATCHED_VERSION: Final = 8
FIRST_TOPIC_ID_VERSION: Final = 10

MAX_OFFSETS: Final = 100_000
"""Offsets in one answer, and those of the group that reaches it; who asks for more groups hears the rest later."""

TRANSACTIONS_PER_PART: Final = 200
"""Open transactions of a group that are looked through for one offset: as much work as telling it."""

TopicKey = str | UUID | None
Row = tuple[int, CommittedOffset, int]
"""(partition, what was committed, error code)."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer with what is committed; -1 where nothing is."""
    version = request.api_version
    make = response_builders(API_KEY, version)
    if version >= FIRST_BATCHED_VERSION:
        return make.OffsetFetchResponse(groups=await _groups(broker, request, message))
    pace = TurnCounter(broker.env)
    try:
        demand(broker, request, Operation.DESCRIBE, GROUP, message.group_id)
        group = await broker.groups.read(message.group_id)
    except KafkaError as error:
        return await _failed(request, message, error, pace)
    visible = partial(may, broker, request, Operation.DESCRIBE, TOPIC)
    rows = OffsetRows(group, pace, visible, stable=getattr(message, "require_stable", False))
    topics = [
        make.OffsetFetchResponseTopic(
            name=key, partitions=await rows.told(make.OffsetFetchResponsePartition, name, partitions)
        )
        for key, name, partitions in _asked(broker.image(), request, message.topics, group, visible)
    ]
    return make.OffsetFetchResponse(topics=tuple(topics))


async def _groups(broker: BrokerContext, request: RequestContext, message: Any) -> tuple[Any, ...]:
    """A group or topic that is named twice is answered once."""
    make = response_builders(API_KEY, request.api_version)
    groups, told, pace = [], 0, TurnCounter(broker.env)
    seen: set[Any] = set()
    for asked in message.groups:
        await pace.did(1 + len(asked.topics or ()))
        if asked in seen:
            continue
        seen.add(asked)
        if told < MAX_OFFSETS:
            answer = await _group(broker, request, message, asked, pace)
        else:
            code = CoordinatorLoadInProgress.code
            answer = make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=(), error_code=code)
        told += sum(len(each.partitions) for each in answer.topics)
        groups.append(answer)
    return tuple(groups)


async def _group(
    broker: BrokerContext, request: RequestContext, message: Any, asked: Any, pace: TurnCounter
) -> Any:
    make = response_builders(API_KEY, request.api_version)
    try:
        demand(broker, request, Operation.DESCRIBE, GROUP, asked.group_id)
        group = await broker.groups.read(asked.group_id)
        if group.consumer is not None:
            check_consumer_fetch(
                group.consumer, getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
            )
    except KafkaError as error:
        return make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=(), error_code=error.code)
    visible = partial(may, broker, request, Operation.DESCRIBE, TOPIC)
    rows = OffsetRows(group, pace, visible, stable=getattr(message, "require_stable", False))
    topics = [
        make.OffsetFetchResponseTopics(
            name=key,
            topic_id=key,
            partitions=await rows.told(make.OffsetFetchResponsePartitions, name, partitions),
        )
        for key, name, partitions in _asked(broker.image(), request, asked.topics, group, visible)
    ]
    return make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=tuple(topics))


class OffsetRows:
    """The offsets of one group as they are at one time, however many turns the response takes."""

    def __init__(
        self, group: Group, pace: TurnCounter, visible: Callable[[str], bool], *, stable: bool
    ) -> None:
        self._group = group
        self._visible = visible
        self._stable = stable and bool(group.pending)
        self._size = 1 + (len(group.pending) // TRANSACTIONS_PER_PART if self._stable else 0)
        self._pace = pace

    def of(self, topic: str | None, partition: int) -> Row:
        """One partition of a topic; None: there is no such topic."""
        if topic is None:
            return partition, NOTHING_COMMITTED, UnknownTopicId.code
        if not self._visible(topic):
            return partition, NOTHING_COMMITTED, TopicAuthorizationFailed.code
        tp = (topic, partition)
        if self._stable and is_unstable(self._group, tp):
            return partition, NOTHING_COMMITTED, UnstableOffsetCommit.code
        return partition, self._group.offsets.get(tp, NOTHING_COMMITTED), NONE

    async def told(self, make: Any, topic: str | None, partitions: Iterable[int]) -> tuple[Any, ...]:
        """Return the partitions of one topic, `make` being what they are told in."""
        told = []
        for partition in partitions:
            told.append(_row(make, self.of(topic, partition)))
            await self._pace.did(self._size)
        await self._pace.did()  # a topic is something, too
        return tuple(told)


def _asked(
    image: MetadataImage, request: RequestContext, asked: Any, group: Group, visible: Callable[[str], bool]
) -> Iterator[tuple[TopicKey, str | None, Iterable[int]]]:
    """Yield each topic that is asked for: what the version calls it, its name, and which partitions.

    All of which something is committed if nothing is named.
    """
    by_id = request.api_version >= FIRST_TOPIC_ID_VERSION
    if asked is None:
        for name in sorted(group.offsets.topics()):
            if (not by_id or name in image.topics) and visible(name):
                key = image.topics[name].topic_id if by_id else name
                yield key, name, sorted(group.offsets.of_topic(name))
        return
    for topic in asked:
        if not by_id:
            yield topic.name, topic.name, topic.partition_indexes
        else:
            state = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
            yield topic.topic_id, None if state is None else state.name, topic.partition_indexes


def _row(make: Any, row: Row) -> Any:
    partition, committed, code = row
    return make(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


async def _failed(request: RequestContext, message: Any, error: KafkaError, pace: TurnCounter) -> Any:
    """Version 1 has no place for an error but the partitions."""
    make = response_builders(API_KEY, request.api_version)
    if request.api_version >= FIRST_TOP_LEVEL_ERROR_VERSION:
        return make.OffsetFetchResponse(topics=(), error_code=error.code)
    topics = []
    for topic in message.topics:
        told = []
        for partition in topic.partition_indexes:
            told.append(_row(make.OffsetFetchResponsePartition, (partition, NOTHING_COMMITTED, error.code)))
            await pace.did()
        topics.append(make.OffsetFetchResponseTopic(name=topic.name, partitions=tuple(told)))
        await pace.did()
    return make.OffsetFetchResponse(topics=tuple(topics))


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.DESCRIBE, ResourceType.GROUP), Right(Operation.DESCRIBE, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(10,),
)
