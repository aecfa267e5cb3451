"""The end offsets of partitions, which other brokers may lead."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from raftlog.base.errors import NONE, KafkaError, LeaderNotAvailable, from_code
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.broker.context import BrokerContext
from raftlog.broker.long_work.turns import batches, each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders

VERSION: Final = 7
PARTITIONS_PER_REQUEST: Final = 1_000

LATEST: Final = -1
"""The timestamp that asks for the high watermark."""

ANSWERED_S: Final = 5.0


async def end_offsets(
    broker: BrokerContext, partitions: list[TopicPartition]
) -> Mapping[TopicPartition, int | KafkaError]:
    """Return the high watermark of each partition by its leader, or why it is not known. `partitions` come by topic."""
    image = broker.image()
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    found: dict[TopicPartition, int | KafkaError] = {}

    def route(each: TopicPartition) -> None:
        state = image.partition(each.topic, each.partition)
        if state is None or state.leader == NO_BROKER:
            found[each] = LeaderNotAvailable("the partition has no leader")
        else:
            by_leader[state.leader].append(each)

    await each_part(broker.env, partitions, route)
    requests = [
        _ask(broker, leader, some)
        for leader, of_leader in by_leader.items()
        for some in batches(of_leader, PARTITIONS_PER_REQUEST)
    ]
    for answered in await asyncio.gather(*requests):
        found |= answered
    return found


async def _ask(
    broker: BrokerContext, leader: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int | KafkaError]:
    assert broker.links is not None, "the broker server provides it"
    try:
        answer = await broker.links.ask(
            leader, ApiKey.LIST_OFFSETS, VERSION, _request(partitions), timeout_s=ANSWERED_S
        )
    except KafkaError as error:
        return dict.fromkeys(partitions, error)
    return {
        TopicPartition(topic.name, int(each.partition_index)): int(each.offset)
        if each.error_code == NONE
        else from_code(int(each.error_code))
        for topic in answer.topics
        for each in topic.partitions
    }


def _request(partitions: Sequence[TopicPartition]) -> Any:
    make = request_builders(ApiKey.LIST_OFFSETS, VERSION)
    topics = tuple(
        make.ListOffsetsTopic(
            name=name,
            partitions=tuple(
                make.ListOffsetsPartition(
                    partition_index=each.partition, current_leader_epoch=-1, timestamp=LATEST
                )
                for each in of_topic
            ),
        )
        for name, of_topic in groupby(partitions, key=lambda each: each.topic)
    )
    return make.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
