"""DescribeShareGroupOffsets 0-1: where share groups are in their partitions, and with v1 how far behind (KIP-1226).

A node's admin API also requests what a broker knows of deliveries, in a private field. Other clients do not get it: the
admin API hides topics from users without the right to see them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from raftlog.base.errors import NONE, CoordinatorLoadInProgress, InvalidRequest, KafkaError
from raftlog.base.share_deliveries import DeliveriesQuestion
from raftlog.base.turns import in_slices
from raftlog.base.types import NO_OFFSET, TopicPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.group_share_states import SUMMARY_QUESTION
from raftlog.broker.handlers.shared.end_offsets import end_offsets
from raftlog.broker.handlers.shared.share_changes import ask_share_coordinators
from raftlog.broker.handlers.shared.share_deliveries import describe_deliveries
from raftlog.broker.long_work.turns import Weighed, each_part
from raftlog.broker.rights import GROUP, TOPIC, among, demand, refusal
from raftlog.coordinator.share_state.share_state import NO_COUNT, SharePartitionKey
from raftlog.metadata.features import check_share_version
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ADMIN_API, DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS

FIRST_LAG_VERSION: Final = 1

MAX_OFFSETS: Final = 20_000
"""The limit of offsets in a response. The group that reaches it is still included."""

NOTHING: Final[Mapping[str, Any]] = {"start_offset": NO_OFFSET, "leader_epoch": 0}
"""The fields of a partition without a state, as in Apache Kafka."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    is_admin = request.has_all_rights or request.principal == ADMIN_API
    if is_admin and (question := getattr(message, "about_deliveries", b"")):
        try:
            asked = msgspec.json.decode(question, type=DeliveriesQuestion)
        except msgspec.MsgspecError as error:
            raise InvalidRequest("the question about deliveries is none") from error
        found = await describe_deliveries(broker, asked)
        return make.DescribeShareGroupOffsetsResponse(groups=(), deliveries=msgspec.json.encode(found))
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
    known = {
        topic.topic_id: name
        async for name in in_slices(broker.env, wanted)
        if name in allowed and (topic := image.topics.get(name)) is not None
    }
    keys: list[SharePartitionKey] = []

    def ask(topic_id: UUID, name: str, index: int) -> None:
        if 0 <= index < len(image.topics[name].partitions):  # others have no state to ask for
            keys.append(SharePartitionKey(asked.group_id, topic_id, index))

    named = ((topic_id, name, each) for topic_id, name in known.items() for each in wanted[name])
    await each_part(broker.env, named, lambda each: ask(*each))
    states = await ask_share_coordinators(broker, SUMMARY_QUESTION, tuple(keys))
    rows = await _rows(broker, request, known, states)

    def topics() -> Iterator[Any]:  # None counts as a part, and is left out
        for topic_id, name in known.items():
            found = ((each, rows.get((topic_id, each), NOTHING)) for each in wanted[name])
            yield _topic(make, name, topic_id, found)
        for name, indexes in wanted.items():
            if name in allowed and name not in image.topics:
                yield _topic(make, name, None, dict.fromkeys(indexes, NOTHING).items())
            elif name not in allowed and asked.topics is not None:  # otherwise they are left out
                yield _topic(make, name, None, dict.fromkeys(indexes, _error(refusal(TOPIC))).items())
            else:
                yield None

    group = make.DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=topics(), error_code=NONE
    )
    return group, sum(map(len, wanted.values()))


async def _wanted(broker: BrokerContext, image: MetadataImage, asked: Any) -> Mapping[str, Collection[int]]:
    """Return the partitions to describe by topic: those with a state, if the request names none."""
    if asked.topics is not None:
        wanted: dict[str, dict[int, None]] = {}

        def want(topic: Any) -> None:
            wanted.setdefault(topic.topic_name, {}).update(dict.fromkeys(map(int, topic.partitions)))

        await each_part(broker.env, asked.topics, want)
        return wanted
    group = await broker.groups.read(asked.group_id)
    if group.share is None:
        return {}
    held = group.share.states.initialized.items()
    return {
        name: tuple(sorted(it.partitions))
        async for topic_id, it in in_slices(broker.env, held)
        if (name := image.topic_names.get(topic_id)) is not None
    }


async def _rows(
    broker: BrokerContext,
    request: RequestContext,
    known: Mapping[UUID, str],
    states: Mapping[SharePartitionKey, Any],
) -> dict[tuple[UUID, int], dict[str, Any]]:
    """Return the fields of each partition with a state.

    A partition without an answer of its share coordinator is left out.
    """
    measured: list[SharePartitionKey] = []

    def measure(key: SharePartitionKey, each: Any) -> None:
        if isinstance(each, KafkaError) or request.api_version < FIRST_LAG_VERSION:
            return
        if each.start_offset != NO_OFFSET and each.delivery_complete_count != NO_COUNT:
            measured.append(key)

    await each_part(broker.env, states.items(), lambda each: measure(*each))
    ends: Mapping[TopicPartition, int | KafkaError] = {}
    if measured:
        ends = await end_offsets(
            broker, [TopicPartition(known[key.topic_id], key.partition) for key in measured]
        )
    rows: dict[tuple[UUID, int], dict[str, Any]] = {}

    def note(key: SharePartitionKey, each: Any) -> None:
        if isinstance(each, KafkaError):
            return
        row = {"start_offset": each.start_offset, "leader_epoch": each.leader_epoch}
        end = ends.get(TopicPartition(known[key.topic_id], key.partition))
        if isinstance(end, KafkaError):
            row |= _error(end)
        elif end is not None:
            row["lag"] = max(end - each.start_offset - each.delivery_complete_count, 0)
        rows[key.topic_id, key.partition] = row

    await each_part(broker.env, states.items(), lambda each: note(*each))
    return rows


def _topic(make: Any, name: str, topic_id: UUID | None, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Any:
    return make.DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        partitions=(
            make.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, **{"error_code": NONE, "error_message": None, **row}
            )
            for index, row in rows
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
