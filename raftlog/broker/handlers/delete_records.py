"""DeleteRecords 0-2: move the start of a partition forward (KIP-107). Followers take it over with their next fetch."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError, PolicyViolation
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.locate import locate
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = 21
NO_LOW_WATERMARK: Final = -1


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer each partition with its new start."""
    make = response_shapes(API_KEY, request.api_version)

    def delete_one(topic: str, wanted: Any) -> Any:
        error_code, low_watermark = 0, NO_LOW_WATERMARK
        try:
            low_watermark = _delete(broker, topic, wanted.partition_index, wanted.offset)
        except KafkaError as error:
            error_code = error.code
        return make.DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error_code
        )

    return make.DeleteRecordsResponse(
        topics=tuple(
            make.DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(delete_one(topic.name, each) for each in topic.partitions)
            )
            for topic in message.topics
        )
    )


def _delete(broker: BrokerContext, topic: str, index: int, offset: int) -> int:
    partition = locate(broker, topic, index)
    if "delete" not in partition.config.cleanup_policy:
        raise PolicyViolation("records of a topic that is only compacted cannot be deleted")
    return partition.delete_records(offset)
