"""Topics: create, delete, grow. Every topic of a request succeeds or fails on its own, with Kafka's codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.base.config import NodeConfig, validate_topic_configs
from raftlog.base.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Decision
from raftlog.base.types import INTERNAL_TOPICS, METADATA_TOPIC, NO_BROKER
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.configs import warnings_of
from raftlog.controller.decisions import BatchLimit, LogEvent
from raftlog.controller.metadata_limits import MetadataLimits, check_topic_name
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.replica_placer import ReplicaPlacer
from raftlog.metadata.controller_api import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicCreation,
    TopicRef,
    TopicResult,
    TopicResults,
)
from raftlog.metadata.image import MetadataImage, TopicState
from raftlog.metadata.metadata_records import (
    ConfigChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)

COLLISION: Final = "in metrics . and _ are the same, so names must differ in more"


class _Plan(NamedTuple):
    """A topic as it will be created; without records an earlier try of the same request created it."""

    records: tuple[Record, ...]
    created: TopicCreation


def decide_create_topics(
    image: MetadataImage,
    request: CreateTopics,
    *,
    config: NodeConfig,
    random: Random,
    index: PartitionIndex,
    availability: BrokerAvailability,
) -> Decision:
    """Create topics; with `validate_only`, return what would happen. A repeated request gets the same answer."""
    placement = ReplicaPlacer(image, random, index, availability)
    bounds = MetadataLimits(image, config)
    times = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    events: list[LogEvent] = []
    results: dict[str, TopicCreation] = {}
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("the topic is named more than once in this request")
            check_topic_name(topic.name)
            if topic.name == METADATA_TOPIC:
                raise InvalidRequest(f"{topic.name} is reserved for the quorum's own log")
            if topic.name not in image.topics and (other := index.at(image).colliding_topic(topic.name)):
                raise InvalidTopic(
                    f"topic {topic.name!r} collides with existing topic {other!r}: {COLLISION}"
                )
            plan = _plan(image, topic, config=config, placement=placement, bounds=bounds, random=random)
        except KafkaError as error:
            results[topic.name] = TopicCreation(topic.name, error.code, error.message)
            continue
        results[topic.name] = plan.created
        if plan.records:
            records += plan.records
            fields = {"topic": topic.name, "partitions": plan.created.num_partitions}
            events.append(LogEvent("info", "topic_created", fields))
            events += warnings_of(each for each in plan.records if isinstance(each, ConfigChanged))
    reply = CreateTopicsReply(tuple(results.values()))
    if request.validate_only:
        return Decision(reply=reply)
    return Decision(tuple(records), reply, tuple(events))


def _plan(
    image: MetadataImage,
    topic: NewTopic,
    *,
    config: NodeConfig,
    placement: ReplicaPlacer,
    bounds: MetadataLimits,
    random: Random,
) -> _Plan:
    existing = image.topics.get(topic.name)
    if existing is not None and existing.topic_id == topic.topic_id:
        return _created_before(existing)
    if existing is not None:
        raise TopicAlreadyExists(f"topic {topic.name} exists already")
    if topic.topic_id in image.topic_names:
        raise InvalidRequest(f"topic id {topic.topic_id} is another topic's")
    configs = {key: value for key, value in topic.configs.items() if value is not None}
    validate_topic_configs(configs, topic=topic.name)
    if topic.assignments:
        assignments = _manual(image, topic, placement, bounds)
    else:
        assignments = _automatic(topic, config, placement, bounds)
    bounds.add_topic(topic.name, assignments, configs)
    topic_id = topic.topic_id or random_uuid(random)
    partitions = _partition_records(image, topic_id, assignments, placement)
    records: tuple[Record, ...] = (
        TopicCreated(topic.name, topic_id),
        *(ConfigChanged("topic", topic.name, key, value) for key, value in sorted(configs.items())),
        *partitions,
    )
    created = TopicCreation(
        topic.name,
        topic_id=topic_id,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
    )
    return _Plan(records, created)


def _created_before(topic: TopicState) -> _Plan:
    created = TopicCreation(
        topic.name,
        topic_id=topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
    )
    return _Plan((), created)


def random_uuid(random: Random) -> UUID:
    """Return a random (version 4) id. Its Base64 form never begins with a dash, which tools mistake for a flag."""
    while True:
        candidate = UUID(int=random.getrandbits(128), version=4)
        if candidate.int >> 122 != 62:
            return candidate


def _automatic(
    topic: NewTopic, config: NodeConfig, placement: ReplicaPlacer, bounds: MetadataLimits
) -> list[tuple[int, ...]]:
    partitions = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    factor = config.default_replication_factor if factor == -1 else factor
    if factor <= 0:
        raise InvalidReplicationFactor(f"a replication factor is at least 1, not {factor}")
    if partitions <= 0:
        raise InvalidPartitions(f"a topic has at least 1 partition, not {partitions}")
    bounds.check_topic(0, partitions)
    return placement.place(partitions, factor)


def _manual(
    image: MetadataImage, topic: NewTopic, placement: ReplicaPlacer, bounds: MetadataLimits
) -> list[tuple[int, ...]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise InvalidRequest("with replica assignments, num_partitions and replication_factor must be -1")
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignment("partition indexes must be consecutive from 0")
    bounds.check_topic(0, len(topic.assignments))
    assignments = [topic.assignments[index] for index in range(len(topic.assignments))]
    _check_assignments(image, assignments, len(assignments[0]), placement)
    return assignments


def _check_assignments(
    image: MetadataImage, assignments: list[tuple[int, ...]], factor: int, placement: ReplicaPlacer
) -> None:
    for replicas in assignments:
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"{list(replicas)} is empty or names a broker twice")
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"{list(replicas)} has {len(replicas)} replicas, other partitions have {factor}"
            )
        unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"no broker is registered with id {unknown[0]}")
        for broker_id in replicas:
            if broker_id in placement.closed:
                raise InvalidReplicaAssignment(f"{placement.closed[broker_id]}, and gets no new replicas")
        if not _in_service(image, replicas):
            raise InvalidReplicaAssignment(f"none of the brokers {list(replicas)} is in service")


def _in_service(image: MetadataImage, replicas: tuple[int, ...]) -> tuple[int, ...]:
    brokers = image.brokers
    return tuple(
        each for each in replicas if not brokers[each].fenced and not brokers[each].in_controlled_shutdown
    )


def _partition_records(
    image: MetadataImage,
    topic_id: UUID,
    assignments: list[tuple[int, ...]],
    placement: ReplicaPlacer,
    *,
    first: int = 0,
) -> list[PartitionCreated]:
    elected: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}  # the ISR and the leader of replicas
    records = []
    for index, replicas in enumerate(assignments, first):
        if replicas not in elected:
            isr = _in_service(image, replicas)
            undrained = [each for each in isr if each not in placement.availability.draining]
            elected[replicas] = isr, next(iter(undrained or isr), NO_BROKER)
        isr, leader = elected[replicas]
        records.append(PartitionCreated(topic_id, index, replicas, isr, leader))
    return records


def find_topic(image: MetadataImage, topic: TopicRef) -> TopicState:
    """Return a topic by name or id. Raise UnknownTopicOrPartition or UnknownTopicId."""
    if topic.topic_id is not None:
        by_id = image.topic_by_id(topic.topic_id)
        if by_id is None:
            raise UnknownTopicId(f"no topic has the id {topic.topic_id}")
        return by_id
    by_name = image.topics.get(topic.name or "")
    if by_name is None:
        raise UnknownTopicOrPartition(f"there is no topic {topic.name}")
    return by_name


def _times_named(image: MetadataImage, refs: Iterable[TopicRef]) -> Counter[UUID]:
    """Return how often each topic is named, by its name or its id."""
    times: Counter[UUID] = Counter()
    for ref in refs:
        with suppress(KafkaError):
            times[find_topic(image, ref).topic_id] += 1
    return times


def decide_delete_topics(image: MetadataImage, request: DeleteTopics, config: NodeConfig) -> Decision:
    """Delete topics with their configs."""
    if not config.delete_topic_enable:
        raise TopicDeletionDisabled()
    room = BatchLimit()
    results: list[TopicResult] = []
    deleted: dict[UUID, str] = {}
    times = _times_named(image, request.topics)
    for ref in request.topics:
        try:
            topic = find_topic(image, ref)
            if times[topic.topic_id] > 1:
                raise InvalidRequest("the topic is named more than once in this request")
            room.reserve(others=1)
        except KafkaError as error:
            results.append(TopicResult(ref.name, ref.topic_id, error.code, error.message))
            continue
        deleted[topic.topic_id] = topic.name
        results.append(TopicResult(topic.name, topic.topic_id))
    events = tuple(LogEvent("info", "topic_deleted", {"topic": name}) for name in deleted.values())
    records = tuple(TopicDeleted(topic_id) for topic_id in deleted)
    return Decision(records, TopicResults(tuple(results)), events)


def decide_create_partitions(
    image: MetadataImage,
    request: CreatePartitions,
    *,
    config: NodeConfig,
    random: Random,
    index: PartitionIndex,
    availability: BrokerAvailability,
) -> Decision:
    """Add partitions to topics; with `validate_only`, return what would happen."""
    placement = ReplicaPlacer(image, random, index, availability)
    bounds = MetadataLimits(image, config)
    times: Mapping[str, int] = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    results: dict[str, TopicResult] = {}
    for wanted in request.topics:
        try:
            if times[wanted.name] > 1:
                raise InvalidRequest("the topic is named more than once in this request")
            topic = find_topic(image, TopicRef(name=wanted.name))
            records += _grown(image, topic, wanted, placement=placement, bounds=bounds)
        except KafkaError as error:
            results[wanted.name] = TopicResult(wanted.name, None, error.code, error.message)
            continue
        results[wanted.name] = TopicResult(wanted.name, topic.topic_id)
    reply = TopicResults(tuple(results.values()))
    return Decision(() if request.validate_only else tuple(records), reply)


def _grown(
    image: MetadataImage,
    topic: TopicState,
    wanted: NewPartitions,
    *,
    placement: ReplicaPlacer,
    bounds: MetadataLimits,
) -> list[PartitionCreated]:
    if topic.name in INTERNAL_TOPICS:  # Apache Kafka's tool reports that, and its brokers do not
        raise InvalidPartitions(
            f"{topic.name} cannot get more partitions: its keys would move to other coordinators"
        )
    present = len(topic.partitions)
    added = wanted.total - present
    if added == 0:
        raise InvalidPartitions(f"topic {topic.name} has {present} partitions already")
    if added < 0:
        raise InvalidPartitions(f"topic {topic.name} has {present} partitions; {wanted.total} would be fewer")
    bounds.check_topic(present, added)
    factor = len(topic.partitions[0].target_replicas)
    if wanted.assignments is None:
        assignments = placement.place(added, factor, topic)
    elif len(wanted.assignments) != added:
        raise InvalidReplicaAssignment(
            f"{added} partitions are added, but {len(wanted.assignments)} assignments are given"
        )
    else:
        assignments = list(wanted.assignments)
        _check_assignments(image, assignments, factor, placement)
    bounds.add_partitions(assignments)
    return _partition_records(image, topic.topic_id, assignments, placement, first=present)
