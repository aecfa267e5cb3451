"""The broker settings that are defaults of topic configs. Names and defaults are Kafka's.

Most of them can be changed while the cluster runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raftlog.base.config.setting import LONG_MAX, integer, setting, settings_of
from raftlog.base.config.topic import TopicConfig

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
