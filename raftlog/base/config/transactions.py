"""The settings of transaction coordinators and of `__transaction_state`. Names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.base.config.setting import INT_MAX, setting
from raftlog.base.config.topic import HOUR_MS


@dataclass(frozen=True, eq=False)
class TransactionSettings:
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
