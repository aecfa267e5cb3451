"""Metadata 0-13: brokers, topics, leaders; and topic creation on request (KIP-516, KIP-361)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import UUID

from raftlog.base.errors import (
    NONE,
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.base.types import INTERNAL_TOPICS, is_legal_topic_name
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.auto_create import create_missing
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import Weighed, drawn, each_part
from raftlog.broker.metadata_view import (
    NOT_ASKED,
    MetadataView,
    MetadataViews,
)
from raftlog.broker.mutation_quota import within_mutation_quota
from raftlog.broker.partition_lookup import is_doubtful
from raftlog.broker.rights import CLUSTER, TOPIC, among, may, note_denial, operations
from raftlog.broker.unreachable_brokers import NO_BROKERS, UnreachableIds
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.METADATA

_TOPIC_IDS_FROM: Final = 12
"""Versions 10 and 11 return topic ids but do not accept them."""

NEWS_S: Final = 0.01
"""The time for news of a leader's death to reach us, in seconds: its sockets close one by one."""
LEADERS_AWAITED: Final = 50
"""The maximum time that a response waits for new leaders of partitions without a leader, in units of NEWS_S."""

KEPT_PER_PART: Final = 20
"""Topics that are kept encoded, as much work as one part of a request."""

PARTITIONS_PER_CHECK: Final = 10_000
"""The maximum number of requested partitions in each check for lost leaders."""

