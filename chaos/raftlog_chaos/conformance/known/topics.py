"""Known differences in the life of topics and partitions."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "**A topic that Metadata creates** is in the first answer already. Kafka answers UNKNOWN_TOPIC_OR_PARTITION, "
        "and clients ask again.",
        "topics/answer-to-what-is-created/first",
        path="answer.topics.*",
        errors="UNKNOWN_TOPIC_OR_PARTITION=NONE",
    ),
    Known(
        "kafka's own fault",
        "A config that a new topic is given twice is refused, as it is when it is altered. Kafka creates the topic "
        "with the last value, in silence.",
        "topics/create-with/the?same?twice topics/create-with/twice",
        path="answer.topics.*.error_code",
        kafka="NONE",
        raftlog="INVALID_REQUEST",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "A time-out of no time creates a topic, or refuses it. Kafka answers that the time is over.",
        "topics/create-within/*",
        path="answer.topics.*.error_code",
        ends=True,
    ),
    Known(
        "by design",
        "**What a request names twice** is answered as often, where a topic is named by its name and its id.",
        "topics/delete/by?name,?and?by?id",
        path="answer.responses.*",
    ),
    Known(
        "by design",
        "**Limits** exist where Kafka has none: [limits](limits.md).",
        "topics/growth/too?many",
        path="answer.results.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="POLICY_VIOLATION",
    ),
    Known(
        "by design",
        "**Beside an error, the other fields of an answer have no meaning**, and may differ from Kafka's.",
        "topics/metadata-by-id/*in?v10",
        path="answer.*",
        errors="INVALID_REQUEST=NONE",
    ),
    Known(
        "kafka's own fault",
        "A Metadata request with names and ids is answered in both. Kafka leaves out the names, in silence.",
        "topics/metadata-by-id/and?by?name?in?v12",
        path="answer.topics.*",
        kafka="(none)",
    ),
    Known(
        "kafka's own fault",
        "A topic with neither name nor id is answered with INVALID_REQUEST, in Kafka with UNKNOWN_SERVER_ERROR.",
        "topics/metadata-by-id/neither?in?v12",
        path="answer.*",
        errors="UNKNOWN_SERVER_ERROR=INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "A cursor far behind a topic's last partition goes on with the next topic. Kafka's numbers overflow.",
        "topics/cursor/far?after?it",
        path="answer.*",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "The empty name of a topic is answered with INVALID_TOPIC_EXCEPTION, in Kafka with UNKNOWN_SERVER_ERROR.",
        "topics/describe-odd/an?empty?name",
        path="answer.topics.*.error_code",
    ),
    Known(
        "by design",
        "**Of a topic that is not there no operation is allowed**, where Kafka lists all of them.",
        "topics/pages-of/* topics/describe-odd/*",
        path="answer.topics.*.topic_authorized_operations",
        raftlog="(default)",
    ),
)
