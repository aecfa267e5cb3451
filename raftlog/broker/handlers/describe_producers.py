"""DescribeProducers 0 (KIP-664): who writes to a partition, and since when its transaction is open, if one is."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.locate import locate
from raftlog.broker.turns import in_turns
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import Shapes, response_shapes

API_KEY: Final = ApiKey.DESCRIBE_PRODUCERS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer for every replica that is here, led or not: so an operator sees where replicas differ."""
    make = response_shapes(API_KEY, request.api_version)
    found: list[list[Any]] = [[] for _ in message.topics]
    asked = (
        (row, topic.name, index)
        for row, topic in enumerate(message.topics)
        for index in topic.partition_indexes
    )
    async for row, name, index in in_turns(asked):
        found[row].append(await _partition(broker, make, name, index))
    topics = [
        make.TopicResponse(name=topic.name, partitions=tuple(partitions))
        async for topic, partitions in in_turns(zip(message.topics, found, strict=True))
    ]
    return make.DescribeProducersResponse(topics=tuple(topics))


async def _partition(broker: BrokerContext, make: Shapes, topic: str, index: int) -> Any:
    try:
        active = locate(broker, topic, index).active_producers()
    except KafkaError as error:
        return make.PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message, active_producers=()
        )
    producers = [
        make.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.open_since,
        )
        async for each in in_turns(active)
    ]
    return make.PartitionResponse(partition_index=index, error_code=NONE, active_producers=tuple(producers))
