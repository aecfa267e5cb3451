"""ListOffsets 1-11: the offset for a timestamp, real or special (KIP-79, 207, 320, 734)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError, UnsupportedVersion
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.locate import locate
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = 2
READ_COMMITTED: Final = 1
NOT_FOUND: Final = (-1, -1, -1)

SPECIALS: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamps, each with the first version that has it."""


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer each partition; one that is named twice is refused."""
    make = response_shapes(API_KEY, request.api_version)
    named = Counter(
        (topic.name, each.partition_index) for topic in message.topics for each in topic.partitions
    )
    replica = message.replica_id >= 0 and message.replica_id == request.peer_broker_id
    read_committed = getattr(message, "isolation_level", 0) == READ_COMMITTED

    def list_one(topic: str, wanted: Any) -> Any:
        try:
            if named[topic, wanted.partition_index] > 1:
                raise InvalidRequest("the partition is named twice")
            _check_timestamp(wanted.timestamp, request.api_version)
            found = locate(broker, topic, wanted.partition_index).offset_for_timestamp(
                wanted.timestamp,
                current_leader_epoch=getattr(wanted, "current_leader_epoch", -1),
                read_committed=read_committed,
                replica=replica,
            )
        except KafkaError as error:
            return make.ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index, error_code=error.code, offset=-1, timestamp=-1
            )
        offset, timestamp, leader_epoch = found or NOT_FOUND
        return make.ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=leader_epoch,
        )

    return make.ListOffsetsResponse(
        topics=tuple(
            make.ListOffsetsTopicResponse(
                name=topic.name, partitions=tuple(list_one(topic.name, each) for each in topic.partitions)
            )
            for topic in message.topics
        )
    )


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < SPECIALS.get(timestamp, version + 1):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {version}")
