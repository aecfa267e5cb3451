"""Known differences in transactions."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.idempotence import FIRST_BATCH

LATE_COMMIT: Final = (
    "A client that commits a transaction which was aborted, as by its timeout, is answered with PRODUCER_FENCED, and "
    "begins anew. Kafka answers INVALID_TXN_STATE, which ends the client (KAFKA-20785)."
)

KNOWN: Final = (
    Known(
        "by design",
        "**A producer that a partition's leader knows to be fenced** is refused by it, with the log's start. Kafka "
        "asks the coordinator, and leaves the start out.",
        "transactions/producer/* transactions/timed-out/* transactions/batch/*",
        path="answer.responses.*.partition_responses.*.log_start_offset",
        step="Produce *",
        kafka="(default)",
        raftlog="0",
    ),
    Known(
        "by design",
        "**Transactions of other clients** are asked about by brokers only: AddPartitionsToTxn from version 4 on is "
        "refused. Kafka serves all that have the right ClusterAction, and without an authorizer every client.",
        "transactions/add-batched/*",
        path="answer.error_code",
        kafka="NONE",
        raftlog="CLUSTER_AUTHORIZATION_FAILED",
        ends=True,
    ),
    Known(
        "by design",
        "**An empty group id** is refused by AddOffsetsToTxn already, with INVALID_GROUP_ID, as by TxnOffsetCommit.",
        "transactions/add-offsets-version/*",
        path="answer.error_code",
        raftlog="INVALID_GROUP_ID",
    ),
    Known(
        "by design",
        "**A transactional id that is named twice** is described once.",
        "transactions/described",
        path="answer.transaction_states.*",
        errors="NONE=INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "A batch of a transaction without a producer id is refused. Kafka stores it, and no marker ever ends it.",
        "transactions/batch/without?a?producer* transactions/producer/an?id?that?was?never?given?out*",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="INVALID_PRODUCER_ID_MAPPING",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        LATE_COMMIT,
        "transactions/timed-out/a?late?commit?in?protocol?2",
        path="answer.error_code",
        kafka="INVALID_TXN_STATE",
        raftlog="PRODUCER_FENCED",
    ),
    Known(
        "kafka's own fault",
        "A batch of a transaction that was sent again is answered as it was the first time, without a log append time.",
        "transactions/producer/a?batch?sent?again*",
        path="answer.responses.*.log_append_time",
        kafka="start*",
        raftlog="(default)",
    ),
    Known(
        "by design",
        "**The largest epoch** is never given out, so InitProducerId with it is fenced, also for a new id.",
        "transactions/init/the?largest?epoch",
        path="answer.*",
        raftlog="[(P-]*",
    ),
    Known(
        "by design",
        FIRST_BATCH,
        "transactions/producer/a?gap?in?protocol?1 transactions/producers-described",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="OUT_OF_ORDER_SEQUENCE_NUMBER",
        ends=True,
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
        "**A transaction without records** that follows another one leaves no marker, if both have the same epoch "
        "(protocol 1):   it ended no transaction. Kafka writes the marker.",
        "generated/*",
        step="the partitions end after a transaction without records",
        path="answer.ends.*",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        LATE_COMMIT,
        "generated/*",
        step="EndTxn*",
        path="answer.error_code",
        kafka="INVALID_TXN_STATE",
        raftlog="PRODUCER_FENCED",
    ),
    Known(
        "kafka's own fault",
        "The end of a transaction is written whatever `max.message.bytes` is. Kafka refuses markers that are larger, "
        "and the transaction never ends.",
        "generated/*",
        step="wait until no transaction is about to end",
        kafka="not within*",
        raftlog="it came",
        ends=True,
    ),
)
