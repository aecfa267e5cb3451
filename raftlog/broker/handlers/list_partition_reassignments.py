"""ListPartitionReassignments 0: which partitions are being moved, as the active controller knows it (KIP-455)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import KafkaError
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import ask, ask_in_parts
from raftlog.broker.long_work.turns import grouped_by_topic, partitions_by_topic
from raftlog.metadata.controller_api import (
    ListReassignments,
    OngoingReassignment,
    OngoingReassignments,
)
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DESCRIBE_CLUSTER

API_KEY: Final = ApiKey.LIST_PARTITION_REASSIGNMENTS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Send the request to the controller.

    Partitions that do not exist or do not move are skipped, as in Apache Kafka.
    """
    make = response_builders(API_KEY, request.api_version)
    by_topic = await grouped_by_topic(broker.env, await _ongoing(broker, message))
    return make.ListPartitionReassignmentsResponse(
        throttle_time=0,
        error_code=0,
        error_message=None,
        topics=(
            make.OngoingTopicReassignment(name=name, partitions=(_partition(make, each) for each in found))
            for name, found in by_topic.items()
        ),
    )


def _partition(make: Any, ongoing: OngoingReassignment) -> Any:
    return make.OngoingPartitionReassignment(
        partition_index=ongoing.partition,
        replicas=ongoing.replicas,
        adding_replicas=ongoing.adding,
        removing_replicas=ongoing.removing,
    )


async def _ongoing(broker: BrokerContext, message: Any) -> list[OngoingReassignment]:
    """Return the ongoing reassignments of the requested partitions, each once. None requests all."""
    if message.topics is None:
        asked_for_all = ListReassignments(None)
        reply = await ask(broker, asked_for_all, OngoingReassignments, timeout_ms=message.timeout)
        return list(reply.reassignments)
    asked_for = await partitions_by_topic(
        broker.env, ((topic.name, topic.partition_indexes) for topic in message.topics)
    )
    topic_partitions = [(name, index) for name, indexes in asked_for.items() for index in indexes]
    found: list[OngoingReassignment] = []
    asked = ask_in_parts(
        broker, topic_partitions, ListReassignments, OngoingReassignments, timeout_ms=message.timeout
    )
    async for _, each in asked:
        if isinstance(each, KafkaError):
            raise each
        found += each.reassignments
    return found


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DESCRIBE_CLUSTER,
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=True,
)
