"""The configs of consumer groups (KIP-848): the broker's, for all of them, and each group's own (KIP-1142).

A group's own configs include what share groups have (KIP-932). Only the tables; names and defaults are Kafka's. Kafka's
configs of streams groups are not here, since there are no such groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.base.config.setting import INT_MAX, setting
from raftlog.base.config.share import LATEST, AutoOffsetReset, read_auto_offset_reset
from raftlog.base.types import TOPIC_NAME_RULE, is_legal_topic_name

CONSUMER_ASSIGNORS = ("uniform", "range")


def _read_assignors(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    unknown = sorted(set(names) - set(CONSUMER_ASSIGNORS))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not supported; must be one of {', '.join(CONSUMER_ASSIGNORS)}")
    return names


def _read_dead_letter_topic(text: str) -> str:
    if text.startswith("__"):
        raise ValueError("must not begin with __, as internal topics do")
    if text and not is_legal_topic_name(text):
        raise ValueError(TOPIC_NAME_RULE)
    return text


@dataclass(frozen=True, eq=False)
class ConsumerGroupSettings:
    """The limits of all consumer groups of a broker, and the bounds of a group's own configs."""

    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        "list",
        CONSUMER_ASSIGNORS,
        "Assignors that consumer groups may ask for; the first is the default",
        read=_read_assignors,
        show=",".join,
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        "int",
        5_000,
        "The heartbeat interval that members of consumer groups get",
        at_least=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        5_000,
        "Least that a consumer group's heartbeat interval may be",
        at_least=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        "int",
        15_000,
        "Most that a consumer group's heartbeat interval may be",
        at_least=1,
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        "int",
        45_000,
        "A member of a consumer group that is silent for so long is taken out",
        at_least=1,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        "int",
        45_000,
        "Least that a consumer group's session timeout may be",
        at_least=1,
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        "int",
        60_000,
        "Most that a consumer group's session timeout may be",
        at_least=1,
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", "int", INT_MAX, "Most members of a consumer group", at_least=1
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        "Whether groups may turn into consumer groups and back while they have members",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )


@dataclass(frozen=True)
class GroupConfig:
    """The configs of one group, whichever its protocol is (`group_config`)."""

    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        "int",
        45_000,
        "A member of this consumer group that is silent for so long is taken out",
        scope="group",
        update="cluster-wide",
        at_least=1,
        synonyms=(("group.consumer.session.timeout.ms", 1),),
    )
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        "int",
        5_000,
        "The heartbeat interval that members of this consumer group get",
        scope="group",
        update="cluster-wide",
        at_least=1,
        synonyms=(("group.consumer.heartbeat.interval.ms", 1),),
    )
    share_session_timeout_ms: int = setting(
        "share.session.timeout.ms",
        "int",
        45_000,
        "A member of this share group that is silent for so long is taken out",
        scope="group",
        update="cluster-wide",
        at_least=1,
        synonyms=(("group.share.session.timeout.ms", 1),),
    )
    share_heartbeat_interval_ms: int = setting(
        "share.heartbeat.interval.ms",
        "int",
        5_000,
        "The heartbeat interval that members of this share group get",
        scope="group",
        update="cluster-wide",
        at_least=1,
        synonyms=(("group.share.heartbeat.interval.ms", 1),),
    )
    share_record_lock_duration_ms: int = setting(
        "share.record.lock.duration.ms",
        "int",
        30_000,
        "How long a member has a record of this share group before another may get it",
        scope="group",
        update="cluster-wide",
        at_least=1_000,
        synonyms=(("group.share.record.lock.duration.ms", 1),),
    )
    share_delivery_count_limit: int = setting(
        "share.delivery.count.limit",
        "int",
        5,
        "Most deliveries of a record in this share group, after which it is archived",
        scope="group",
        update="cluster-wide",
        at_least=2,
        synonyms=(("group.share.delivery.count.limit", 1),),
    )
    share_partition_max_record_locks: int = setting(
        "share.partition.max.record.locks",
        "int",
        2_000,
        "Most records of a partition that this share group has in flight",
        scope="group",
        update="cluster-wide",
        at_least=100,
        synonyms=(("group.share.partition.max.record.locks", 1),),
    )
    share_auto_offset_reset: AutoOffsetReset = setting(  # noqa: RUF009 (it is dataclasses.field)
        "share.auto.offset.reset",
        "string",
        LATEST,
        "Where this share group begins to read a partition: latest, earliest, or by_duration: and a duration",
        scope="group",
        update="cluster-wide",
        read=read_auto_offset_reset,
        show=AutoOffsetReset.show,
    )
    share_isolation_level: str = setting(
        "share.isolation.level",
        "string",
        "read_uncommitted",
        "Whether this share group gets records of transactions before they are committed",
        scope="group",
        update="cluster-wide",
        choices=("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = setting(
        "share.renew.acknowledge.enable",
        "boolean",
        True,
        "Whether members of this share group may renew their locks",
        scope="group",
        update="cluster-wide",
    )
    errors_deadletterqueue_topic_name: str = setting(
        "errors.deadletterqueue.topic.name",
        "string",
        "",
        "The topic that gets a dead letter for each record that this share group gives up; empty for none",
        scope="group",
        update="cluster-wide",
        read=_read_dead_letter_topic,
    )
    errors_deadletterqueue_copy_record_enable: bool = setting(
        "errors.deadletterqueue.copy.record.enable",
        "boolean",
        False,
        "Whether a dead letter has the key and the value of its record, beside the headers that name it",
        scope="group",
        update="cluster-wide",
    )
