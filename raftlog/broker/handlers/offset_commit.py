"""OffsetCommit 2-10 (KIP-211, 320, 345; topic ids since v10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from raftlog.base.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from raftlog.base.types import NO_EPOCH
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.coordinator.group import CommittedOffset
from raftlog.coordinator.requests import CommitOffsets, MemberRef, OffsetCommit
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.OFFSET_COMMIT

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
    commits = _commits(broker, request, message, codes)
    if commits:
        try:
            answers = await broker.groups.commit(
                CommitOffsets(
                    message.group_id,
                    MemberRef(message.member_id, getattr(message, "group_instance_id", None)),
                    message.generation_id_or_member_epoch,
                    tuple(commits.values()),
                )
            )
        except KafkaError as error:
            answers = (error.code,) * len(commits)
        codes.update(zip(commits, answers, strict=True))
    return _response(request, message, codes)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Answer each partition with the same failure."""
    return _response(request, message, defaultdict(lambda: error.code))


def _commits(
    broker: BrokerContext, request: RequestContext, message: Any, codes: dict[Place, int]
) -> dict[Place, OffsetCommit]:
    """Return what can be committed, by place; what cannot gets its code at once."""
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
                )
                commits[row, column] = OffsetCommit(topic.name, each.partition_index, committed)
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
    topics = tuple(
        make.OffsetCommitResponseTopic(
            name=getattr(asked, "name", None),
            topic_id=getattr(asked, "topic_id", None),
            partitions=tuple(
                make.OffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=codes[row, column]
                )
                for column, each in enumerate(asked.partitions)
            ),
        )
        for row, asked in enumerate(message.topics)
    )
    return make.OffsetCommitResponse(topics=topics)
