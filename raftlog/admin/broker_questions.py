"""Requests to brokers that several resources need, and finding the leader or coordinator to send them to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from raftlog.admin.errors import check
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.route import Call
from raftlog.base.errors import LeaderNotAvailable, UnknownTopicOrPartition
from raftlog.base.types import NO_BROKER
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for

Where = tuple[str, int]
"""(topic, partition)."""

SPECIAL: Final = {"earliest": -2, "latest": -1}
"""Timestamps of ListOffsets that stand for offsets."""
REQUEST_TIMEOUT_MS: Final = 10_000
GROUP: Final = 0
"""The key type of a group at FindCoordinator."""


def by_leader(call: Call, wanted: Iterable[Where]) -> tuple[dict[int, list[Where]], dict[Where, int]]:
    """Return partitions by their leaders, and the error code of each that has none."""
    image = call.node.image()
    leaders: defaultdict[int, list[Where]] = defaultdict(list)
    errors = {}
    for where in wanted:
        state = image.partition(*where)
        if state is None:
            errors[where] = UnknownTopicOrPartition.code
        elif state.leader == NO_BROKER:
            errors[where] = LeaderNotAvailable.code
        else:
            leaders[state.leader].append(where)
    return dict(leaders), errors


async def list_offsets(
    call: Call, wanted: Mapping[Where, int], *, read_committed: bool = False
) -> dict[Where, tuple[int, int]]:
    """Return (error code, offset) of each partition at its timestamp (-2 earliest, -1 latest, else ms)."""
    leaders, errors = by_leader(call, wanted)
    found = {where: (code, -1) for where, code in errors.items()}

    async def ask(leader: int, partitions: list[Where]) -> None:
        request = _list_offsets_request({where: wanted[where] for where in partitions}, read_committed)
        try:
            response = await call.asker.ask(ApiKey.LIST_OFFSETS, request, broker_id=leader)
        except BrokerUnreachable:
            found.update(dict.fromkeys(partitions, (LeaderNotAvailable.code, -1)))
            return
        for topic in response.topics:
            for each in topic.partitions:
                found[topic.name, each.partition_index] = (of_leader(each.error_code), each.offset)

    await asyncio.gather(*(ask(leader, partitions) for leader, partitions in leaders.items()))
    return found


def of_leader(error_code: int) -> int:
    """Return a leader's error code; an unknown partition means that the leader has not applied its metadata yet, which
    is temporary.
    """
    return LeaderNotAvailable.code if error_code == UnknownTopicOrPartition.code else error_code


def _list_offsets_request(wanted: Mapping[Where, int], read_committed: bool) -> Any:
    make = builders_for(ApiKey.LIST_OFFSETS)
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for (topic, partition), timestamp in wanted.items():
        topics[topic].append(
            make.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
        )
    return make.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=tuple(
            make.ListOffsetsTopic(name=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


async def fetch(
    call: Call, topic: str, starts: Mapping[int, int], *, leader: int, max_bytes: int, wait_ms: int = 0
) -> dict[int, Any]:
    """Return what a leader has of some partitions from their offsets on; `max_bytes` of all. Raises ApiError."""
    make = builders_for(ApiKey.FETCH)
    wanted = tuple(
        make.FetchPartition(
            partition=index,
            current_leader_epoch=-1,
            fetch_offset=start,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        for index, start in starts.items()
    )
    request = make.FetchRequest(
        replica_id=-1,
        max_wait=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(make.FetchTopic(topic=topic, partitions=wanted),),
        forgotten_topics_data=(),
        rack_id="",
    )
    response = await call.asker.ask(ApiKey.FETCH, request, broker_id=leader)
    check(response.error_code, about=topic)
    return {each.partition_index: each for each in response.responses[0].partitions}


async def coordinator_of(call: Call, group_id: str) -> int:
    """Return the broker that coordinates a group. Raises ApiError."""
    make = builders_for(ApiKey.FIND_COORDINATOR)
    request = make.FindCoordinatorRequest(key=group_id, key_type=GROUP)
    response = await call.asker.ask(ApiKey.FIND_COORDINATOR, request)
    check(response.error_code, response.error_message, about=f"group {group_id}")
    return int(response.node_id)


async def of_all_brokers(call: Call, api_key: int, message: Any) -> list[tuple[int, Any]]:
    """Return (broker id, response) of every live broker that answers; skip the others."""
    live = sorted(each for each, state in call.node.image().brokers.items() if not state.fenced)
    answers = await asyncio.gather(
        *(call.asker.ask(api_key, message, broker_id=each) for each in live), return_exceptions=True
    )
    found = []
    for broker_id, answer in zip(live, answers, strict=True):
        if isinstance(answer, BrokerUnreachable):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found.append((broker_id, answer))
    if live and not found:
        raise BrokerUnreachable("no broker responded")
    return found
