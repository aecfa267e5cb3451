"""Limits of a cluster's metadata, which every decision that adds to it checks first.

Every node keeps the whole image in memory, writes it into snapshots and loads it at start, so its size must be bounded.
Only growth is refused. A change that makes the image smaller is allowed, also above a limit that was lowered. The
internal topics are never refused: without them no group and no transaction works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from raftlog.base.config import NodeConfig
from raftlog.base.config.client_metrics import MOST_SUBSCRIPTIONS
from raftlog.base.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidRegistration,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
)
from raftlog.base.types import INTERNAL_TOPICS, NAME_MAX_CHARS
from raftlog.controller.decisions import BatchLimit
from raftlog.metadata.broker_requests import RegisterBroker
from raftlog.metadata.effective_config import effective_broker_config
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.usage import (
    REPLICA_BYTES,
    TOPIC_BYTES,
    acl_bytes,
    broker_bytes,
    partition_bytes,
    quota_bytes,
    resource_bytes,
    scram_bytes,
    text_bytes,
    token_bytes,
)
from raftlog.security.acls import Acl
from raftlog.security.quotas import Entity
from raftlog.security.tokens import DelegationToken

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

MAX_BROKERS: Final = 1_000
"""Registered brokers, stopped brokers included."""
MAX_REGISTRATION_BYTES: Final = 16 * 1024
"""The maximum size of a broker's registration: its endpoints, rack and log directories."""
MAX_VALUE_LENGTH: Final = 32_767
"""Characters of a config's value (Kafka's limit)."""
MAX_GROUP_NAME_LENGTH: Final = 249
"""Characters of the name of a group that has configs."""


class Growth(NamedTuple):
    """The growth by a decision; negative for removals."""

    topics: int = 0
    partitions: int = 0
    configs: int = 0
    groups: int = 0
    subscriptions: int = 0
    security: int = 0
    tokens: int = 0
    size_bytes: int = 0


class _Limit(NamedTuple):
    noun: str
    setting: str
    most: int


def _limits(config: NodeConfig) -> tuple[_Limit, ...]:
    """Return the limit of each field of Growth, in their order."""
    return (
        _Limit("topics", "raftlog.topics.max", config.raftlog_topics_max),
        _Limit("partitions", "raftlog.partitions.max", config.raftlog_partitions_max),
        _Limit("dynamic configs", "raftlog.configs.max", config.raftlog_configs_max),
        _Limit("groups with configs", "raftlog.group.configs.max", config.raftlog_group_configs_max),
        _Limit("client metrics subscriptions", "their limit", MOST_SUBSCRIPTIONS),
        _Limit("rules, credentials and quotas", "raftlog.security.max", config.raftlog_security_max),
        _Limit("delegation tokens", "raftlog.delegation.tokens.max", config.raftlog_delegation_tokens_max),
        _Limit("bytes of metadata", "raftlog.metadata.max.bytes", config.raftlog_metadata_max_bytes),
    )


