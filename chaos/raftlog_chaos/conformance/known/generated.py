"""Known differences that drawn histories show and no other one does yet."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "kafka's own fault",
        "An operation on a setting that does not exist is answered with INVALID_REQUEST, in Kafka with "
        "UNKNOWN_SERVER_ERROR.",
        "generated/*",
        step="IncrementalAlterConfigs*",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "by design",
        "**A commit for a topic that was deleted** minutes ago is answered with INVALID_TOPIC_EXCEPTION, which clients "
        "take as final. In Kafka they try again until they leave their group waiting (KAFKA-13310).",
        "generated/*",
        step="OffsetCommit*",
        path="answer.topics.*.error_code",
        kafka="UNKNOWN_TOPIC_OR_PARTITION",
        raftlog="INVALID_TOPIC_EXCEPTION",
    ),
    Known(
        "kafka's own fault",
        "InitProducerId with an epoch that is not in force is answered with PRODUCER_FENCED, and leaves an open "
        "transaction alone. Kafka aborts that transaction first.",
        "generated/*",
        step="InitProducerId*claims*",
        path="answer.*",
        kafka="*",
        raftlog="PRODUCER_FENCED",
        ends=True,
    ),
    Known(
        "by design",
        "**A batch with two faults** is refused for one of them, and it is not always the one that Kafka names: one "
        "that is too large is answered with MESSAGE_TOO_LARGE, whatever else is wrong.",
        "generated/*",
        step="Produce*",
        path="answer.responses.*.error_code",
        kafka="INVALID_*",
        raftlog="MESSAGE_TOO_LARGE",
    ),
    Known(
        "by design",
        "**A transaction without records** that follows another one leaves no marker, if both have the same epoch "
        "(protocol 1): it ended nothing. Kafka writes the marker.",
        "generated/*",
        step="the partitions end after a transaction",
        ends=True,
    ),
    Known(
        "by design",
        "**Settings of a topic that is not there** are answered with UNKNOWN_TOPIC_OR_PARTITION, whatever they are. "
        "Kafka looks at the values first.",
        "generated/*",
        step="IncrementalAlterConfigs*",
        path="answer.responses.*.error_code",
        kafka="INVALID_CONFIG",
        raftlog="UNKNOWN_TOPIC_OR_PARTITION",
    ),
)
