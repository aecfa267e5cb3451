"""DescribeShareGroupOffsets 0-1: where share groups are in their partitions, and with v1 how far behind (KIP-1226)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import NONE, CoordinatorLoadInProgress, KafkaError
from raftlog.base.types import NO_OFFSET, TopicPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.group_share_states import SUMMARY_QUESTION
from raftlog.broker.handlers.shared.end_offsets import end_offsets
from raftlog.broker.handlers.shared.share_changes import ask_share_coordinators
from raftlog.broker.long_work.turns import Weighed
from raftlog.broker.rights import GROUP, TOPIC, among, demand, refusal
from raftlog.coordinator.share_state.share_state import NO_COUNT, SharePartitionKey
from raftlog.metadata.features import check_share_version
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS

FIRST_LAG_VERSION: Final = 1

MAX_OFFSETS: Final = 20_000
"""The limit of offsets in a response. The group that reaches it is still included."""

NOTHING: Final[Mapping[str, Any]] = {"start_offset": NO_OFFSET, "leader_epoch": 0}
"""The fields of a partition without a state, as in Apache Kafka."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    answered = 0

    async def described(asked: Any) -> Any:
        nonlocal answered
        try:
            check_share_version(broker.image())
            demand(broker, request, Operation.DESCRIBE, GROUP, asked.group_id)
            if answered >= MAX_OFFSETS:
                raise CoordinatorLoadInProgress("the response is full; describe this group again")
            group, size = await _group(broker, request, asked)
        except KafkaError as error:
            return _failed(make, asked.group_id, error)
        answered += size
        return Weighed(group, 1 + size)

    return make.DescribeShareGroupOffsetsResponse(
        groups=(described(each) for each in dict.fromkeys(message.groups))
    )


async def _group(broker: BrokerContext, request: RequestContext, asked: Any) -> tuple[Any, int]:
    """Return a group, and how many partitions it names. Raises KafkaError."""
    make, image = response_builders(API_KEY, request.api_version), broker.image()
    wanted = await _wanted(broker, image, asked)
    allowed = await among(
        broker, request, Operation.DESCRIBE, TOPIC, wanted, log_if_denied=asked.topics is not None
    )
    known = {image.topics[name].topic_id: name for name in wanted if name in allowed and name in image.topics}
    keys = tuple(
        SharePartitionKey(asked.group_id, topic_id, each)
        for topic_id, name in known.items()
        for each in wanted[name]
        if 0 <= each < len(image.topics[name].partitions)  # others have no state to ask for
    )
    states = await ask_share_coordinators(broker, SUMMARY_QUESTION, keys)
    rows = await _rows(broker, request, known, states)
    topics = [
        _topic(make, name, topic_id, {each: rows.get((topic_id, each), NOTHING) for each in wanted[name]})
        for topic_id, name in known.items()
    ]
    unknown = [name for name in wanted if name in allowed and name not in image.topics]
    topics += [_topic(make, name, None, dict.fromkeys(wanted[name], NOTHING)) for name in unknown]
    if asked.topics is not None:  # otherwise topics that the client may not see are left out
        denied = [name for name in wanted if name not in allowed]
        topics += [
            _topic(make, name, None, dict.fromkeys(wanted[name], _error(refusal(TOPIC)))) for name in denied
        ]
    group = make.DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=(each for each in topics), error_code=NONE
    )
    return group, sum(map(len, wanted.values()))


async def _wanted(broker: BrokerContext, image: MetadataImage, asked: Any) -> dict[str, tuple[int, ...]]:
    """Return the partitions to describe by topic: those with a state, if the request names none."""
    if asked.topics is not None:
        wanted: dict[str, dict[int, None]] = {}
        for topic in asked.topics:
            wanted.setdefault(topic.topic_name, {}).update(dict.fromkeys(map(int, topic.partitions)))
        return {name: tuple(indexes) for name, indexes in wanted.items()}
    group = await broker.groups.read(asked.group_id)
    if group.share is None:
        return {}
    return {
        image.topic_names[topic_id]: tuple(sorted(it.partitions))
        for topic_id, it in group.share.states.initialized.items()
        if topic_id in image.topic_names
    }


async def _rows(
    broker: BrokerContext,
    request: RequestContext,
    known: Mapping[UUID, str],
    states: Mapping[SharePartitionKey, Any],
) -> dict[tuple[UUID, int], dict[str, Any]]:
    """Return the fields of each partition with a state. What share coordinators do not answer counts as none."""
    summaries = {key: each for key, each in states.items() if not isinstance(each, KafkaError)}
    measured = [
        key
        for key, each in summaries.items()
        if each.start_offset != NO_OFFSET and each.delivery_complete_count != NO_COUNT
    ]
    ends: Mapping[TopicPartition, int | KafkaError] = {}
    if request.api_version >= FIRST_LAG_VERSION:
        ends = await end_offsets(
            broker, [TopicPartition(known[key.topic_id], key.partition) for key in measured]
        )
    rows: dict[tuple[UUID, int], dict[str, Any]] = {}
    for key, each in summaries.items():
        row = {"start_offset": each.start_offset, "leader_epoch": each.leader_epoch}
        end = ends.get(TopicPartition(known[key.topic_id], key.partition))
        if isinstance(end, KafkaError):
            row |= _error(end)
        elif end is not None:
            row["lag"] = max(end - each.start_offset - each.delivery_complete_count, 0)
        rows[key.topic_id, key.partition] = row
    return rows


def _topic(make: Any, name: str, topic_id: UUID | None, rows: Mapping[int, Mapping[str, Any]]) -> Any:
    return make.DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        partitions=(
            make.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, **{"error_code": NONE, "error_message": None, **row}
            )
            for index, row in rows.items()
        ),
    )


def _error(error: KafkaError) -> dict[str, Any]:
    return {**NOTHING, "error_code": error.code, "error_message": error.message}


def _failed(make: Any, group_id: str, error: KafkaError) -> Any:
    return make.DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=(), error_code=error.code, error_message=error.message
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error for each group."""
    make = response_builders(API_KEY, request.api_version)
    return make.DescribeShareGroupOffsetsResponse(
        groups=(_failed(make, each.group_id, error) for each in message.groups)
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=DemandedPerPart(
        (Right(Operation.DESCRIBE, ResourceType.GROUP), Right(Operation.DESCRIBE, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
