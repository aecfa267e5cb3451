"""Topics that come into being because somebody asks for them: auto.create.topics.enable and the internal topics.

The controller chooses partitions and replicas by its own num.partitions and default.replication.factor.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC
from raftlog.broker.asking import ask, published
from raftlog.broker.context import BrokerContext
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.requests import CreateTopics, CreateTopicsReply, NewTopic, TopicCreation

TOPIC_NAME_RULE: Final = (
    "a topic name is 1 to 249 of the characters [a-zA-Z0-9._-], but neither . nor .. alone"
)
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

TIMEOUT_MS: Final = 3_000
"""A Metadata request waits no longer for the controller; clients ask again."""

_TELLING: Final = frozenset({InvalidReplicationFactor.code, InvalidTopic.code, PolicyViolation.code})
"""Refusals that asking again will not change."""


def is_legal_topic_name(name: str) -> bool:
    """Say whether a topic can have this name, by TOPIC_NAME_RULE."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


async def create_missing(broker: BrokerContext, names: Collection[str]) -> dict[str, int]:
    """Create topics with the brokers' defaults; returns the error code of each name, 0 for those that exist now.

    Refusals that may pass (no majority, a race) are LEADER_NOT_AVAILABLE, which clients retry.
    """
    topics = tuple(_new_topic(broker, name) for name in names)
    try:
        reply = await ask(broker, CreateTopics(topics), CreateTopicsReply, timeout_ms=TIMEOUT_MS)
    except KafkaError:
        return dict.fromkeys(names, LeaderNotAvailable.code)
    codes = {each.name: _code(each) for each in reply.results}
    created = [name for name, code in codes.items() if code == NONE]
    await published(broker, lambda image: _all_there(image, created))
    return codes


def _code(result: TopicCreation) -> int:
    if result.error_code in (NONE, TopicAlreadyExists.code):
        return NONE
    return result.error_code if result.error_code in _TELLING else LeaderNotAvailable.code


def _all_there(image: MetadataImage, names: Collection[str]) -> bool:
    return all(name in image.topics for name in names)


def _new_topic(broker: BrokerContext, name: str) -> NewTopic:
    return offsets_topic(broker) if name == CONSUMER_OFFSETS_TOPIC else NewTopic(name)


def offsets_topic(broker: BrokerContext) -> NewTopic:
    """Return how __consumer_offsets is made: fewer replicas than configured only in a cluster of fewer nodes.

    Nodes that are down or have yet to register count, so that a group that comes early does not leave the offsets of
    all groups with one copy; until enough are there, the creation is refused and asked for again.
    """
    config = broker.config
    nodes = max(len(broker.image().brokers), len(config.voters))
    return NewTopic(
        CONSUMER_OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=min(config.offsets_topic_replication_factor, nodes),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )
