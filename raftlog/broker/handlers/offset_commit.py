"""OffsetCommit 2-10 (KIP-211, 320, 345, 848; topic ids since v10)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from raftlog.base.config.setting import LONG_MAX
from raftlog.base.errors import InvalidTopic, KafkaError, UnknownTopicId, UnknownTopicOrPartition
from raftlog.base.types import NO_EPOCH
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
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
from raftlog.broker.rights import GROUP, demand
from raftlog.coordinator.group import CommittedOffset
from raftlog.coordinator.group_requests import CommitOffsets, MemberRef, OffsetCommit
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.OFFSET_COMMIT

FIRST_EPOCH_VERSION: Final = 9
FIRST_TOPIC_ID_VERSION: Final = 10
NOT_SAID: Final = -1
"""The retention time of a commit that leaves it to the broker, as every commit does since v5 (KIP-211)."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per partition once the commit is committed."""
    make = response_builders(API_KEY, request.api_version)
    codes = _commit(broker, request, message)
    return make.OffsetCommitResponse(
        topics=await answered(
            message, codes, make.OffsetCommitResponseTopic, make.OffsetCommitResponsePartition
        )
    )


async def _commit(broker: BrokerContext, request: RequestContext, message: Any) -> Codes:
    """Commit offsets, after checking that this broker coordinates the group.

    Otherwise only that error is returned, since the metadata may be too old to know the topic.
    """
    demand(broker, request, Operation.READ, GROUP, message.group_id)
    broker.groups.check(message.group_id)
    check_size(message)
    codes: dict[RequestRow, int] = {}
    commits = await _commits(broker, request, message, codes)
    member = MemberRef(message.member_id, getattr(message, "group_instance_id", None))

    def commit(batch: tuple[OffsetCommit, ...]) -> Awaitable[tuple[int, ...]]:
        return broker.groups.commit(
            CommitOffsets(
                message.group_id,
                member,
                message.generation_id_or_member_epoch,
                batch,
                request.api_version >= FIRST_EPOCH_VERSION,
            )
        )

    codes.update(await commit_in_batches(commits, commit))
    return codes


async def _commits(
    broker: BrokerContext, request: RequestContext, message: Any, codes: dict[RequestRow, int]
) -> dict[RequestRow, OffsetCommit]:
    """Return the offsets that can be committed, by row of the request. The other rows get their codes.

    A client that commits again meanwhile comes after: a connection's requests are handled one by one. The record's
    writer sees by the topic's id that a topic was deleted meanwhile.
    """
    commits: dict[RequestRow, OffsetCommit] = {}
    now_ms = broker.env.ages.latest_ms()
    keep_ms = getattr(message, "retention_time", NOT_SAID)
    expires_ms = -1 if keep_ms < 0 else min(now_ms + keep_ms, LONG_MAX)

    def look_up(asked: Any) -> tuple[TopicState | None, int]:
        topic = topic_of(broker, asked)
        return topic, denied_code(broker, request, asked, topic)

    def add(place: RequestRow, each: Any) -> None:
        topic, denied = topics[place[0]]
        if denied:
            codes[place] = denied
        elif topic is None:
            name = getattr(message.topics[place[0]], "name", "")
            codes[place] = _missing(broker, request, name, UnknownTopicId)
        elif not 0 <= each.partition_index < len(topic.partitions):
            codes[place] = _missing(broker, request, topic.name, UnknownTopicOrPartition)
        else:
            committed = CommittedOffset(
                each.committed_offset,
                getattr(each, "committed_leader_epoch", NO_EPOCH),
                each.committed_metadata or "",
                now_ms,
                expires_ms,
                topic.topic_id,
            )
            commits[place] = OffsetCommit(topic.name, each.partition_index, committed)

    topics = await each_part(broker.env, message.topics, look_up)
    await each_part(broker.env, rows_of(message), lambda row: add(*row))
    return commits


def _missing(broker: BrokerContext, request: RequestContext, name: str, of_id: type[KafkaError]) -> int:
    """Return the error code for a topic or partition that is not there; of a topic that was named by its id, `of_id`.

    It is INVALID_TOPIC_EXCEPTION, which clients take as final, if a topic of that name was deleted in the last
    minutes. The partition may have gone with it, where a topic that was made since has fewer. Apache Kafka returns
    UNKNOWN_TOPIC_OR_PARTITION. Then kafka-python, aiokafka and Java's classic consumer retry the commit that they make
    before they rejoin. Their group waits for its rebalance until a session or rebalance timeout is over (KAFKA-13310,
    KAFKA-20959).
    """
    if request.api_version >= FIRST_TOPIC_ID_VERSION:
        return of_id.code
    return (InvalidTopic if broker.replicas.was_deleted(name) else UnknownTopicOrPartition).code


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.READ, ResourceType.GROUP), Right(Operation.READ, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(10,),
)
