"""Topics: list, describe, create, grow, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import msgspec

from raftlog.admin.broker_questions import REQUEST_TIMEOUT_MS
from raftlog.admin.errors import ApiError, check
from raftlog.admin.kafka_rest.shared import (
    ItemMetadata,
    ListMetadata,
    Page,
    Related,
    image_of,
    item,
    page_of,
    topic_of,
)
from raftlog.admin.route import ASKED_BY_HANDLER, CLUSTER, FILTERED, TOPIC, Call, Route, of_topic
from raftlog.base.turns import each_part
from raftlog.base.types import INTERNAL_TOPICS
from raftlog.metadata.image import MetadataImage
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

BROKERS_CHOICE: Final = -1
"""A number of partitions or replicas that the brokers' defaults decide."""
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
MAX_PARTITIONS: Final = 100_000

BrokerId = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]


class Topic(msgspec.Struct, kw_only=True):
    """A topic. `replication_factor` is that of its first partition."""

    kind: str = "KafkaTopic"
    metadata: ItemMetadata
    cluster_id: str
    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: Related
    configs: Related
    partition_reassignments: Related


class TopicList(msgspec.Struct, kw_only=True):
    kind: str = "KafkaTopicList"
    metadata: ListMetadata
    data: list[Topic]


class NewConfig(msgspec.Struct, forbid_unknown_fields=True):
    """A config of a topic to be created."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    value: str


class NewReplicas(msgspec.Struct, forbid_unknown_fields=True):
    """The brokers on which the replicas of one partition are to be; the first is preferred as leader."""

    partition_id: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
    broker_ids: Annotated[list[BrokerId], msgspec.Meta(min_length=1, max_length=1000)]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to be created: by numbers, by `replicas_assignments`, or by the brokers' defaults."""

    topic_name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    partitions_count: Annotated[int, msgspec.Meta(ge=-1, le=MAX_PARTITIONS)] | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=-1, le=INT16_MAX)] | None = None
    replicas_assignments: Annotated[list[NewReplicas], msgspec.Meta(max_length=MAX_PARTITIONS)] = []
    configs: Annotated[list[NewConfig], msgspec.Meta(max_length=1000)] = []
    validate_only: bool = False


class Growth(msgspec.Struct, forbid_unknown_fields=True):
    """The new number of a topic's partitions."""

    partitions_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]


async def list_topics(call: Call) -> TopicList:
    image = image_of(call)
    seen = sorted(await call.among(Operation.DESCRIBE, TOPIC, image.topics))
    shown, metadata = page_of(call, seen, "clusters", image.cluster_id, "topics")
    return TopicList(metadata=metadata, data=await each_part(call, shown, partial(_topic, call, image)))


async def get_topic(call: Call) -> Topic:
    image = image_of(call)
    return _topic(call, image, topic_of(call, image).name)


def _topic(call: Call, image: MetadataImage, name: str) -> Topic:
    state = image.topics[name]
    return _described(
        call,
        image,
        name,
        topic_id=str(state.topic_id),
        count=len(state.partitions),
        factor=len(state.partitions[0].replicas),
    )


def _described(
    call: Call, image: MetadataImage, name: str, *, topic_id: str, count: int, factor: int
) -> Topic:
    base = ("clusters", image.cluster_id, "topics", name)
    return Topic(
        metadata=item(call, image, "topics", name, topic=name),
        cluster_id=image.cluster_id,
        topic_name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        replication_factor=factor,
        partitions_count=count,
        partitions=Related(call.link(*base, "partitions")),
        configs=Related(call.link(*base, "configs")),
        partition_reassignments=Related(call.link(*base, "partitions", "-", "reassignment")),
    )


