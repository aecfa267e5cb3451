"""OffsetForLeaderEpoch 2-4: where a leader epoch ended, so that a consumer notices truncation (KIP-101, 279, 320)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.locate import locate
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = 23


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer each partition with the largest epoch that is not above the one asked for, and its end."""
    make = response_shapes(API_KEY, request.api_version)

    def end_of(topic: str, wanted: Any) -> Any:
        try:
            end = locate(broker, topic, wanted.partition).epoch_end(
                wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
            )
        except KafkaError as error:
            return make.EpochEndOffset(
                partition=wanted.partition, error_code=error.code, leader_epoch=-1, end_offset=-1
            )
        return make.EpochEndOffset(
            partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset
        )

    return make.OffsetForLeaderEpochResponse(
        topics=tuple(
            make.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=tuple(end_of(topic.topic, each) for each in topic.partitions)
            )
            for topic in message.topics
        )
    )
