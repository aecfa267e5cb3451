"""DescribeLogDirs 1-5: this broker's log directories, their contents and free space (KIP-113, KIP-827, KIP-1066)."""

from __future__ import annotations

import functools
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import NONE, KafkaError, KafkaStorageError
from raftlog.base.types import TopicPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import each_part, partitions_by_topic
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DESCRIBE_CLUSTER

if TYPE_CHECKING:
    from raftlog.broker.replicas.log_directories import LogVolume

API_KEY: Final = ApiKey.DESCRIBE_LOG_DIRS

UNKNOWN_BYTES: Final = -1
CORDONED_SINCE: Final = 5
"""The version that says which directories are cordoned (KIP-1066)."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond for the requested partitions, or for all with None.

    Every directory is included, also an empty directory.
    """
    make = response_builders(API_KEY, request.api_version)
    asked = await _asked(broker, message)
    results = (_result(broker, request.api_version, volume, asked) for volume in broker.replicas.logs.volumes)
    return make.DescribeLogDirsResponse(throttle_time=0, error_code=NONE, results=results)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return no directories. Before version 3 there is no error field, as in Kafka."""
    make = response_builders(API_KEY, request.api_version)
    return make.DescribeLogDirsResponse(throttle_time=0, error_code=error.code, results=())


async def _asked(broker: BrokerContext, message: Any) -> set[tuple[str, int]] | None:
    if message.topics is None:
        return None
    asked = await partitions_by_topic(
        broker.env, ((topic.topic, topic.partitions) for topic in message.topics)
    )
    return {(name, index) for name, indexes in asked.items() for index in indexes}


async def _result(
    broker: BrokerContext, version: int, volume: LogVolume, asked: set[tuple[str, int]] | None
) -> Any:
    make = response_builders(API_KEY, version)
    code, total, usable = await _space(broker, volume)
    if code:
        return make.DescribeLogDirsResult(error_code=code, log_dir=volume.path)
    by_topic: dict[str, list[Any]] = {}

    def add(name: TopicPartition, log: Any) -> None:
        partition = broker.replicas.partitions.get(name)
        if partition is None or (asked is not None and name not in asked):
            return
        by_topic.setdefault(name.topic, []).append(
            make.DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=log.size_bytes,
                offset_lag=max(0, partition.high_watermark - log.log_end_offset),
                is_future_key=False,
            )
        )

    await each_part(broker.env, tuple(volume.logs.items()), lambda each: add(*each))
    cordoned = (
        {"is_cordoned": volume.path in broker.replicas.logs.cordoned} if version >= CORDONED_SINCE else {}
    )
    topics = (
        make.DescribeLogDirsTopic(
            name=name, partitions=tuple(sorted(by_topic[name], key=attrgetter("partition_index")))
        )
        for name in sorted(by_topic)
    )
    return make.DescribeLogDirsResult(
        error_code=NONE,
        log_dir=volume.path,
        topics=topics,
        total_bytes=total,
        usable_bytes=usable,
        **cordoned,
    )


async def _space(broker: BrokerContext, volume: LogVolume) -> tuple[int, int, int]:
    """Return (error code, total bytes, usable bytes). A failing disk may hang, so this runs off the loop."""
    if volume.error is not None:
        return KafkaStorageError.code, UNKNOWN_BYTES, UNKNOWN_BYTES
    try:
        total, usable = await broker.env.offload(functools.partial(broker.env.disk.free_bytes, volume.path))
    except OSError:
        return KafkaStorageError.code, UNKNOWN_BYTES, UNKNOWN_BYTES
    # a quota, or blocks kept for root: the disk that has just refused a write has no room, whatever is free on it
    return NONE, total, 0 if volume.full else usable


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=DESCRIBE_CLUSTER,
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
