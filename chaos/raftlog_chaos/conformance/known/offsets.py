"""Known differences in committed offsets."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.groups import LONG_NAMES, NAMED_AGAIN

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
        "**A commit for a topic that was just deleted** is refused with INVALID_TOPIC_EXCEPTION, after which clients "
        "stop repeating it. Kafka answers UNKNOWN_TOPIC_OR_PARTITION.",
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
)
