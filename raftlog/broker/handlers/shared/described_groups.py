"""The parts that ConsumerGroupDescribe and ShareGroupDescribe share: assignments, and how much a response has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from raftlog.broker.context import BrokerContext
from raftlog.broker.long_work.turns import drawn
from raftlog.coordinator.consumer.consumer_membership import Partitions

MAX_MEMBERS: Final = 20_000
"""The limit of members and their topics in a response. The group that reaches it is still included."""

NAMES_PER_PART: Final = 10
"""Subscribed topic names that count as one part: they are returned without a lookup."""


async def described_assignment(broker: BrokerContext, make: Any, partitions: Partitions) -> Any:
    """A deleted topic no longer has a name, and is left out."""

    image = broker.image()

    def topic(topic_id: UUID, indexes: Iterable[int]) -> Any:
        name = image.topic_names.get(topic_id)
        if name is None:
            return None
        return make.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=tuple(sorted(indexes)))

    topics = await drawn(broker.env, (topic(*each) for each in partitions.items()))
    return make.Assignment(topic_partitions=topics)
