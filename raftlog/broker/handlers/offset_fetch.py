"""OffsetFetch 1-10: what a group committed; several groups since v8 (KIP-709), topic ids since v10.

No transaction can have pending offsets here yet, so `require_stable` (KIP-447) is always met.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import NONE, KafkaError, UnknownTopicId
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.coordinator.group import NOTHING_COMMITTED, CommittedOffset, Group
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.OFFSET_FETCH

FIRST_TOP_LEVEL_ERROR_VERSION: Final = 2
FIRST_BATCHED_VERSION: Final = 8
FIRST_TOPIC_ID_VERSION: Final = 10

TopicKey = str | UUID | None
Row = tuple[int, CommittedOffset, int]
"""(partition, what was committed, error code)."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer with what is committed; -1 where nothing is."""
    version = request.api_version
    make = response_shapes(API_KEY, version)
    if version >= FIRST_BATCHED_VERSION:
        return make.OffsetFetchResponse(
            groups=tuple([await _group(broker, request, each) async for each in in_turns(message.groups)])
        )
    try:
        group = await broker.groups.read(message.group_id)
    except KafkaError as error:
        return _failed(request, message, error)
    topics = tuple(
        make.OffsetFetchResponseTopic(
            name=key, partitions=_partitions(make.OffsetFetchResponsePartition, rows)
        )
        for key, rows in _found(broker.image(), request, message.topics, group)
    )
    return make.OffsetFetchResponse(topics=topics)


async def _group(broker: BrokerContext, request: RequestContext, asked: Any) -> Any:
    make = response_shapes(API_KEY, request.api_version)
    try:
        group = await broker.groups.read(asked.group_id)
    except KafkaError as error:
        return make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=(), error_code=error.code)
    topics = tuple(
        make.OffsetFetchResponseTopics(
            name=key,
            topic_id=key,
            partitions=_partitions(make.OffsetFetchResponsePartitions, rows),
        )
        for key, rows in _found(broker.image(), request, asked.topics, group)
    )
    return make.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _found(
    image: MetadataImage, request: RequestContext, asked: Any, group: Group
) -> list[tuple[TopicKey, list[Row]]]:
    """Return the rows per topic, by what the version calls a topic; all that is committed if nothing is named."""
    by_id = request.api_version >= FIRST_TOPIC_ID_VERSION
    if asked is None:
        return _everything(image, group, by_id=by_id)
    found: list[tuple[TopicKey, list[Row]]] = []
    for topic in asked:
        if not by_id:
            name = topic.name
        else:
            state = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
            name = None if state is None else state.name
        code = UnknownTopicId.code if name is None else NONE
        rows = [
            (partition, group.offsets.get((name, partition), NOTHING_COMMITTED), code)
            for partition in topic.partition_indexes
        ]
        found.append((topic.topic_id if by_id else name, rows))
    return found


def _everything(image: MetadataImage, group: Group, *, by_id: bool) -> list[tuple[TopicKey, list[Row]]]:
    rows: dict[str, list[Row]] = {}
    for (name, partition), committed in sorted(group.offsets.items()):
        rows.setdefault(name, []).append((partition, committed, NONE))
    if not by_id:
        return list(rows.items())
    return [(image.topics[name].topic_id, each) for name, each in rows.items() if name in image.topics]


def _partitions(make_partition: Any, rows: list[Row]) -> tuple[Any, ...]:
    return tuple(
        make_partition(
            partition_index=partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=code,
        )
        for partition, committed, code in rows
    )


def _failed(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Version 1 has no place for an error but the partitions."""
    make = response_shapes(API_KEY, request.api_version)
    if request.api_version >= FIRST_TOP_LEVEL_ERROR_VERSION:
        return make.OffsetFetchResponse(topics=(), error_code=error.code)
    topics = tuple(
        make.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=_partitions(
                make.OffsetFetchResponsePartition,
                [(partition, NOTHING_COMMITTED, error.code) for partition in topic.partition_indexes],
            ),
        )
        for topic in message.topics
    )
    return make.OffsetFetchResponse(topics=topics)
