"""OffsetDelete 0: forget what a group committed for topics that it does not read (KIP-496)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, UnknownTopicOrPartition
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.coordinator.requests import DeleteOffsets
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.OFFSET_DELETE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per partition once the tombstones are committed; what concerns the whole group has its own field."""
    asked = [(topic.name, each.partition_index) for topic in message.topics for each in topic.partitions]
    known = [place for place in asked if _exists(broker, *place)]
    answers = await broker.groups.delete_offsets(DeleteOffsets(message.group_id, tuple(known)))
    codes = dict(zip(known, answers, strict=True))
    make = response_shapes(API_KEY, request.api_version)
    topics = tuple(
        make.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                make.OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=codes.get((topic.name, each.partition_index), UnknownTopicOrPartition.code),
                )
                for each in topic.partitions
            ),
        )
        for topic in message.topics
    )
    return make.OffsetDeleteResponse(error_code=NONE, throttle_time=0, topics=topics)


def _exists(broker: BrokerContext, name: str, partition: int) -> bool:
    topic = broker.image().topics.get(name)
    return topic is not None and 0 <= partition < len(topic.partitions)
