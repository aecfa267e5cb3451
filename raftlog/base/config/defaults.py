"""The broker settings that are defaults of topic configs, and those of transactions. Only the tables.

Most defaults of topics can be changed in a running cluster. Names and defaults are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raftlog.base.config.setting import INT_MAX, LONG_MAX, integer, setting, settings_of
from raftlog.base.config.topic import HOUR_MS, TopicConfig

_TOPICS = {row.synonyms[0][0]: row for _, row in settings_of(TopicConfig).values() if row.synonyms}
"""The row of a topic config, by the broker's setting of the same unit for its default."""


def _read_retention(text: str) -> int:
    """Read a time of retention. A broker's is never 0, as in Kafka: that deletes the records of every topic."""
    time = integer(text)
    if time == 0:
        raise ValueError("must be at least 1, or -1 for no limit")
    return time


def _default(name: str, otherwise: str = "", *, read: Callable[[str], Any] | None = None) -> Any:
    """Return the row of a topic config, as a setting of the broker's. `otherwise` describes the value while it is
    unset; by default, the topic config's default.
    """
    row = _TOPICS[name]
    return setting(
        name,
        row.kind,
        None if otherwise else row.default,
        f"Default of {'the topic config of this name' if row.name == name else row.name}{otherwise}",
        update="cluster-wide",
        at_least=row.at_least,
        at_most=row.at_most,
        choices=row.choices,
        read=read or row.read,
        show=row.show,
        applied=row.applied,
    )


@dataclass(frozen=True, eq=False)
class TopicDefaults:
    """The value of a topic config when the topic does not set it. None: the setting in the next coarser unit
    applies.
    """

    min_insync_replicas: int = _default("min.insync.replicas")
    unclean_leader_election_enable: bool = _default("unclean.leader.election.enable")
    message_max_bytes: int = _default("message.max.bytes")
    compression_type: str = _default("compression.type")
    compression_gzip_level: int = _default("compression.gzip.level")
    compression_lz4_level: int = _default("compression.lz4.level")
    compression_zstd_level: int = _default("compression.zstd.level")
    log_cleanup_policy: tuple[str, ...] = _default("log.cleanup.policy")
    log_retention_ms: int | None = _default(
        "log.retention.ms", "; takes precedence over the minutes and the hours", read=_read_retention
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        "int",
        None,
        "Default of retention.ms, in minutes; takes precedence over the hours",
        at_least=-1,
        read=_read_retention,
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        "int",
        168,
        "Default of retention.ms, in hours",
        at_least=-1,
        read=_read_retention,
    )
    log_retention_bytes: int = _default("log.retention.bytes")
    log_segment_bytes: int = _default("log.segment.bytes")
    log_roll_ms: int | None = _default("log.roll.ms", "; takes precedence over the hours")
    log_roll_hours: int = setting("log.roll.hours", "int", 168, "Default of segment.ms, in hours", at_least=1)
    log_roll_jitter_ms: int | None = _default("log.roll.jitter.ms", "; takes precedence over the hours")
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours", "int", 0, "Default of segment.jitter.ms, in hours", at_least=0
    )
    log_index_size_max_bytes: int = _default("log.index.size.max.bytes")
    log_index_interval_bytes: int = _default("log.index.interval.bytes")
    log_segment_delete_delay_ms: int = _default("log.segment.delete.delay.ms")
    log_preallocate: bool = _default("log.preallocate")
    log_flush_interval_messages: int = _default("log.flush.interval.messages")
    log_flush_interval_ms: int | None = _default(
        "log.flush.interval.ms", "; unset, log.flush.scheduler.interval.ms"
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        "long",
        LONG_MAX,
        "Default of flush.ms when log.flush.interval.ms is unset",
        at_least=0,
    )
    log_message_timestamp_type: str = _default("log.message.timestamp.type")
    log_message_timestamp_before_max_ms: int = _default("log.message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = _default("log.message.timestamp.after.max.ms")
    log_cleaner_delete_retention_ms: int = _default("log.cleaner.delete.retention.ms")
    log_cleaner_min_compaction_lag_ms: int = _default("log.cleaner.min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = _default("log.cleaner.max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = _default("log.cleaner.min.cleanable.ratio")


@dataclass(frozen=True, eq=False)
class TransactionSettings(TopicDefaults):
    """The settings of a transaction coordinator, and of `__transaction_state`."""

    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        "int",
        900_000,
        "Longest transaction timeout a producer may ask for",
        at_least=1,
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        "int",
        7 * 24 * HOUR_MS,
        "A transactional id expires after this time without use",
        at_least=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        3_600_000,
        "How often expired transactional ids are looked for",
        at_least=1,
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", "int", 50, "Partitions of __transaction_state", at_least=1
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        "short",
        3,
        "Replicas of __transaction_state; fewer when there are fewer brokers",
        at_least=1,
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        "int",
        2,
        "min.insync.replicas of __transaction_state; no more than it has replicas",
        at_least=1,
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        "int",
        4 << 20,
        "Segment size of __transaction_state; a new coordinator reads the newest segment whole",
        at_least=1,
    )
    raftlog_transaction_max_ids: int = setting(
        "raftlog.transaction.max.ids",
        "int",
        200_000,
        "Most transactional ids that one broker coordinates (0.7 kB each); others are refused: POLICY_VIOLATION",
        at_least=1,
        at_most=INT_MAX,
    )
    raftlog_transaction_max_partitions: int = setting(
        "raftlog.transaction.max.partitions",
        "int",
        500_000,
        "Most partitions in all open transactions that one broker coordinates (0.2 kB each); others are refused:"
        " POLICY_VIOLATION",
        at_least=1,
        at_most=INT_MAX,
    )
