"""OffsetForLeaderEpoch 2-4: where a leader epoch ended, so that a consumer notices truncation (KIP-101, 279, 320)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.partition_lookup import locate
from raftlog.broker.rights import CLUSTER, TOPIC, demand, may
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = 23


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Return each partition's largest epoch that is not above the requested epoch, and its end offset."""
    make = response_builders(API_KEY, request.api_version)

    def ends(topic: Any) -> Any:
        found = (_end_of(broker, request, make, topic.topic, wanted) for wanted in topic.partitions)
        return make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=found)

    return make.OffsetForLeaderEpochResponse(topics=(ends(each) for each in message.topics))


def _end_of(broker: BrokerContext, request: RequestContext, make: Any, topic: str, wanted: Any) -> Any:
    try:
        if not may(broker, request, Operation.CLUSTER_ACTION, CLUSTER):
            demand(broker, request, Operation.DESCRIBE, TOPIC, topic)
        end = locate(broker, topic, wanted.partition).epoch_end(
            wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
        )
    except KafkaError as error:
        return make.EpochEndOffset(
            partition=wanted.partition, error_code=error.code, leader_epoch=-1, end_offset=-1
        )
    return make.EpochEndOffset(partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER), Right(Operation.DESCRIBE, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
