"""DescribeProducers 0 (KIP-664): the producers of a partition, and since when the open transaction of each is open."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, KafkaError, PolicyViolation
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import partitions_by_topic
from raftlog.broker.partition_lookup import locate
from raftlog.broker.rights import TOPIC, demand
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import MessageBuilders, response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_PRODUCERS

MAX_PRODUCERS: Final = 20_000
"""The limit of producers in a response. The partition that reaches it is still included."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond for every replica on this broker, leader or not, so that operators can compare replicas.

    Each partition is reported once. When the response is full, the remaining partitions get an error.
    """
    make = response_builders(API_KEY, request.api_version)
    answered = 0

    def partition(topic: str, index: int) -> Any:
        nonlocal answered
        try:
            demand(broker, request, Operation.READ, TOPIC, topic)
            if answered >= MAX_PRODUCERS:
                raise PolicyViolation(
                    f"the response would have more than {MAX_PRODUCERS} producers: describe fewer partitions"
                )
            active = tuple(locate(broker, topic, index).active_producers())
        except KafkaError as error:
            return make.PartitionResponse(
                partition_index=index, error_code=error.code, error_message=error.message, active_producers=()
            )
        answered += len(active)
        producers = (_producer(make, each) for each in active)
        return make.PartitionResponse(partition_index=index, error_code=NONE, active_producers=producers)

    asked = await partitions_by_topic(
        broker.env, ((topic.name, topic.partition_indexes) for topic in message.topics)
    )
    return make.DescribeProducersResponse(
        topics=(
            make.TopicResponse(name=name, partitions=(partition(name, index) for index in indexes))
            for name, indexes in asked.items()
        )
    )


def _producer(make: MessageBuilders, each: Any) -> Any:
    return make.ProducerState(
        producer_id=each.producer_id,
        producer_epoch=each.epoch,
        last_sequence=each.last_sequence,
        last_timestamp=each.last_timestamp,
        coordinator_epoch=each.coordinator_epoch,
        current_txn_start_offset=each.txn_first_offset,
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.READ, ResourceType.TOPIC),)),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