class MetadataLimits:
    """The room that is left in the cluster. Each decision makes a new object, and each of its items takes its
    growth.
    """

    def __init__(self, image: MetadataImage, config: NodeConfig) -> None:
        self.batch_limit = BatchLimit()
        """The room that is left in the batch of this decision."""
        self._config = effective_broker_config(config, image)
        usage = image.usage
        self._used = Growth(
            len(image.topics),
            usage.partitions,
            usage.configs,
            usage.groups,
            usage.subscriptions,
            usage.security,
            usage.tokens,
            usage.size_bytes,
        )

    def check_topic(self, present: int, added: int) -> None:
        """Raise InvalidPartitions or PolicyViolation if a topic of this many partitions cannot have this many more."""
        self.batch_limit.check(partitions=added)
        partitions = present + added
        most = self._config.raftlog_topic_partitions_max
        if partitions > most:
            raise InvalidPartitions(
                f"a topic has at most {most} partitions (raftlog.topic.partitions.max), not {partitions}"
            )

    def add_topic(self, name: str, assignments: list[tuple[int, ...]], configs: Mapping[str, str]) -> None:
        """Take room for a new topic. Raise PolicyViolation, InvalidConfig."""
        for key, value in configs.items():
            checked_value(key, value)
        self.batch_limit.check(partitions=len(assignments), others=1 + len(configs))
        size_bytes = TOPIC_BYTES + text_bytes(name) + resource_bytes(name, configs)
        growth = Growth(topics=1, configs=len(configs), size_bytes=size_bytes)
        self._take(_with_partitions(growth, assignments), exempt=name in INTERNAL_TOPICS)
        self.batch_limit.reserve(partitions=len(assignments), others=1 + len(configs))

    def add_partitions(self, assignments: list[tuple[int, ...]]) -> None:
        """Take room for partitions of an existing topic. Raise PolicyViolation."""
        self.batch_limit.check(partitions=len(assignments))
        self._take(_with_partitions(Growth(), assignments))
        self.batch_limit.reserve(partitions=len(assignments))

    def add_replicas(self, count: int) -> None:
        """Take room for more replicas of an existing partition. Raise PolicyViolation."""
        self._take(Growth(size_bytes=REPLICA_BYTES * count))

    def change_configs(
        self, resource: tuple[str, str], before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        """Take room for the growth of one resource's configs. Raise PolicyViolation, InvalidRequest."""
        kind, name = resource
        appears = bool(after) - bool(before)
        self._take(
            Growth(
                configs=len(after) - len(before),
                groups=appears if kind == "group" else 0,
                subscriptions=appears if kind == "client-metrics" else 0,
                size_bytes=resource_bytes(name, after) - resource_bytes(name, before),
            )
        )

    def add_acl(self, acl: Acl) -> None:
        """Take room for one more ACL. Raise PolicyViolation."""
        self._take(Growth(security=1, size_bytes=acl_bytes(acl)))

    def add_scram(self, user: str) -> None:
        """Take room for one more credential of a user. Raise PolicyViolation."""
        self._take(Growth(security=1, size_bytes=scram_bytes(user)))

    def add_token(self, token: DelegationToken) -> None:
        """Take room for one more delegation token. Raise PolicyViolation."""
        self._take(Growth(tokens=1, size_bytes=token_bytes(token)))

    def add_quotas(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Take room for further quotas of an entity, as if it had none before. Raise PolicyViolation."""
        self._take(Growth(security=len(values), size_bytes=quota_bytes(entity, values)))

    def _take(self, growth: Growth, *, exempt: bool = False) -> None:
        for used, added, limit in zip(self._used, growth, _limits(self._config), strict=True):
            if added > 0 and used + added > limit.most and not exempt:
                raise PolicyViolation(
                    f"the cluster has {used} {limit.noun}; {added} more would exceed "
                    f"{limit.setting}, which is {limit.most}"
                )
        self._used = Growth(*map(sum, zip(self._used, growth, strict=True)))


def _with_partitions(growth: Growth, assignments: list[tuple[int, ...]]) -> Growth:
    size_bytes = growth.size_bytes + sum(partition_bytes(len(replicas)) for replicas in assignments)
    return growth._replace(partitions=len(assignments), size_bytes=size_bytes)


def checked_value(key: str, value: str) -> str:
    """Return a config's value. Raise InvalidConfig if it is too long."""
    if len(value) > MAX_VALUE_LENGTH:
        raise InvalidConfig(f"{key}: a value has at most {MAX_VALUE_LENGTH} characters")
    return value


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic, with the rule, for a name that no topic can have."""
    if not name:
        raise InvalidTopic("the empty string is not a topic name")
    if name in (".", ".."):
        raise InvalidTopic(f"{name!r} is not a topic name: it cannot be . or ..")
    if len(name) > NAME_MAX_CHARS:
        raise InvalidTopic(f"a topic name has at most {NAME_MAX_CHARS} characters, this one {len(name)}")
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopic(
            f"{name!r} is not a topic name: only ASCII letters, digits, '.', '_' and '-' are allowed"
        )


def check_group_name(name: str) -> None:
    """Raise InvalidRequest for a group that cannot have configs because of its name."""
    if not name:
        raise InvalidRequest("the resource name must be a group id, not empty")
    if len(name) > MAX_GROUP_NAME_LENGTH:
        raise InvalidRequest(
            f"a group with configs has a name of at most {MAX_GROUP_NAME_LENGTH} characters, not {len(name)}"
        )


def check_registration_size(image: MetadataImage, request: RegisterBroker) -> None:
    """Raise InvalidRegistration or PolicyViolation for a registration that is too large, or beyond the limit of
    brokers.
    """
    size_bytes = broker_bytes(request)
    if size_bytes > MAX_REGISTRATION_BYTES:
        raise InvalidRegistration(
            f"broker {request.broker_id} registers {size_bytes} bytes of endpoints, rack and log directories; "
            f"the limit is {MAX_REGISTRATION_BYTES}"
        )
    if request.broker_id not in image.brokers and len(image.brokers) >= MAX_BROKERS:
        raise PolicyViolation(
            f"the cluster has {len(image.brokers)} registered brokers, the most that it can have; "
            "unregister brokers that will not come back"
        )
