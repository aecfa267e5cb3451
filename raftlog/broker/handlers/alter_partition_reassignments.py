"""AlterPartitionReassignments 0-1: move a partition to other replicas, or cancel that (KIP-455, KIP-860)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from raftlog.base.errors import InvalidRequest, KafkaError
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audited_changes import named_partitions
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask_in_parts, truncate_message, wait_for_image
from raftlog.broker.long_work.turns import each_part, grouped_by_topic
from raftlog.metadata.controller_api import (
    AlterReassignments,
    PartitionResult,
    PartitionResults,
    Reassignment,
)
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ALTER_CLUSTER

API_KEY: Final = ApiKey.ALTER_PARTITION_REASSIGNMENTS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Have the controller begin or cancel reassignments, and wait until this broker's image shows them."""
    may_change = getattr(message, "allow_replication_factor_change", True)
    results, wanted = await _checked(broker, message)
    asked = ask_in_parts(
        broker,
        wanted,
        lambda some: AlterReassignments(some, may_change),
        PartitionResults,
        timeout_ms=message.timeout,
    )
    async for some, reply in asked:
        if isinstance(reply, KafkaError):
            if len(some) == len(wanted):
                raise reply
            results += [
                PartitionResult(each.topic, each.partition, reply.code, reply.message) for each in some
            ]
            continue
        results += reply.results
        failed = {(each.topic, each.partition) for each in reply.results if each.error_code}
        done = [each for each in some if (each.topic, each.partition) not in failed]
        await wait_for_image(broker, partial(_all_shown, done))
    return await _response(broker, request, may_change, results)


async def _checked(broker: BrokerContext, message: Any) -> tuple[list[PartitionResult], list[Reassignment]]:
    """Return the partitions refused already, each once, and the request for the controller."""
    named: dict[tuple[str, int], Reassignment | None] = {}

    def add(topic: str, each: Any) -> None:
        tp = (topic, each.partition_index)
        named[tp] = None if tp in named else Reassignment(*tp, each.replicas)

    rows = ((topic.name, each) for topic in message.topics for each in topic.partitions)
    await each_part(broker.env, rows, lambda row: add(*row))
    twice = "the partition is named more than once in this request"
    refused = [PartitionResult(*tp, InvalidRequest.code, twice) for tp, each in named.items() if each is None]
    return refused, [each for each in named.values() if each is not None]


def _all_shown(done: list[Reassignment], image: MetadataImage) -> bool:
    return all(_shows(image, each) for each in done)


def _shows(image: MetadataImage, wanted: Reassignment) -> bool:
    state = image.partition(wanted.topic, wanted.partition)
    if state is None:
        return True  # deleted meanwhile
    return not state.is_reassigned if wanted.replicas is None else state.target_replicas == wanted.replicas


async def _response(
    broker: BrokerContext, request: RequestContext, may_change: bool, results: list[PartitionResult]
) -> Any:
    make = response_builders(API_KEY, request.api_version)
    by_topic = await grouped_by_topic(broker.env, results)
    topics = (
        make.ReassignableTopicResponse(name=name, partitions=(_partition(make, each) for each in found))
        for name, found in by_topic.items()
    )
    return make.AlterPartitionReassignmentsResponse(
        throttle_time=0,
        allow_replication_factor_change=may_change,
        error_code=0,
        error_message=None,
        responses=topics,
    )


def _partition(make: Any, result: PartitionResult) -> Any:
    return make.ReassignablePartitionResponse(
        partition_index=result.partition,
        error_code=result.error_code,
        error_message=truncate_message(result.error_message),
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=ALTER_CLUSTER,
    max_parts=IN_TURNS,
    audit=Change(
        lambda _, response: named_partitions(response.responses, "name", "partitions", "partition_index")
    ),
    controllers=True,
)
