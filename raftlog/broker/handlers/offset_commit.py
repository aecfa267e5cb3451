"""OffsetCommit 2-10 (KIP-211, 320, 345, 848; topic ids since v10)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from raftlog.base.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from raftlog.base.types import NO_EPOCH
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import Pace
from raftlog.coordinator.group import CommittedOffset
from raftlog.coordinator.requests import CommitOffsets, MemberRef, OffsetCommit
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.OFFSET_COMMIT

FIRST_EPOCH_VERSION: Final = 9
FIRST_TOPIC_ID_VERSION: Final = 10
NOT_SAID: Final = -1
"""The retention time of a commit that leaves it to the broker: every one since v5 (KIP-211)."""

Place = tuple[int, int]
"""A commit's place in the request: which topic, which of its partitions."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per partition once the commit is committed.

    Whoever does not coordinate the group says only that: its metadata may be too old to know the topic.
    """
    broker.groups.check(message.group_id)
    codes: dict[Place, int] = {}
    commits = await _commits(broker, request, message, codes)
    if commits:
        try:
            answers = await broker.groups.commit(
                CommitOffsets(
                    message.group_id,
                    MemberRef(message.member_id, getattr(message, "group_instance_id", None)),
                    message.generation_id_or_member_epoch,
                    tuple(commits.values()),
                    request.api_version >= FIRST_EPOCH_VERSION,
                )
            )
        except KafkaError as error:
            answers = (error.code,) * len(commits)
        codes.update(zip(commits, answers, strict=True))
    return await _response_in_turns(request, message, codes)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Answer each partition with the same failure."""
    return _response(request, message, defaultdict(lambda: error.code))


async def _commits(
    broker: BrokerContext, request: RequestContext, message: Any, codes: dict[Place, int]
) -> dict[Place, OffsetCommit]:
    """Return what can be committed, by place; what cannot gets its code at once.

    Who commits again meanwhile comes after: a connection's requests are dealt with one by one.
    """
    pace = Pace()
    commits: dict[Place, OffsetCommit] = {}
    now_ms = broker.env.wall_clock_ms()
    keep_ms = getattr(message, "retention_time", NOT_SAID)
    expires_ms = -1 if keep_ms < 0 else now_ms + keep_ms
    for row, asked in enumerate(message.topics):
        topic = _topic(broker, request, asked)
        for column, each in enumerate(asked.partitions):
            if topic is None:
                missing = UnknownTopicId if _has_ids(request) else UnknownTopicOrPartition
                codes[row, column] = missing.code
            elif not 0 <= each.partition_index < len(topic.partitions):
                codes[row, column] = UnknownTopicOrPartition.code
            else:
                committed = CommittedOffset(
                    each.committed_offset,
                    getattr(each, "committed_leader_epoch", NO_EPOCH),
                    each.committed_metadata or "",
                    now_ms,
                    expires_ms,
                    topic.topic_id,
                )
                commits[row, column] = OffsetCommit(topic.name, each.partition_index, committed)
            if pace.is_due():
                await asyncio.sleep(0)
    return commits


def _has_ids(request: RequestContext) -> bool:
    return request.api_version >= FIRST_TOPIC_ID_VERSION


def _topic(broker: BrokerContext, request: RequestContext, asked: Any) -> TopicState | None:
    image = broker.image()
    if _has_ids(request):
        return None if asked.topic_id is None else image.topic_by_id(asked.topic_id)
    return image.topics.get(asked.name)


def _response(request: RequestContext, message: Any, codes: Mapping[Place, int]) -> Any:
    make = response_shapes(API_KEY, request.api_version)
    topics = tuple(_topic_response(make, row, asked, codes) for row, asked in enumerate(message.topics))
    return make.OffsetCommitResponse(topics=topics)


async def _response_in_turns(request: RequestContext, message: Any, codes: Mapping[Place, int]) -> Any:
    make, pace, topics = response_shapes(API_KEY, request.api_version), Pace(), []
    for row, asked in enumerate(message.topics):
        topics.append(_topic_response(make, row, asked, codes))
        if pace.is_due(1 + len(asked.partitions)):
            await asyncio.sleep(0)
    return make.OffsetCommitResponse(topics=tuple(topics))


def _topic_response(make: Any, row: int, asked: Any, codes: Mapping[Place, int]) -> Any:
    return make.OffsetCommitResponseTopic(
        name=getattr(asked, "name", None),
        topic_id=getattr(asked, "topic_id", None),
        partitions=tuple(
            make.OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=codes[row, column]
            )
            for column, each in enumerate(asked.partitions)
        ),
    )
