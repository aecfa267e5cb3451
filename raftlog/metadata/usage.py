"""Computes how many bytes the parts of an image take at most once they are encoded, and the usage of a whole image.

An estimate must never be below what `raftlog.metadata.snapshot` writes, and must depend only on what creates, reassigns
or removes a thing. Leaders, ISRs and epochs change all the time, so they count with their largest encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.metadata.broker_requests import RegisterBroker
from raftlog.metadata.image import BrokerState, MetadataImage, TopicState, Usage
from raftlog.security.acls import Acl
from raftlog.security.quotas import Entity
from raftlog.security.tokens import DelegationToken

BASE_BYTES: Final = 256
"""The size of an empty image, which `Usage.size_bytes` does not include."""
TOPIC_BYTES: Final = 32
PARTITION_BYTES: Final = 56
REPLICA_BYTES: Final = 20
"""A broker id of 5 bytes in each of replicas, ISR, adding and removing replicas."""
RESOURCE_BYTES: Final = 32
CONFIG_BYTES: Final = 10
_BROKER_BYTES: Final = 64
_ENDPOINT_BYTES: Final = 32
_DIRECTORY_BYTES: Final = 18
_FEATURE_BYTES: Final = 24
_ACL_BYTES: Final = 24
_TOKEN_BYTES: Final = 48
_PRINCIPAL_BYTES: Final = 5
SCRAM_BYTES: Final = 256
"""The size of a credential without the user's name: two keys of 64 bytes, and a salt (see `MAX_SALT_BYTES`)."""
VOTER_BYTES: Final = 24
DECOMMISSION_BYTES: Final = 12
_DEPARTED_BYTES: Final = 12
_ENTITY_BYTES: Final = 16
_QUOTA_BYTES: Final = 16


def partition_bytes(replicas: int) -> int:
    """Return the bytes of one partition with so many replicas."""
    return PARTITION_BYTES + REPLICA_BYTES * replicas


def topic_bytes(topic: TopicState) -> int:
    """Return the bytes of a topic with its partitions, without its configs."""
    partitions = sum(partition_bytes(len(each.replicas)) for each in topic.partitions)
    return TOPIC_BYTES + text_bytes(topic.name) + partitions


def resource_bytes(name: str, configs: Mapping[str, str]) -> int:
    """Return the bytes of one resource's configs; 0 without any."""
    if not configs:
        return 0
    entries = sum(config_bytes(key, value) for key, value in configs.items())
    return RESOURCE_BYTES + text_bytes(name) + entries


def config_bytes(key: str, value: str) -> int:
    """Return the bytes of one config entry."""
    return CONFIG_BYTES + text_bytes(key) + text_bytes(value)


def broker_bytes(broker: BrokerState | RegisterBroker) -> int:
    """Return the bytes of a broker's registration."""
    size_bytes = _BROKER_BYTES + text_bytes(broker.rack or "") + _DIRECTORY_BYTES * len(broker.directory_ids)
    for each in broker.endpoints:
        texts = (each.listener, each.host, each.security_protocol)
        size_bytes += _ENDPOINT_BYTES + sum(map(text_bytes, texts))
    return size_bytes + sum(_FEATURE_BYTES + text_bytes(each.name) for each in broker.features)


def unregistered_bytes(broker: BrokerState) -> int:
    """Return the bytes of a last registration that is kept; a snapshot also has its directories for older releases."""
    return _DEPARTED_BYTES + broker_bytes(broker) + _DIRECTORY_BYTES * len(broker.directory_ids)


def acl_bytes(acl: Acl) -> int:
    """Return the bytes of an ACL."""
    return _ACL_BYTES + sum(map(text_bytes, (acl.resource_name, acl.principal, acl.host)))


def scram_bytes(user: str) -> int:
    """Return the bytes of one credential of a user."""
    return SCRAM_BYTES + text_bytes(user)


def token_bytes(token: DelegationToken) -> int:
    """Return the bytes that a delegation token takes, the same before and after it is renewed."""
    names = (token.token_id, token.owner, token.requester, *token.renewers)
    return _TOKEN_BYTES + sum(_PRINCIPAL_BYTES + text_bytes(each) for each in names)


def quota_bytes(entity: Entity, values: Mapping[str, float]) -> int:
    """Return the bytes of the quotas of one entity; 0 without any."""
    if not values:
        return 0
    names = sum(_ENTITY_BYTES + text_bytes(kind) + text_bytes(name or "") for kind, name in entity)
    return names + sum(_QUOTA_BYTES + text_bytes(key) for key in values)


def text_bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8, without its length."""
    return len(text) if text.isascii() else len(text.encode())


def usage_of(image: MetadataImage) -> Usage:
    """Return an image's usage, counted anew; O(image)."""
    kinds = [kind for kind, _ in image.configs]
    return Usage(
        partitions=sum(len(topic.partitions) for topic in image.topics.values()),
        configs=sum(map(len, image.configs.values())),
        groups=kinds.count("group"),
        subscriptions=kinds.count("client-metrics"),
        security=len(image.acls) + len(image.scram) + sum(map(len, image.quotas.values())),
        tokens=len(image.tokens),
        size_bytes=sum(map(topic_bytes, image.topics.values()))
        + sum(map(broker_bytes, image.brokers.values()))
        + sum(map(unregistered_bytes, image.unregistered.values()))
        + sum(resource_bytes(name, values) for (_, name), values in image.configs.items())
        + sum(map(acl_bytes, image.acls))
        + sum(scram_bytes(user) for user, _ in image.scram)
        + sum(map(token_bytes, image.tokens.values()))
        + sum(quota_bytes(entity, values) for entity, values in image.quotas.items())
        + VOTER_BYTES * len(image.voters)
        + DECOMMISSION_BYTES * len(image.decommissions),
    )
