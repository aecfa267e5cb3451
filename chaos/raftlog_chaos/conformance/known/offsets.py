"""Known differences in committed offsets."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.groups import LONG_NAMES, NAMED_AGAIN

_DELETED_TOPIC: Final = (
    "**A commit for a topic that was deleted** minutes ago is answered with INVALID_TOPIC_EXCEPTION, which clients "
    "take as final. Kafka answers UNKNOWN_TOPIC_OR_PARTITION, and they try again until they leave their group waiting "
    "(KAFKA-13310)."
)

KNOWN: Final = (
    Known(
        "by design",
        LONG_NAMES,
        "offsets/fetch-of/a?long?group offsets/commit-of/a?long?group",
        path="answer.*",
        errors="NONE=INVALID_GROUP_ID",
    ),
    Known(
        "by design", NAMED_AGAIN, "offsets/fetch-of/a?group?twice", path="answer.groups.1", raftlog="(none)"
    ),
    Known(
        "by design",
        _DELETED_TOPIC,
        "offsets/a-topic-that-is-deleted/v9",
        path="answer.topics.0.partitions.0.error_code",
        raftlog="INVALID_TOPIC_EXCEPTION",
    ),
    Known(
        "kafka's own fault",
        "A fetch of offsets in a member's epoch without its id is answered with UNKNOWN_MEMBER_ID, in Kafka with "
        "UNKNOWN_SERVER_ERROR.",
        "offsets/read-by-a-consumer/no?member",
        path="answer.groups.0.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
    ),
    Known(
        "by design",
        _DELETED_TOPIC,
        "generated/*",
        step="OffsetCommit*",
        path="answer.topics.*.error_code",
        kafka="UNKNOWN_TOPIC_OR_PARTITION",
        raftlog="INVALID_TOPIC_EXCEPTION",
    ),
)
