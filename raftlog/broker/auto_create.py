"""Topics that are created on the first request for them: auto.create.topics.enable and the internal topics.

The controller chooses partitions and replicas by its own num.partitions and default.replication.factor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from raftlog.base.errors import (
    NONE,
    InvalidReplicationFactor,
    InvalidTopic,
    KafkaError,
    LeaderNotAvailable,
    PolicyViolation,
    TopicAlreadyExists,
)
from raftlog.base.types import (
    CONSUMER_OFFSETS_TOPIC,
    SCHEMAS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from raftlog.broker.controller_requests import CONFIG_SIZE, ask_in_parts, wait_for_image, wait_for_leaders
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.metadata.controller_api import CreateTopics, CreateTopicsReply, NewTopic, TopicCreation
from raftlog.metadata.image import MetadataImage

TIMEOUT_MS: Final = 3_000
"""The timeout of a Metadata request's wait for the controller; clients retry."""

_TELLING: Final = frozenset({InvalidReplicationFactor.code, InvalidTopic.code, PolicyViolation.code})
"""Errors that a retry will not change."""


async def create_missing(broker: LocalBroker, names: Collection[str]) -> dict[str, int]:
    """Create topics with the brokers' defaults. Return the error code of each name, 0 for topics that exist now.

    Errors that may pass (no majority, a race) are LEADER_NOT_AVAILABLE, which clients retry.
    """
    return await create_topics(broker, await each_part(broker.env, names, partial(_new_topic, broker)))


async def create_topics(broker: LocalBroker, topics: Sequence[NewTopic]) -> dict[str, int]:
    """Create topics. Return the error code of each name, as `create_missing`."""
    codes: dict[str, int] = {}
    asked = ask_in_parts(
        broker,
        topics,
        CreateTopics,
        CreateTopicsReply,
        timeout_ms=TIMEOUT_MS,
        size_of=lambda each: creation_size(broker, each),
    )
    async for some, reply in asked:
        if isinstance(reply, KafkaError):
            codes |= dict.fromkeys([each.name for each in some], LeaderNotAvailable.code)
            continue
        answered = {each.name: _code(each) for each in reply.results}
        created = [name for name, code in answered.items() if code == NONE]
        await wait_for_image(broker, partial(_all_there, created))
        codes |= answered
    if not all(codes.values()):
        await wait_for_leaders(broker)
    return codes


def creation_size(broker: LocalBroker, topic: NewTopic) -> int:
    """Return the size of a topic's creation in parts: about its records."""
    partitions = len(topic.assignments) or topic.num_partitions
    return (
        1
        + CONFIG_SIZE * len(topic.configs)
        + (broker.config.num_partitions if partitions == -1 else partitions)
    )


def _code(result: TopicCreation) -> int:
    if result.error_code in (NONE, TopicAlreadyExists.code):
        return NONE
    return result.error_code if result.error_code in _TELLING else LeaderNotAvailable.code


def _all_there(names: Collection[str], image: MetadataImage) -> bool:
    return all(name in image.topics for name in names)


def _new_topic(broker: LocalBroker, name: str) -> NewTopic:
    if name == CONSUMER_OFFSETS_TOPIC:
        return offsets_topic(broker)
    if name == SHARE_GROUP_STATE_TOPIC:
        return share_state_topic(broker)
    if name == SCHEMAS_TOPIC and broker.config.schema_registry_listener is not None:
        return schemas_topic(broker)
    return transactions_topic(broker) if name == TRANSACTION_STATE_TOPIC else NewTopic(name)


def _replicas(broker: LocalBroker, wanted: int) -> int:
    """Return how many replicas a coordinators' topic gets: fewer than wanted only in a cluster of fewer nodes.

    Nodes that are down or have yet to register count. Otherwise an early group could leave the offsets of all groups
    with a single copy. Until enough brokers are there, the creation fails and is retried.
    """
    return min(wanted, max(len(broker.image().brokers), len(broker.voters() or broker.config.voters)))


def transactions_topic(broker: LocalBroker) -> NewTopic:
    """Return the creation request of __transaction_state."""
    config = broker.config
    replicas = _replicas(broker, config.transaction_state_log_replication_factor)
    return NewTopic(
        TRANSACTION_STATE_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def share_state_topic(broker: LocalBroker) -> NewTopic:
    """Return the creation request of __share_group_state. Its coordinators delete the records that do not count."""
    config = broker.config
    replicas = _replicas(broker, config.share_coordinator_state_topic_replication_factor)
    return NewTopic(
        SHARE_GROUP_STATE_TOPIC,
        num_partitions=config.share_coordinator_state_topic_num_partitions,
        replication_factor=replicas,
        configs={
            "cleanup.policy": "delete",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.share_coordinator_state_topic_min_isr, replicas)),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def offsets_topic(broker: LocalBroker) -> NewTopic:
    """Return the creation request of __consumer_offsets."""
    config = broker.config
    return NewTopic(
        CONSUMER_OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=_replicas(broker, config.offsets_topic_replication_factor),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def schemas_topic(broker: LocalBroker) -> NewTopic:
    """Return the creation request of _schemas. A registry orders its records by offset, so it has one partition."""
    replicas = _replicas(broker, broker.config.default_replication_factor)
    return NewTopic(
        SCHEMAS_TOPIC,
        num_partitions=1,
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "min.insync.replicas": str(min(2, replicas)),
            "unclean.leader.election.enable": "false",
        },
    )
