"""The broker settings that are defaults of topic configs; a running cluster takes changes of most. Only the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raftlog.base.config_setting import LONG_MAX, Kind, setting
from raftlog.base.config_topic import CODECS, HOUR_MS


def _default_of_topics(name: str, kind: Kind, default: Any, doc: str, **columns: Any) -> Any:
    return setting(name, kind, default, doc, update="cluster-wide", **columns)


@dataclass(frozen=True, eq=False)
class TopicDefaults:
    """The value of a topic config when the topic does not set it. None: the next coarser unit says it."""

    min_insync_replicas: int = _default_of_topics(
        "min.insync.replicas", "int", 1, "Default of the topic config of this name", at_least=1
    )
    unclean_leader_election_enable: bool = _default_of_topics(
        "unclean.leader.election.enable", "boolean", False, "Default of the topic config of this name"
    )
    message_max_bytes: int = _default_of_topics(
        "message.max.bytes", "int", 1_048_588, "Default of max.message.bytes", at_least=0
    )
    compression_type: str = _default_of_topics(
        "compression.type",
        "string",
        "producer",
        "Default of the topic config of this name",
        choices=CODECS,
        applied=False,
    )
    compression_gzip_level: int = _default_of_topics(
        "compression.gzip.level",
        "int",
        -1,
        "Default of the topic config of this name",
        at_least=-1,
        at_most=9,
        applied=False,
    )
    compression_lz4_level: int = _default_of_topics(
        "compression.lz4.level",
        "int",
        9,
        "Default of the topic config of this name",
        at_least=1,
        at_most=17,
        applied=False,
    )
    compression_zstd_level: int = _default_of_topics(
        "compression.zstd.level",
        "int",
        3,
        "Default of the topic config of this name",
        at_least=-131_072,
        at_most=22,
        applied=False,
    )
    log_cleanup_policy: tuple[str, ...] = _default_of_topics(
        "log.cleanup.policy", "list", ("delete",), "Default of cleanup.policy", choices=("compact", "delete")
    )
    log_retention_ms: int | None = _default_of_topics(
        "log.retention.ms",
        "long",
        None,
        "Default of retention.ms; goes before the minutes and the hours",
        at_least=-1,
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        "int",
        None,
        "Default of retention.ms, in minutes; goes before the hours",
        at_least=-1,
    )
    log_retention_hours: int = setting(
        "log.retention.hours", "int", 168, "Default of retention.ms, in hours", at_least=-1
    )
    log_retention_bytes: int = _default_of_topics(
        "log.retention.bytes", "long", -1, "Default of retention.bytes", at_least=-1
    )
    log_segment_bytes: int = _default_of_topics(
        "log.segment.bytes", "int", 1_073_741_824, "Default of segment.bytes", at_least=14
    )
    log_roll_ms: int | None = _default_of_topics(
        "log.roll.ms", "long", None, "Default of segment.ms; goes before the hours", at_least=1
    )
    log_roll_hours: int = setting("log.roll.hours", "int", 168, "Default of segment.ms, in hours", at_least=1)
    log_roll_jitter_ms: int | None = _default_of_topics(
        "log.roll.jitter.ms", "long", None, "Default of segment.jitter.ms; goes before the hours", at_least=0
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours", "int", 0, "Default of segment.jitter.ms, in hours", at_least=0
    )
    log_index_size_max_bytes: int = _default_of_topics(
        "log.index.size.max.bytes", "int", 10_485_760, "Default of segment.index.bytes", at_least=4
    )
    log_index_interval_bytes: int = _default_of_topics(
        "log.index.interval.bytes", "int", 4096, "Default of index.interval.bytes", at_least=0
    )
    log_segment_delete_delay_ms: int = _default_of_topics(
        "log.segment.delete.delay.ms", "long", 60_000, "Default of file.delete.delay.ms", at_least=0
    )
    log_preallocate: bool = _default_of_topics(
        "log.preallocate", "boolean", False, "Default of preallocate", applied=False
    )
    log_flush_interval_messages: int = _default_of_topics(
        "log.flush.interval.messages", "long", LONG_MAX, "Default of flush.messages", at_least=1
    )
    log_flush_interval_ms: int | None = _default_of_topics(
        "log.flush.interval.ms",
        "long",
        None,
        "Default of flush.ms; unset, log.flush.scheduler.interval.ms",
        at_least=0,
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        "long",
        LONG_MAX,
        "Default of flush.ms when log.flush.interval.ms is unset",
        at_least=0,
    )
    log_message_timestamp_type: str = _default_of_topics(
        "log.message.timestamp.type",
        "string",
        "CreateTime",
        "Default of message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = _default_of_topics(
        "log.message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "Default of message.timestamp.before.max.ms",
        at_least=0,
    )
    log_message_timestamp_after_max_ms: int = _default_of_topics(
        "log.message.timestamp.after.max.ms",
        "long",
        HOUR_MS,
        "Default of message.timestamp.after.max.ms",
        at_least=0,
    )
    log_cleaner_delete_retention_ms: int = _default_of_topics(
        "log.cleaner.delete.retention.ms",
        "long",
        86_400_000,
        "Default of delete.retention.ms",
        at_least=0,
    )
    log_cleaner_min_compaction_lag_ms: int = _default_of_topics(
        "log.cleaner.min.compaction.lag.ms",
        "long",
        0,
        "Default of min.compaction.lag.ms",
        at_least=0,
    )
    log_cleaner_max_compaction_lag_ms: int = _default_of_topics(
        "log.cleaner.max.compaction.lag.ms",
        "long",
        LONG_MAX,
        "Default of max.compaction.lag.ms",
        at_least=1,
    )
    log_cleaner_min_cleanable_ratio: float = _default_of_topics(
        "log.cleaner.min.cleanable.ratio",
        "double",
        0.5,
        "Default of min.cleanable.dirty.ratio",
        at_least=0,
        at_most=1,
    )
