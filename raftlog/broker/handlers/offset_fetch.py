"""OffsetFetch 1-10: a group's committed offsets; several groups since v8 (KIP-709), member epochs v9, topic ids v10.

A client that requires stable offsets (KIP-447) gets a retriable error where an open transaction may still move an
offset.
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
from raftlog.broker.long_work.turns import Weighed
from raftlog.broker.rights import GROUP, TOPIC, demand, may
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
"""The limit of offsets in a response. The group that reaches it is still included; the client retries for the
others."""

TRANSACTIONS_PER_PART: Final = 200
"""Open transactions of a group that are checked for an offset: as much work as encoding the offset."""

TopicKey = str | UUID | None
Row = tuple[int, CommittedOffset, int]
"""(partition, what was committed, error code)."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Return the committed offsets, or -1 where there is none."""
    version = request.api_version
    make = response_builders(API_KEY, version)
    if version >= FIRST_BATCHED_VERSION:
        return make.OffsetFetchResponse(groups=_groups(broker, request, message))
    try:
        demand(broker, request, Operation.DESCRIBE, GROUP, message.group_id)
        group = await broker.groups.read(message.group_id)
    except KafkaError as error:
        return _failed(request, message, error)
    visible = partial(may, broker, request, Operation.DESCRIBE, TOPIC)
    stable = getattr(message, "require_stable", False)
    rows = OffsetRows(group, visible, stable=stable, count=OffsetCount())
    topics = (
        make.OffsetFetchResponseTopic(
            name=key, partitions=rows.results(make.OffsetFetchResponsePartition, name, partitions)
        )
        for key, name, partitions in _asked(broker.image(), request, message.topics, group, visible)
    )
    return make.OffsetFetchResponse(topics=topics)


def _groups(broker: BrokerContext, request: RequestContext, message: Any) -> Iterator[Any]:
    """Return a group or topic only once if it is named twice."""
    make = response_builders(API_KEY, request.api_version)
    count = OffsetCount()
    seen: set[Any] = set()
    for asked in message.groups:
        yield Weighed(None, 1 + len(asked.topics or ()))
        if asked in seen:
            continue
        seen.add(asked)
        if count.offsets < MAX_OFFSETS:
            yield _group(broker, request, message, asked, count)
        else:
            code = CoordinatorLoadInProgress.code
            yield make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=(), error_code=code)


async def _group(
    broker: BrokerContext, request: RequestContext, message: Any, asked: Any, count: OffsetCount
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
    rows = OffsetRows(group, visible, stable=getattr(message, "require_stable", False), count=count)
    topics = (
        make.OffsetFetchResponseTopics(
            name=key,
            topic_id=key,
            partitions=rows.results(make.OffsetFetchResponsePartitions, name, partitions),
        )
        for key, name, partitions in _asked(broker.image(), request, asked.topics, group, visible)
    )
    return make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


class OffsetCount:
    """The number of offsets in a response so far."""

    offsets = 0


class OffsetRows:
    """The offsets of one group at one point in time, however many turns the response takes."""

    def __init__(
        self, group: Group, visible: Callable[[str], bool], *, stable: bool, count: OffsetCount
    ) -> None:
        self._group = group
        self._visible = visible
        self._stable = stable and bool(group.pending)
        self._size = 1 + (len(group.pending) // TRANSACTIONS_PER_PART if self._stable else 0)
        self._count = count

    def of(self, topic: str | None, partition: int) -> Row:
        """Return the row of one partition; `topic` None: the topic id is unknown."""
        if topic is None:
            return partition, NOTHING_COMMITTED, UnknownTopicId.code
        if not self._visible(topic):
            return partition, NOTHING_COMMITTED, TopicAuthorizationFailed.code
        tp = (topic, partition)
        if self._stable and is_unstable(self._group, tp):
            return partition, NOTHING_COMMITTED, UnstableOffsetCommit.code
        return partition, self._group.offsets.get(tp, NOTHING_COMMITTED), NONE

    def results(self, make: Any, topic: str | None, partitions: Iterable[int]) -> Iterator[Weighed]:
        """Yield the partitions of one topic, as entities that `make` builds."""
        for partition in partitions:
            self._count.offsets += 1
            yield Weighed(_row(make, self.of(topic, partition)), self._size)


def _asked(
    image: MetadataImage, request: RequestContext, asked: Any, group: Group, visible: Callable[[str], bool]
) -> Iterator[tuple[TopicKey, str | None, Iterable[int]]]:
    """Yield each requested topic: its name or id as in this version, its name, and its partitions.

    Without topics in the request, yield all topics with committed offsets, and their partitions.
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


def _failed(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Version 1 has an error code only per partition."""
    make = response_builders(API_KEY, request.api_version)
    if request.api_version >= FIRST_TOP_LEVEL_ERROR_VERSION:
        return make.OffsetFetchResponse(topics=(), error_code=error.code)

    def partitions(topic: Any) -> Iterator[Any]:
        for partition in topic.partition_indexes:
            yield _row(make.OffsetFetchResponsePartition, (partition, NOTHING_COMMITTED, error.code))

    return make.OffsetFetchResponse(
        topics=(
            make.OffsetFetchResponseTopic(name=topic.name, partitions=partitions(topic))
            for topic in message.topics
        )
    )


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
