"""The topic configs: all of Apache Kafka, with Kafka's defaults. Only the table, not its effects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from raftlog.base.config.setting import LONG_MAX, Kind, distinct_words, integer, setting, words


def _topic(name: str, kind: Kind, default: Any, doc: str, **columns: Any) -> Any:
    return setting(name, kind, default, doc, scope="topic", update="cluster-wide", nullable=False, **columns)


def _from(*names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, 1) for name in names)


HOUR_MS = 3_600_000
MINUTE_MS = 60_000

STRATEGIES = tuple(
    f"io.confluent.kafka.serializers.subject.{name}Strategy"
    for name in ("TopicName", "RecordName", "TopicRecordName")
)
"""Confluent's names of the ways in which serializers find a subject."""

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_REPLICA = re.compile(r"\d+:\d+")


def _read_gzip_level(text: str) -> int:
    """Read a level. Kafka does not have 0, which stores without compression."""
    level = integer(text)
    if level == 0:
        raise ValueError("must be 1 to 9, or -1")
    return level


def _throttled_replicas(text: str) -> tuple[str, ...]:
    items = words(text)
    if items != ("*",) and not all(_REPLICA.fullmatch(each) for each in items):
        raise ValueError("must be *, or a list of partition:broker")
    return items


@dataclass(frozen=True)
class TopicConfig:
    """The configs of one topic. `TopicConfig()` is an unchanged topic under Kafka's own defaults."""

    cleanup_policy: tuple[str, ...] = _topic(
        "cleanup.policy",
        "list",
        ("delete",),
        "What happens to old segments: delete (retention), compact (keep the last record of each key), both or nothing",
        choices=("compact", "delete"),
        read=distinct_words,
        synonyms=_from("log.cleanup.policy"),
    )
    retention_ms: int = _topic(
        "retention.ms",
        "long",
        604_800_000,
        "How long records are kept; -1 for ever",
        at_least=-1,
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    retention_bytes: int = _topic(
        "retention.bytes",
        "long",
        -1,
        "How many bytes of a partition are kept; -1 without limit",
        at_least=-1,
        synonyms=_from("log.retention.bytes"),
    )
    segment_bytes: int = _topic(
        "segment.bytes",
        "int",
        1_073_741_824,
        "A segment that would grow past this is closed and a new one begun",
        at_least=14,
        synonyms=_from("log.segment.bytes"),
    )
    segment_ms: int = _topic(
        "segment.ms",
        "long",
        604_800_000,
        "A segment older than this is closed even when it is not full",
        at_least=1,
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    segment_jitter_ms: int = _topic(
        "segment.jitter.ms",
        "long",
        0,
        "Up to so much is taken off segment.ms at random, so that partitions do not roll all at once",
        at_least=0,
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_index_bytes: int = _topic(
        "segment.index.bytes",
        "int",
        10_485_760,
        "Largest size of a segment's offset or time index; a full index closes the segment",
        at_least=4,
        synonyms=_from("log.index.size.max.bytes"),
    )
    index_interval_bytes: int = _topic(
        "index.interval.bytes",
        "int",
        4096,
        "So many bytes of log between two entries of the offset index",
        at_least=0,
        synonyms=_from("log.index.interval.bytes"),
    )
    file_delete_delay_ms: int = _topic(
        "file.delete.delay.ms",
        "long",
        60_000,
        "So long a removed segment's file stays on disk under the name .deleted",
        at_least=0,
        synonyms=_from("log.segment.delete.delay.ms"),
    )
    flush_messages: int = _topic(
        "flush.messages",
        "long",
        LONG_MAX,
        "Sync after so many records under log.flush.policy=os (commit syncs before acknowledging)",
        at_least=1,
        synonyms=_from("log.flush.interval.messages"),
    )
    flush_ms: int = _topic(
        "flush.ms",
        "long",
        LONG_MAX,
        "Sync at least this often under log.flush.policy=os (commit syncs before acknowledging)",
        at_least=0,
        synonyms=_from("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    preallocate: bool = _topic(
        "preallocate",
        "boolean",
        False,
        "Reserve the disk space of a new segment at once",
        applied=False,
        synonyms=_from("log.preallocate"),
    )
    max_message_bytes: int = _topic(
        "max.message.bytes",
        "int",
        1_048_588,
        "Largest record batch (as sent, after compression) that is accepted",
        at_least=0,
        synonyms=_from("message.max.bytes"),
    )
    message_downconversion_enable: bool = _topic(
        "message.downconversion.enable",
        "boolean",
        True,
        "Without effect since Kafka 4.0: there is one message format",
        applied=False,
    )
    message_timestamp_type: str = _topic(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "Whether a record carries the producer's time or the time it was appended",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=_from("log.message.timestamp.type"),
    )
    message_timestamp_before_max_ms: int = _topic(
        "message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "A CreateTime further in the past than this is refused",
        at_least=0,
        synonyms=_from("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_after_max_ms: int = _topic(
        "message.timestamp.after.max.ms",
        "long",
        HOUR_MS,
        "A CreateTime further in the future than this is refused",
        at_least=0,
        synonyms=_from("log.message.timestamp.after.max.ms"),
    )
    compression_type: str = _topic(
        "compression.type",
        "string",
        "producer",
        "Codec of the topic: leaders compress batches of other codecs anew. producer keeps them as they were sent",
        choices=CODECS,
        synonyms=_from("compression.type"),
    )
    compression_gzip_level: int = _topic(
        "compression.gzip.level",
        "int",
        -1,
        "Level when compression.type is gzip: 1 to 9, or -1 for the library's default",
        at_least=-1,
        at_most=9,
        read=_read_gzip_level,
        synonyms=_from("compression.gzip.level"),
    )
    compression_lz4_level: int = _topic(
        "compression.lz4.level",
        "int",
        9,
        "Level when compression.type is lz4",
        at_least=1,
        at_most=17,
        synonyms=_from("compression.lz4.level"),
    )
    compression_zstd_level: int = _topic(
        "compression.zstd.level",
        "int",
        3,
        "Level when compression.type is zstd",
        at_least=-131_072,
        at_most=22,
        synonyms=_from("compression.zstd.level"),
    )
    min_insync_replicas: int = _topic(
        "min.insync.replicas",
        "int",
        1,
        "With fewer in-sync replicas than this, acks=all is refused and the high watermark does not advance",
        at_least=1,
        synonyms=_from("min.insync.replicas"),
    )
    unclean_leader_election_enable: bool = _topic(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Let a replica that is not in sync become leader when no other is left; loses records",
        synonyms=_from("unclean.leader.election.enable"),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _topic(
        "leader.replication.throttled.replicas",
        "list",
        (),
        "Replicas partition:broker, or *, for which the leader throttles replicas that catch up (KIP-73)",
        read=_throttled_replicas,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _topic(
        "follower.replication.throttled.replicas",
        "list",
        (),
        "Replicas partition:broker, or *, that are throttled while they catch up (KIP-73)",
        read=_throttled_replicas,
    )
    delete_retention_ms: int = _topic(
        "delete.retention.ms",
        "long",
        86_400_000,
        "How long compaction keeps tombstones",
        at_least=0,
        synonyms=_from("log.cleaner.delete.retention.ms"),
    )
    min_compaction_lag_ms: int = _topic(
        "min.compaction.lag.ms",
        "long",
        0,
        "A record is left alone by compaction for at least this long",
        at_least=0,
        synonyms=_from("log.cleaner.min.compaction.lag.ms"),
    )
    max_compaction_lag_ms: int = _topic(
        "max.compaction.lag.ms",
        "long",
        LONG_MAX,
        "A record is looked at by compaction after this long at the latest",
        at_least=1,
        synonyms=_from("log.cleaner.max.compaction.lag.ms"),
    )
    min_cleanable_dirty_ratio: float = _topic(
        "min.cleanable.dirty.ratio",
        "double",
        0.5,
        "Compaction starts when this part of the log has not been compacted yet",
        at_least=0,
        at_most=1,
        synonyms=_from("log.cleaner.min.cleanable.ratio"),
    )
    local_retention_ms: int = _topic(
        "local.retention.ms",
        "long",
        -2,
        "Tiered storage: -2 follows retention.ms",
        at_least=-2,
        applied=False,
    )
    local_retention_bytes: int = _topic(
        "local.retention.bytes",
        "long",
        -2,
        "Tiered storage: -2 follows retention.bytes",
        at_least=-2,
        applied=False,
    )
    remote_storage_enable: bool = _topic(
        "remote.storage.enable",
        "boolean",
        False,
        "Tiered storage, which raftlog does not have",
        applied=False,
    )
    remote_log_copy_disable: bool = _topic(
        "remote.log.copy.disable", "boolean", False, "Tiered storage: stop copying", applied=False
    )
    remote_log_delete_on_disable: bool = _topic(
        "remote.log.delete.on.disable",
        "boolean",
        False,
        "Tiered storage: delete the copies when disabled",
        applied=False,
    )
    remote_copy_lag_ms: int = _topic(
        "remote.copy.lag.ms",
        "long",
        0,
        "Tiered storage: delay of the copy (KIP-1241)",
        at_least=-1,
        applied=False,
    )
    remote_copy_lag_bytes: int = _topic(
        "remote.copy.lag.bytes",
        "long",
        -1,
        "Tiered storage: delay of the copy (KIP-1241)",
        at_least=-1,
        applied=False,
    )
    confluent_key_schema_validation: bool = _topic(
        "confluent.key.schema.validation",
        "boolean",
        False,
        "Whether the leader refuses records whose keys have no schema id that the registry has under their subject",
    )
    confluent_value_schema_validation: bool = _topic(
        "confluent.value.schema.validation",
        "boolean",
        False,
        "Whether the leader refuses records whose values have no schema id that the registry has under their subject",
    )
    confluent_key_subject_name_strategy: str = _topic(
        "confluent.key.subject.name.strategy",
        "string",
        STRATEGIES[0],
        "The subject that keys are checked for: the topic's, the record's, or that of both",
        choices=STRATEGIES,
    )
    confluent_value_subject_name_strategy: str = _topic(
        "confluent.value.subject.name.strategy",
        "string",
        STRATEGIES[0],
        "The subject that values are checked for: the topic's, the record's, or that of both",
        choices=STRATEGIES,
    )
    schema_payload_validation: bool = _topic(
        "raftlog.schema.payload.validation",
        "boolean",
        False,
        "Whether the leader parses Avro data too, and refuses what its schema cannot read; only of fields that "
        "confluent.key.schema.validation or confluent.value.schema.validation checks, without which it has no effect",
    )
    errors_deadletterqueue_group_enable: bool = _topic(
        "errors.deadletterqueue.group.enable",
        "boolean",
        False,
        "Whether share groups may use this topic as their dead-letter queue",
    )