async def create_topic(call: Call) -> tuple[int, Topic]:
    """Create a topic: 201, or 200 if it was only validated."""
    image = image_of(call)
    wanted: NewTopic = call.body
    call.audit.update(
        topic=wanted.topic_name,
        partitions=wanted.partitions_count,
        replication_factor=wanted.replication_factor,
        validate_only=wanted.validate_only,
    )
    if not call.may(Operation.CREATE, CLUSTER):
        call.demand(Operation.CREATE, TOPIC, wanted.topic_name)
    make = builders_for(ApiKey.CREATE_TOPICS)
    request = make.CreateTopicsRequest(
        topics=(_creatable(make, wanted),), timeout=REQUEST_TIMEOUT_MS, validate_only=wanted.validate_only
    )
    response = await call.asker.ask(ApiKey.CREATE_TOPICS, request)
    (result,) = response.topics
    check(result.error_code, result.error_message)
    call.audit.update(partitions=result.num_partitions, replication_factor=result.replication_factor)
    found = _described(
        call,
        image,
        wanted.topic_name,
        topic_id=str(result.topic_id),
        count=result.num_partitions,
        factor=result.replication_factor,
    )
    return (200 if wanted.validate_only else 201), found


def _creatable(make: Any, wanted: NewTopic) -> Any:
    def number(given: int | None) -> int:
        return BROKERS_CHOICE if given is None else given

    return make.CreatableTopic(
        name=wanted.topic_name,
        num_partitions=number(wanted.partitions_count),
        replication_factor=number(wanted.replication_factor),
        assignments=tuple(
            make.CreatableReplicaAssignment(
                partition_index=each.partition_id, broker_ids=tuple(each.broker_ids)
            )
            for each in wanted.replicas_assignments
        ),
        configs=tuple(make.CreatableTopicConfig(name=each.name, value=each.value) for each in wanted.configs),
    )


async def grow_topic(call: Call) -> Topic:
    """Increase the number of partitions; it never decreases."""
    image = image_of(call)
    topic = topic_of(call, image)
    count = call.body.partitions_count
    call.audit.update(topic=topic.name, partitions=count, partitions_before=len(topic.partitions))
    if count < len(topic.partitions):
        raise ApiError(
            409, f"topic {topic.name} has {len(topic.partitions)} partitions; it can't shrink to {count}"
        )
    if count > len(topic.partitions):
        make = builders_for(ApiKey.CREATE_PARTITIONS)
        wanted = make.CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
        request = make.CreatePartitionsRequest(
            topics=(wanted,), timeout=REQUEST_TIMEOUT_MS, validate_only=False
        )
        response = await call.asker.ask(ApiKey.CREATE_PARTITIONS, request)
        (result,) = response.results
        check(result.error_code, result.error_message)
    factor = len(topic.partitions[0].replicas)
    return _described(call, image, topic.name, topic_id=str(topic.topic_id), count=count, factor=factor)


async def delete_topic(call: Call) -> None:
    """Delete the topic and its records on all brokers; internal topics are refused."""
    name = topic_of(call, image_of(call)).name
    if name in INTERNAL_TOPICS:
        message = f"{name} is an internal topic: its deletion would lose all groups or transactions"
        raise ApiError(409, message)
    make = builders_for(ApiKey.DELETE_TOPICS)
    request = make.DeleteTopicsRequest(topics=(make.DeleteTopicState(name=name),), timeout=REQUEST_TIMEOUT_MS)
    response = await call.asker.ask(ApiKey.DELETE_TOPICS, request)
    (result,) = response.responses
    check(result.error_code, result.error_message)


BASE: Final = "/v3/clusters/{cluster_id}/topics"
ONE: Final = f"{BASE}/{{topic_name}}"
ROUTES: Final = (
    Route("GET", BASE, list_topics, "List the topics", query=Page, rights=FILTERED),
    Route(
        "POST",
        BASE,
        create_topic,
        "Create a topic",
        body=NewTopic,
        status=201,
        also={200: Topic},
        rights=ASKED_BY_HANDLER,
    ),
    Route("GET", ONE, get_topic, "Describe a topic", rights=of_topic(Operation.DESCRIBE)),
    Route(
        "PATCH", ONE, grow_topic, "Add partitions to a topic", body=Growth, rights=of_topic(Operation.ALTER)
    ),
    Route(
        "DELETE",
        ONE,
        delete_topic,
        "Delete a topic and its records",
        status=204,
        rights=of_topic(Operation.DELETE),
    ),
)
