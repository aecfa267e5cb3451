"""AlterShareGroupOffsets 0: set where a share group without members begins to read (KIP-932).

The group may be new. Its former records in flight are forgotten: their leaders are fenced by the new state epoch.

A node's admin API also has the leader of a partition release or archive records by hand, in a private field. Other
clients cannot: a member's records are its own for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from raftlog.base.errors import NONE, InvalidRequest, KafkaError, UnknownTopicOrPartition
from raftlog.base.share_deliveries import HandAcknowledgement
from raftlog.base.turns import in_slices
from raftlog.base.types import NO_OFFSET
from raftlog.broker.api import IN_TURNS, Api, Change
from raftlog.broker.audit import Outcome
from raftlog.broker.audited_changes import named_partitions
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.group_share_states import Outcomes
from raftlog.broker.handlers.shared.share_by_hand import acknowledge_by_hand
from raftlog.broker.handlers.shared.share_changes import carry_out
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.rights import TOPIC, among, refusal
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.share.share_offsets import AlterShareOffsets, ShareStateChange
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.metadata.features import check_share_version
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ADMIN_API, Demanded, Operation, ResourceType, Right

API_KEY: Final = ApiKey.ALTER_SHARE_GROUP_OFFSETS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per partition once the share coordinators have its start offset."""
    image = broker.image()
    check_share_version(image)
    is_admin = request.has_all_rights or request.principal == ADMIN_API
    if is_admin and (by_hand := getattr(message, "by_hand", b"")):
        return await _answer_by_hand(broker, request, message.group_id, by_hand)
    asked: dict[str, dict[int, int]] = {}
    started: dict[UUID, dict[int, int]] = {}

    def ask(name: str, each: Any) -> None:
        asked[name][int(each.partition_index)] = int(each.start_offset)

    await each_part(broker.env, message.topics, lambda topic: asked.setdefault(topic.topic_name, {}))
    named = ((topic.topic_name, each) for topic in message.topics for each in topic.partitions)
    await each_part(broker.env, named, lambda each: ask(*each))
    allowed = await among(broker, request, Operation.READ, TOPIC, asked, log_if_denied=True)
    known = {
        name: topic
        async for name in in_slices(broker.env, asked)
        if name in allowed and (topic := image.topics.get(name)) is not None
    }

    def start(topic: TopicState, index: int, start_offset: int) -> None:
        if _refusal(topic, index, start_offset) is None:
            started.setdefault(topic.topic_id, {})[index] = start_offset

    starts = ((it, index, at) for name, it in known.items() for index, at in asked[name].items())
    await each_part(broker.env, starts, lambda each: start(*each))
    change: ShareStateChange = await broker.groups.ask(
        GroupCoordinator.alter_share_offsets, AlterShareOffsets(message.group_id, started)
    )
    outcomes = await carry_out(broker, change) if change else {}
    make = response_builders(API_KEY, request.api_version)

    def topics() -> Iterator[Any]:
        for name, offsets in asked.items():
            if name not in known:
                error = UnknownTopicOrPartition() if name in allowed else refusal(TOPIC)
                yield _topic(make, name, None, dict.fromkeys(offsets, error).items())
        for name, it in known.items():
            yield _topic(make, name, it, _errors(message.group_id, it, asked[name], outcomes))

    return make.AlterShareGroupOffsetsResponse(error_code=NONE, throttle_time=0, responses=topics())


async def _answer_by_hand(
    broker: BrokerContext, request: RequestContext, group_id: str, by_hand: bytes
) -> Any:
    """Respond once an operator's word on records of a partition that this broker leads is written."""
    try:
        said = msgspec.json.decode(by_hand, type=HandAcknowledgement)
    except msgspec.MsgspecError as error:
        raise InvalidRequest("the acknowledgement by hand is none") from error
    found = await acknowledge_by_hand(broker, group_id, said)
    make = response_builders(API_KEY, request.api_version)
    return make.AlterShareGroupOffsetsResponse(
        error_code=NONE, throttle_time=0, responses=(), by_hand=msgspec.json.encode(found)
    )


def _refusal(topic: TopicState, index: int, start_offset: int) -> KafkaError | None:
    if not 0 <= index < len(topic.partitions):
        return UnknownTopicOrPartition()
    if start_offset < NO_OFFSET:
        return InvalidRequest(f"a start offset is at least {NO_OFFSET}")
    return None


def _errors(
    group_id: str, topic: TopicState, offsets: Mapping[int, int], outcomes: Outcomes
) -> Iterator[tuple[int, KafkaError | None]]:
    """Yield each partition with its error, None for those that were set."""
    for index, start_offset in offsets.items():
        outcome = outcomes.get(SharePartitionKey(group_id, topic.topic_id, index))
        failed = outcome if isinstance(outcome, KafkaError) else None
        yield index, _refusal(topic, index, start_offset) or failed


def _topic(
    make: Any, name: str, topic: TopicState | None, errors: Iterable[tuple[int, KafkaError | None]]
) -> Any:
    return make.AlterShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=(
            make.AlterShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for index, error in errors
        ),
    )


def _outcomes(message: Any, response: Any) -> Iterator[Outcome]:
    yield message.group_id, response.error_code
    yield from named_partitions(response.responses, "topic_name", "partitions", "partition_index")


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Demanded(
        (Right(Operation.READ, ResourceType.GROUP, "group_id"),),
        by_part=(Right(Operation.READ, ResourceType.TOPIC),),
    ),
    max_parts=IN_TURNS,
    audit=Change(_outcomes, audits_message=True),
    controllers=False,
)
