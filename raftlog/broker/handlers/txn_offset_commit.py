"""TxnOffsetCommit 0-6 (KIP-98; member and generation since v3, KIP-447; adds its partition since v5, KIP-890).

Since v6 topics are named by their ids, and errors are those of OffsetCommit (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from raftlog.base.errors import InvalidGroupId, UnknownTopicId, UnknownTopicOrPartition
from raftlog.base.types import NO_EPOCH
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.transaction_verification import ProducerApiLevel
from raftlog.broker.handlers.shared.commit_response import (
    Codes,
    RequestRow,
    answered,
    check_size,
    commit_in_batches,
    denied_code,
    rows_of,
    topic_of,
)
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.rights import GROUP, TRANSACTIONAL_ID, demand
from raftlog.coordinator.group import NO_GENERATION, CommittedOffset
from raftlog.coordinator.group_requests import MemberRef, OffsetCommit, TxnOffsetCommit
from raftlog.coordinator.transactions.transaction import check_transactional_id
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.TXN_OFFSET_COMMIT

FIRST_ABORTABLE_VERSION: Final = 4
FIRST_ADDING_VERSION: Final = 5
FIRST_TOPIC_ID_VERSION: Final = 6


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per partition once the offsets are in the transaction."""
    make = response_builders(API_KEY, request.api_version)
    codes = _commit(broker, request, message)
    return make.TxnOffsetCommitResponse(
        topics=await answered(
            message, codes, make.TxnOffsetCommitResponseTopic, make.TxnOffsetCommitResponsePartition
        )
    )


async def _commit(broker: BrokerContext, request: RequestContext, message: Any) -> Codes:
    demand(broker, request, Operation.WRITE, TRANSACTIONAL_ID, message.transactional_id)
    demand(broker, request, Operation.READ, GROUP, message.group_id)
    check_transactional_id(message.transactional_id)
    if not message.group_id:
        raise InvalidGroupId("a group id must not be empty")
    broker.groups.check(message.group_id)
    check_size(message)
    codes: dict[RequestRow, int] = {}
    commits = await _commits(broker, request, message, codes)
    member = MemberRef(getattr(message, "member_id", ""), getattr(message, "group_instance_id", None))

    def commit(batch: tuple[OffsetCommit, ...]) -> Awaitable[tuple[int, ...]]:
        asked = TxnOffsetCommit(
            message.group_id,
            member,
            getattr(message, "generation_id", NO_GENERATION),
            batch,
            message.producer_id,
            message.producer_epoch,
            request.api_version >= FIRST_TOPIC_ID_VERSION,
        )
        return broker.groups.commit_in_transaction(
            asked, message.transactional_id, dialect=_dialect(request.api_version)
        )

    codes.update(await commit_in_batches(commits, commit))
    return codes


def _dialect(version: int) -> ProducerApiLevel:
    if version >= FIRST_ADDING_VERSION:
        return ProducerApiLevel.ADDS
    return ProducerApiLevel.ABORTABLE if version >= FIRST_ABORTABLE_VERSION else ProducerApiLevel.OLD


async def _commits(
    broker: BrokerContext, request: RequestContext, message: Any, codes: dict[RequestRow, int]
) -> dict[RequestRow, OffsetCommit]:
    """Return the offsets that can be committed, by row of the request. The other rows get their codes immediately."""
    commits: dict[RequestRow, OffsetCommit] = {}
    now_ms = broker.env.ages.latest_ms()

    def look_up(asked: Any) -> tuple[TopicState | None, int]:
        topic = topic_of(broker, asked)
        return topic, denied_code(broker, request, asked, topic)

    def add(place: RequestRow, each: Any) -> None:
        topic, denied = topics[place[0]]
        if denied:
            codes[place] = denied
        elif topic is None and request.api_version >= FIRST_TOPIC_ID_VERSION:
            codes[place] = UnknownTopicId.code
        elif topic is None or not 0 <= each.partition_index < len(topic.partitions):
            codes[place] = UnknownTopicOrPartition.code
        else:
            committed = CommittedOffset(
                each.committed_offset,
                getattr(each, "committed_leader_epoch", NO_EPOCH),
                each.committed_metadata or "",
                now_ms,
                topic_id=topic.topic_id,
            )
            commits[place] = OffsetCommit(topic.name, each.partition_index, committed)

    topics = await each_part(broker.env, message.topics, look_up)
    await each_part(broker.env, rows_of(message), lambda row: add(*row))
    return commits


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (
            Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
            Right(Operation.READ, ResourceType.GROUP),
            Right(Operation.READ, ResourceType.TOPIC),
        )
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(5,),
)
