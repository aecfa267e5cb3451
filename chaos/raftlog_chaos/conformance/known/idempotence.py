"""Known differences in the work of idempotent producers."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

FIRST_BATCH: Final = (
    "**A producer's second batch waits for its first.** A partition that never held a record takes "
    "sequence 0 only, as in Kafka from 4.5 on (KAFKA-15591). In a topic that was made again within ten minutes of "
    "its deletion, producers go on with any sequence, since librdkafka and aiokafka would end "
    "otherwise."
)

KNOWN: Final = (
    Known(
        "by design",
        FIRST_BATCH,
        "idempotence/sent/first?a?sequence?other?than?0",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="OUT_OF_ORDER_SEQUENCE_NUMBER",
        ends=True,
    ),
    Known(
        "by design",
        FIRST_BATCH,
        "generated/*",
        step="*with the first batch of a partition*",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="OUT_OF_ORDER_SEQUENCE_NUMBER",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "After a restart, a producer's last five batches are known. Kafka's snapshots have only the last one, and "
        "the others are refused if they are sent again.",
        "idempotence/after-a-restart/again",
        path="answer.responses.*",
        errors="OUT_OF_ORDER_SEQUENCE_NUMBER=NONE",
    ),
    Known(
        "kafka's own fault",
        "A batch that was sent again is answered as it was the first time. Kafka adds a log append time, though the "
        "topic has the producers' own times.",
        "idempotence/* generated/*",
        path="answer.responses.*.log_append_time",
        kafka="start*",
        raftlog="(default)",
    ),
    Known(
        "kafka's own fault",
        "A producer's plain batches are judged by its last plain ones. Kafka also remembers a batch of a transaction "
        "that its coordinator did not know, and refuses the second plain batch.",
        "generated/*",
        step="Produce*outside a transaction",
        path="answer.responses.*.error_code",
        kafka="OUT_OF_ORDER_SEQUENCE_NUMBER",
        raftlog="NONE",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "A batch that is refused for an epoch that was never assigned has no effect on its producer. Kafka goes on "
        "expecting that batch's sequence, and refuses the next right one.",
        "generated/*",
        step="Produce*after a made-up epoch*",
        path="answer.responses.*.error_code",
        kafka="OUT_OF_ORDER_SEQUENCE_NUMBER",
        raftlog="NONE",
        ends=True,
    ),
)
