"""DescribeLogDirs 1-5: this broker's log directories, what is in them and what still fits (KIP-113, KIP-827)."""

from __future__ import annotations

import functools
from typing import Any, Final

from raftlog.base.errors import NONE, KafkaStorageError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.DESCRIBE_LOG_DIRS

UNKNOWN_BYTES: Final = -1


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer for the partitions asked for, None meaning all; every directory is told of, also an empty one."""
    make = response_shapes(API_KEY, request.api_version)
    found = _by_directory(broker, make, _asked(message))
    results = []
    for path in broker.config.log_dirs:
        code, total, usable = await _space(broker, path)
        results.append(
            make.DescribeLogDirsResult(
                error_code=code,
                log_dir=path,
                topics=tuple(
                    make.DescribeLogDirsTopic(name=topic, partitions=tuple(partitions))
                    for topic, partitions in found.get(path.rstrip("/"), {}).items()
                ),
                total_bytes=total,
                usable_bytes=usable,
            )
        )
    return make.DescribeLogDirsResponse(throttle_time=0, error_code=NONE, results=tuple(results))


def _asked(message: Any) -> set[tuple[str, int]] | None:
    if message.topics is None:
        return None
    return {(topic.topic, index) for topic in message.topics for index in topic.partitions}


def _by_directory(
    broker: BrokerContext, make: Any, asked: set[tuple[str, int]] | None
) -> dict[str, dict[str, list[Any]]]:
    """Return directory → topic → partitions of the replicas that have a log."""
    found: dict[str, dict[str, list[Any]]] = {}
    for name, partition in sorted(broker.replicas.partitions.items()):
        log = partition.log
        if log is None or (asked is not None and name not in asked):
            continue
        parent = log.directory.rpartition("/")[0]
        found.setdefault(parent, {}).setdefault(name.topic, []).append(
            make.DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=log.size_bytes,
                offset_lag=max(0, partition.high_watermark - partition.log_end_offset),
                is_future_key=False,
            )
        )
    return found


async def _space(broker: BrokerContext, path: str) -> tuple[int, int, int]:
    """Return (error code, total bytes, usable bytes); asking a sick disk may block, so it is asked off the loop."""
    try:
        total, usable = await broker.env.offload(functools.partial(broker.env.disk.free_bytes, path))
    except OSError:
        return KafkaStorageError.code, UNKNOWN_BYTES, UNKNOWN_BYTES
    return NONE, total, usable
