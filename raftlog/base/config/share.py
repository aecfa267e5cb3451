"""Broker configs of share groups and of `__share_group_state`, and the type of `share.auto.offset.reset` (KIP-932).

Names, defaults and bounds are as in Apache Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from raftlog.base.config.setting import INT_MAX, LONG_MAX, setting

SHARE_ASSIGNORS: Final = ("simple",)

BY_DURATION: Final = "by_duration:"

_PART: Final = r"(?:([+-]?\d+){})?"
_DURATION: Final = re.compile(
    "([+-]?)P"
    + _PART.format("D")
    + "(?:T(?=[+-]?\\d)"
    + _PART.format("H")
    + _PART.format("M")
    + r"(?:([+-]?)(\d+)(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
"""An ISO 8601 duration of days, hours, minutes and seconds, with the syntax that Java reads.

Each part may have a sign, and the seconds may have a decimal comma.
"""


class AutoOffsetReset(NamedTuple):
    """A value of `share.auto.offset.reset`: the offset at which a share group begins to read a partition.

    `text` is the value as it was configured. `duration_ms` is set only for `by_duration`.
    """

    strategy: Literal["latest", "earliest", "by_duration"]
    text: str
    duration_ms: int = 0

    def show(self) -> str:
        return self.text


LATEST: Final = AutoOffsetReset("latest", "latest")
EARLIEST: Final = AutoOffsetReset("earliest", "earliest")


def read_auto_offset_reset(text: str) -> AutoOffsetReset:
    """Parse a strategy. Raise ValueError with the rule."""
    for each in (LATEST, EARLIEST):
        if text == each.text:
            return each
    duration_ms = _read_duration(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if duration_ms is None:
        raise ValueError(f"must be latest, earliest, or {BY_DURATION} with a duration such as P1DT12H30M")
    return AutoOffsetReset("by_duration", text, duration_ms)


def _read_duration(text: str) -> int | None:
    """Return milliseconds, rounded down; None for what is no duration, or is negative or beyond 64 bits."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.group(*range(2, 7))):
        return None
    sign, days, hours, minutes, seconds_sign, seconds, fraction = found.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
    nanos = int(seconds or 0) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))
    total = whole * 1_000_000_000 + (-nanos if seconds_sign == "-" else nanos)
    total_ms = (-total if sign == "-" else total) // 1_000_000
    return total_ms if 0 <= total_ms <= LONG_MAX else None


