"""AlterPartitionReassignments 0-1: have other replicas hold a partition, or cancel that (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.asking import ask, published, shown
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.requests import AlterReassignments, PartitionResult, PartitionResults, Reassignment
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.ALTER_PARTITION_REASSIGNMENTS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller begin or cancel reassignments, and wait until this broker knows of those that it did."""
    wanted = tuple(
        Reassignment(topic.name, each.partition_index, each.replicas)
        for topic in message.topics
        for each in topic.partitions
    )
    factor_may_change = getattr(message, "allow_replication_factor_change", True)
    asked_for = AlterReassignments(wanted, factor_may_change)
    reply = await ask(broker, asked_for, PartitionResults, timeout_ms=message.timeout)
    failed = {(each.topic, each.partition) for each in reply.results if each.error_code}
    done = [each for each in wanted if (each.topic, each.partition) not in failed]
    await published(broker, lambda image: all(_shows(image, each) for each in done))
    return _response(request, factor_may_change, reply.results)


def _shows(image: MetadataImage, wanted: Reassignment) -> bool:
    state = image.partition(wanted.topic, wanted.partition)
    if state is None:
        return True  # deleted meanwhile
    return not state.is_reassigned if wanted.replicas is None else state.target == wanted.replicas


def _response(request: RequestContext, factor_may_change: bool, results: tuple[PartitionResult, ...]) -> Any:
    make = response_shapes(API_KEY, request.api_version)
    by_topic: dict[str, list[Any]] = {}
    for each in results:
        by_topic.setdefault(each.topic, []).append(
            make.ReassignablePartitionResponse(
                partition_index=each.partition,
                error_code=each.error_code,
                error_message=shown(each.error_message),
            )
        )
    return make.AlterPartitionReassignmentsResponse(
        throttle_time=0,
        allow_replication_factor_change=factor_may_change,
        error_code=0,
        error_message=None,
        responses=tuple(
            make.ReassignableTopicResponse(name=name, partitions=tuple(found))
            for name, found in by_topic.items()
        ),
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """The request failed as a whole."""
    make = response_shapes(API_KEY, request.api_version)
    return make.AlterPartitionReassignmentsResponse(
        throttle_time=0, error_code=error.code, error_message=shown(error.message), responses=()
    )
