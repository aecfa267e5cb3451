"""The common part of ConsumerGroupHeartbeat and ShareGroupHeartbeat: authorization of topics, and the assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.coordinator.consumer.consumer_membership import Partitions
from raftlog.security.acls import Operation


async def check_subscription(
    broker: BrokerContext, request: RequestContext, topics: Sequence[str] | None
) -> None:
    """Raise TopicAuthorizationFailed if the sender may not describe all the topics that a member subscribes to."""
    names = frozenset(topics or ())
    if await among(broker, request, Operation.DESCRIBE, TOPIC, names, log_if_denied=True) != names:
        raise refusal(TOPIC)


def assignment_field(make: Any, assignment: Partitions | None) -> Any:
    """Return the assignment for a response; None if it is unchanged."""
    if assignment is None:
        return None
    return make.Assignment(
        topic_partitions=tuple(
            make.TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(indexes)))
            for topic_id, indexes in assignment.items()
        )
    )