def _read_assignors(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if names != SHARE_ASSIGNORS:
        raise ValueError(f"must be {SHARE_ASSIGNORS[0]}, the only one")
    return names


@dataclass(frozen=True, eq=False)
class ShareGroupSettings:
    """The limits of all share groups of a broker, the bounds of a group's own configs, and the share coordinators."""

    group_share_assignors: tuple[str, ...] = setting(
        "group.share.assignors",
        "list",
        SHARE_ASSIGNORS,
        "The assignor of share groups",
        read=_read_assignors,
        show=",".join,
    )
    group_share_max_size: int = setting(
        "group.share.max.size", "int", 200, "Most members of a share group", at_least=1, at_most=1_000
    )
    group_share_max_share_sessions: int = setting(
        "group.share.max.share.sessions",
        "int",
        2_000,
        "Most share sessions of a broker: members of share groups that read from it",
        at_least=1,
    )
    raftlog_share_max_states: int = setting(
        "raftlog.share.max.states",
        "int",
        500_000,
        "Most states of share partitions that one broker coordinates (0.5 kB each); others are refused:"
        " POLICY_VIOLATION",
        at_least=1,
        at_most=INT_MAX,
    )
    raftlog_share_max_partitions: int = setting(
        "raftlog.share.max.partitions",
        "int",
        20_000,
        "Most share partitions that one broker has in memory as a leader (a few kB each); an idle one makes room for"
        " another, and without one their members get no records",
        at_least=1,
        at_most=INT_MAX,
    )
    raftlog_share_max_session_partitions: int = setting(
        "raftlog.share.max.session.partitions",
        "int",
        400_000,
        "Most partitions of all share sessions of a broker together (0.25 kB each); a session has at most a fourth:"
        " SHARE_SESSION_LIMIT_REACHED",
        at_least=4,
        at_most=INT_MAX,
    )
    group_share_initialize_retry_interval_ms: int = setting(
        "group.share.initialize.retry.interval.ms",
        "int",
        30_000,
        "Pause before a share group's states that could not be initialized are tried again",
        at_least=1,
    )
    group_share_heartbeat_interval_ms: int = setting(
        "group.share.heartbeat.interval.ms",
        "int",
        5_000,
        "The heartbeat interval that members of share groups get",
        at_least=1,
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        "group.share.min.heartbeat.interval.ms",
        "int",
        5_000,
        "Least that a share group's heartbeat interval may be",
        at_least=1,
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        "group.share.max.heartbeat.interval.ms",
        "int",
        15_000,
        "Most that a share group's heartbeat interval may be",
        at_least=1,
    )
    group_share_session_timeout_ms: int = setting(
        "group.share.session.timeout.ms",
        "int",
        45_000,
        "A member of a share group that is silent for so long is taken out",
        at_least=1,
    )
    group_share_min_session_timeout_ms: int = setting(
        "group.share.min.session.timeout.ms",
        "int",
        45_000,
        "Least that a share group's session timeout may be",
        at_least=1,
    )
    group_share_max_session_timeout_ms: int = setting(
        "group.share.max.session.timeout.ms",
        "int",
        60_000,
        "Most that a share group's session timeout may be",
        at_least=1,
    )
    group_share_record_lock_duration_ms: int = setting(
        "group.share.record.lock.duration.ms",
        "int",
        30_000,
        "How long a member of a share group has a record before another may get it",
        at_least=1_000,
        at_most=3_600_000,
    )
    group_share_min_record_lock_duration_ms: int = setting(
        "group.share.min.record.lock.duration.ms",
        "int",
        15_000,
        "Least that a share group's lock duration may be",
        at_least=1_000,
        at_most=30_000,
    )
    group_share_max_record_lock_duration_ms: int = setting(
        "group.share.max.record.lock.duration.ms",
        "int",
        60_000,
        "Most that a share group's lock duration may be",
        at_least=30_000,
        at_most=3_600_000,
    )
    group_share_delivery_count_limit: int = setting(
        "group.share.delivery.count.limit",
        "int",
        5,
        "Most deliveries of a record in a share group, after which it is archived",
        at_least=2,
        at_most=10,
    )
    group_share_min_delivery_count_limit: int = setting(
        "group.share.min.delivery.count.limit",
        "int",
        2,
        "Least that a share group's limit of deliveries may be",
        at_least=2,
        at_most=5,
    )
    group_share_max_delivery_count_limit: int = setting(
        "group.share.max.delivery.count.limit",
        "int",
        10,
        "Most that a share group's limit of deliveries may be",
        at_least=5,
        at_most=25,
    )
    group_share_partition_max_record_locks: int = setting(
        "group.share.partition.max.record.locks",
        "int",
        2_000,
        "Most records of a partition that a share group has in flight",
        at_least=100,
        at_most=10_000,
    )
    group_share_min_partition_max_record_locks: int = setting(
        "group.share.min.partition.max.record.locks",
        "int",
        100,
        "Least that a share group's limit of records in flight may be",
        at_least=100,
        at_most=2_000,
    )
    group_share_max_partition_max_record_locks: int = setting(
        "group.share.max.partition.max.record.locks",
        "int",
        4_000,
        "Most that a share group's limit of records in flight may be",
        at_least=2_000,
        at_most=10_000,
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "errors.deadletterqueue.topic.name.prefix",
        "string",
        "dlq.",
        "The beginning of the names that dead-letter topics of share groups may have; empty for any name",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        "errors.deadletterqueue.auto.create.topics.enable",
        "boolean",
        False,
        "Whether the dead-letter topic of a share group is created when it is needed",
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        "share.coordinator.state.topic.num.partitions",
        "int",
        50,
        "Partitions of __share_group_state",
        at_least=1,
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        "share.coordinator.state.topic.replication.factor",
        "short",
        3,
        "Replicas of __share_group_state; fewer when there are fewer brokers",
        at_least=1,
    )
    share_coordinator_state_topic_min_isr: int = setting(
        "share.coordinator.state.topic.min.isr",
        "short",
        2,
        "min.insync.replicas of __share_group_state; no more than it has replicas",
        at_least=1,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        "share.coordinator.state.topic.segment.bytes",
        "int",
        100 << 20,
        "Segment size of __share_group_state",
        at_least=1,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        "int",
        500,
        "Updates of a share partition's state between two snapshots of it",
        at_least=0,
        at_most=500,
    )
    share_coordinator_write_timeout_ms: int = setting(
        "share.coordinator.write.timeout.ms",
        "int",
        5_000,
        "How long a share coordinator may take to commit a change of a state",
        at_least=1,
        at_most=INT_MAX,
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        "share.coordinator.state.topic.prune.interval.ms",
        "int",
        300_000,
        "How often records of __share_group_state that do not count are deleted",
        at_least=1,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        "int",
        300_000,
        "The age at which a state of a share partition that does not change gets a new snapshot",
        at_least=1,
    )
