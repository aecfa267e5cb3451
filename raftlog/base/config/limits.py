"""Limits of a cluster's metadata and of a broker's memory, and settings of the voters. Only the tables.

`raftlog.controller.metadata_limits` enforces the first, and `raftlog.base.memory` derives the parts of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raftlog.base.config.setting import INT_MAX, setting

MIB = 1 << 20

DERIVED = -1
"""The value of a setting that follows from another setting."""


def _bound(name: str, default: int, doc: str, *, at_most: int = INT_MAX) -> Any:
    return setting(
        name,
        "int",
        default,
        doc,
        scope="controller",
        update="cluster-wide",
        at_least=1,
        at_most=at_most,
    )


@dataclass(frozen=True, eq=False)
class MetadataBounds:
    """The limits that the active controller enforces."""

    raftlog_topics_max: int = _bound(
        "raftlog.topics.max", 50_000, "Most topics of the cluster; further ones are refused: POLICY_VIOLATION"
    )
    raftlog_partitions_max: int = _bound(
        "raftlog.partitions.max",
        200_000,
        "Most partitions of all topics together; further ones are refused: POLICY_VIOLATION",
    )
    raftlog_topic_partitions_max: int = _bound(
        "raftlog.topic.partitions.max",
        10_000,
        "Most partitions of one topic; more are refused: INVALID_PARTITIONS",
    )
    raftlog_configs_max: int = _bound(
        "raftlog.configs.max",
        100_000,
        "Most dynamic configs of all resources together; further ones are refused: POLICY_VIOLATION",
    )
    raftlog_group_configs_max: int = _bound(
        "raftlog.group.configs.max",
        10_000,
        "Most groups with configs of their own, whether they exist or not; further ones are refused",
    )
    raftlog_delegation_tokens_max: int = _bound(
        "raftlog.delegation.tokens.max",
        10_000,
        "Most delegation tokens that the cluster has; a user has a thousand at most",
    )
    raftlog_security_max: int = _bound(
        "raftlog.security.max",
        10_000,
        "Most rules, credentials and client quotas together; further ones are refused: POLICY_VIOLATION",
    )
    raftlog_metadata_max_bytes: int = _bound(
        "raftlog.metadata.max.bytes",
        64 * MIB,
        "Most bytes of topics, partitions, configs and brokers together; what would add to them is refused",
        at_most=256 * MIB,
    )


@dataclass(frozen=True, eq=False)
class MemorySettings:
    """The budget for memory, and its two largest parts."""

    raftlog_memory_max_bytes: int = setting(
        "raftlog.memory.max.bytes",
        "long",
        DERIVED,
        "Most memory for what clients and brokers send and are sent; -1: half of what the container or else the "
        "machine has, 512 MiB at most",
        at_least=DERIVED,
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        "long",
        DERIVED,
        "Most bytes of requests in memory, beyond which connections are not read; -1: three sixteenths of "
        "raftlog.memory.max.bytes, where Kafka sets no limit",
        at_least=DERIVED,
    )
    raftlog_answers_max_bytes: int = setting(
        "raftlog.answers.max.bytes",
        "long",
        DERIVED,
        "Most bytes of answers that clients have not taken yet, beyond which requests wait; -1: a quarter of "
        "raftlog.memory.max.bytes",
        at_least=DERIVED,
    )


@dataclass(frozen=True, eq=False)
class QuorumSettings:
    """The settings for a controller's elections, and for becoming a voter."""

    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        "int",
        400,
        "A follower stands for election after this to twice this long without a leader",
        scope="controller",
        at_least=50,
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        "boolean",
        False,
        "A controller makes itself a voter, and a node that is no controller any more leaves; with kraft.version 1",
        scope="node",
    )
