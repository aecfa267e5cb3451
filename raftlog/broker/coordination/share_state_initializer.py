"""Asks the share coordinators to initialize the states of a share group's partitions (KIP-932).

Requests are sent to all coordinators at once, and a response names each partition. Initializing a state again has no
effect, so whatever fails is left to the next attempt.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import NONE, KafkaError
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.coordinator.share.share_heartbeat import ShareStatesReady, ShareStateWork
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders

API_KEY: Final = ApiKey.INITIALIZE_SHARE_GROUP_STATE
VERSION: Final = 0

PARTITIONS_PER_REQUEST: Final = 1_000


async def initialize_states(
    broker: LocalBroker, work: ShareStateWork, leader_of: Callable[[SharePartitionKey], int]
) -> ShareStatesReady:
    """Return the partitions whose states are initialized now."""
    by_broker: defaultdict[int, list[SharePartitionKey]] = defaultdict(list)

    def route(key: SharePartitionKey) -> None:
        try:
            by_broker[leader_of(key)].append(key)
        except KafkaError:
            return

    await each_part(broker.env, _keys(work), route)
    requests = [
        _initialize(broker, work, broker_id, keys)
        for broker_id, all_keys in by_broker.items()
        for keys in _slices(all_keys)
    ]
    done: defaultdict[UUID, set[int]] = defaultdict(set)
    for initialized in await asyncio.gather(*requests):
        for topic_id, index in initialized:
            done[topic_id].add(index)
    return ShareStatesReady(work.group_id, {topic_id: frozenset(each) for topic_id, each in done.items()})


def _keys(work: ShareStateWork) -> Iterator[SharePartitionKey]:
    for topic_id, (partitions, _) in work.topics.items():
        for index in sorted(partitions):
            yield SharePartitionKey(work.group_id, topic_id, index)


def _slices(keys: Iterable[SharePartitionKey]) -> Iterator[list[SharePartitionKey]]:
    rest = iter(keys)
    while some := list(islice(rest, PARTITIONS_PER_REQUEST)):
        yield some


async def _initialize(
    broker: LocalBroker, work: ShareStateWork, broker_id: int, keys: list[SharePartitionKey]
) -> list[tuple[UUID, int]]:
    """Return what a broker has initialized: topic ids and partitions."""
    assert broker.links is not None, "the broker server provides it"
    message = _request(work, keys)
    within_s = broker.config.share_coordinator_write_timeout_ms / 1000
    try:
        answer = await broker.links.ask(broker_id, API_KEY, VERSION, message, timeout_s=within_s)
    except KafkaError:
        return []
    return [
        (topic.topic_id, int(each.partition))
        for topic in answer.results
        for each in topic.partitions
        if each.error_code == NONE
    ]


def _request(work: ShareStateWork, keys: list[SharePartitionKey]) -> Any:
    make = request_builders(API_KEY, VERSION)
    starts: Mapping[UUID, int] = {topic_id: start for topic_id, (_, start) in work.topics.items()}
    return make.InitializeShareGroupStateRequest(
        group_id=work.group_id,
        topics=tuple(
            make.InitializeStateData(
                topic_id=topic_id,
                partitions=tuple(
                    make.PartitionData(
                        partition=each.partition, state_epoch=work.state_epoch, start_offset=starts[topic_id]
                    )
                    for each in of_topic
                ),
            )
            for topic_id, of_topic in groupby(keys, key=lambda each: each.topic_id)
        ),
    )