Asked = str | UUID


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once missing topics are created. The response is delayed for a moment where a change may be under way."""
    asked = await _asked(broker, request.api_version, message)
    missing, codes = await _to_create(broker, request, message, asked)
    if missing:
        allowed, throttled = await within_mutation_quota(
            broker, API, request, missing, lambda _: broker.config.num_partitions
        )
        codes |= {name: LeaderNotAvailable.code for name, _ in throttled}
        codes |= await create_missing(broker, allowed)
    elif asked and len(broker.image().brokers) > 1:
        denied = await each_part(broker.env, asked, partial(_denied, broker, request, broker.image()))
        visible = [each for each, name in zip(asked, denied, strict=True) if name is None]
        await _news_of(broker, visible)
    return await _answer(broker, request, message, asked=asked, codes=codes)


async def _asked(broker: BrokerContext, version: int, message: Any) -> list[Asked | None] | None:
    """Return names and ids, each once; None for all topics. A None inside is a topic without name or id."""
    topics = message.topics
    if topics is None or (version == 0 and not topics):
        return None
    return list(dict.fromkeys(await each_part(broker.env, topics, partial(_key, version))))


def _key(version: int, topic: Any) -> Asked | None:
    topic_id: UUID | None = getattr(topic, "topic_id", None)
    if topic_id is not None:
        return topic_id if version >= _TOPIC_IDS_FROM else None
    name: str | None = topic.name
    return name


async def _to_create(
    broker: BrokerContext, request: RequestContext, message: Any, asked: list[Asked | None] | None
) -> tuple[list[str], dict[str, int]]:
    """Return the names that may be created, and a code for each that the sender has no right to create.

    Only topics requested by name are created. Client and broker must both allow it, and the sender must be allowed to
    see the topic.
    """
    consent = broker.config.auto_create_topics_enable and getattr(message, "allow_auto_topic_creation", True)
    if not asked or not consent:
        return [], {}
    topics = broker.image().topics
    missing: list[str] = []

    def look_up(name: Asked | None) -> None:
        if isinstance(name, str) and name not in topics and is_legal_topic_name(name):
            missing.append(name)

    await each_part(broker.env, asked, look_up)
    visible = await among(broker, request, Operation.DESCRIBE, TOPIC, missing)
    missing = [name for name in missing if name in visible]
    if may(broker, request, Operation.CREATE, CLUSTER):
        return missing, {}
    allowed = await among(broker, request, Operation.CREATE, TOPIC, missing, log_if_denied=True)
    return (
        [name for name in missing if name in allowed],
        {name: TopicAuthorizationFailed.code for name in missing if name not in allowed},
    )


async def _news_of(broker: BrokerContext, asked: list[Asked | None]) -> None:
    """Wait for news that a client has before us: a client that lost a leader sends Metadata within a millisecond.

    With the old leader or none, librdkafka retries a second later, so a late response is the faster way. Topics that
    the sender may not see are left out, or the delay would reveal that they exist.
    """
    for _ in range(LEADERS_AWAITED):
        await asyncio.sleep(NEWS_S)
        unnamed = _gone(broker).unnamed
        states = islice(_partitions(broker.image(), asked), PARTITIONS_PER_CHECK)
        if not unnamed or unnamed.isdisjoint(state.leader for state in states):
            break


async def _answer(
    broker: BrokerContext,
    request: RequestContext,
    message: Any,
    *,
    asked: list[Asked | None] | None,
    codes: Mapping[str, int],
) -> Any:
    image, version = broker.image(), request.api_version
    view = _views(broker).of(
        image,
        _gone(broker),
        version=version,
        listener=request.listener,
        operations_of=(
            partial(operations, broker, request, TOPIC)
            if getattr(message, "include_topic_authorized_operations", False)
            else None
        ),
    )
    make = response_builders(API_KEY, version)
    denied = set()

    async def entry(number: int, each: Asked | None) -> Weighed:
        name, found, size = _denied(broker, request, image, each), None, 0
        if name is None:
            found, size = await _topic(broker, view, image, make, asked=each, codes=codes)
        elif asked is not None:
            found = _refused(make, each)
            denied.add(name)
        return Weighed(found, size + (number % KEPT_PER_PART == 0))

    wanted = enumerate(image.topics if asked is None else asked)
    topics = await drawn(broker.env, (entry(*each) for each in wanted))
    note_denial(broker, request, Operation.DESCRIBE, TOPIC, denied)
    if broker.silent_members:
        _send_elsewhere(broker, request, image.topics if asked is None else asked)
    with_operations = getattr(message, "include_cluster_authorized_operations", False)
    # A request without topics is for the list of brokers: admin clients then list the groups of each broker.
    is_about_topics = asked is None or asked
    return make.MetadataResponse(
        throttle_time=0,
        brokers=view.broker_entries if is_about_topics else view.live_broker_entries(),
        cluster_id=image.cluster_id,
        controller_id=view.brokers.controller_id(broker, image),
        topics=topics,
        cluster_authorized_operations=operations(broker, request, CLUSTER) if with_operations else NOT_ASKED,
        error_code=NONE,
    )


def _denied(
    broker: BrokerContext, request: RequestContext, image: MetadataImage, asked: Asked | None
) -> str | None:
    """Return the name of a topic that the sender may not see. An id that does not exist reveals no secret."""
    if broker.authorizer is None or asked is None:
        return None
    name = asked if isinstance(asked, str) else image.topic_names.get(asked)
    return None if name is None or may(broker, request, Operation.DESCRIBE, TOPIC, name) else name


def _refused(make: Any, asked: Asked | None) -> Any:
    """Return an entry for a topic that the sender may not see, with only what the request named."""
    by_id = isinstance(asked, UUID)
    return make.MetadataResponseTopic(
        error_code=TopicAuthorizationFailed.code,
        name=None if by_id else asked,
        topic_id=asked if by_id else None,
        is_internal=asked in INTERNAL_TOPICS,
    )


def _gone(broker: BrokerContext) -> UnreachableIds:
    gone = NO_BROKERS if broker.absences is None else broker.absences.gone()
    if broker.silent_members:
        return gone._replace(asked=broker.config.node_id, silent=broker.silent_members)
    return gone


def _partitions(image: MetadataImage, asked: Iterable[Asked | None]) -> Iterator[PartitionState]:
    for each in asked:
        topic = image.topics.get(each) if isinstance(each, str) else image.topic_by_id(each) if each else None
        if topic is not None:
            yield from topic.partitions


def _send_elsewhere(broker: BrokerContext, request: RequestContext, asked: Iterable[Asked | None]) -> None:
    """Make this the last response on a client's connection, if others may lead the requested partitions by now.

    The client needs another broker, but librdkafka, Java and KafkaJS prefer a broker that they are connected to.
    """
    image, connection = broker.image(), request.connection
    visible = (each for each in asked if not _denied(broker, request, image, each))
    states = islice(_partitions(image, visible), PARTITIONS_PER_CHECK)
    if connection is not None and any(is_doubtful(broker, state) for state in states):
        connection.finish(answers_all=True)


def _views(broker: BrokerContext) -> MetadataViews:
    if broker.metadata_views is None:
        broker.metadata_views = MetadataViews()
    views: MetadataViews = broker.metadata_views
    return views


async def _topic(
    broker: BrokerContext,
    view: MetadataView,
    image: MetadataImage,
    make: Any,
    *,
    asked: Asked | None,
    codes: Mapping[str, int],
) -> Weighed:
    topic: TopicState | None = None
    if isinstance(asked, str):
        topic = image.topics.get(asked)
    elif asked is not None:
        topic = image.topic_by_id(asked)
    if topic is not None:
        return await view.topic(broker.env, topic)
    name = asked if isinstance(asked, str) else None
    missing = make.MetadataResponseTopic(
        error_code=_why_missing(asked, codes),
        name=name if name is not None or isinstance(asked, UUID) else "",
        topic_id=asked if isinstance(asked, UUID) else None,
        is_internal=name in INTERNAL_TOPICS,
    )
    return Weighed(missing, 1)


def _why_missing(asked: Asked | None, codes: Mapping[str, int]) -> int:
    if asked is None:
        return InvalidRequest.code
    if isinstance(asked, UUID):
        return UnknownTopicId.code
    if not is_legal_topic_name(asked):
        return InvalidTopic.code
    return codes.get(asked, NONE) or UnknownTopicOrPartition.code


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (Right(Operation.DESCRIBE, ResourceType.TOPIC), Right(Operation.CREATE, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    strict_quota_from=0,  # a topic that cannot be made is LEADER_NOT_AVAILABLE
    prepared=(13, 12, 1),
)
