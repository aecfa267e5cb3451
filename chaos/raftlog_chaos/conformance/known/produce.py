"""Known differences in Produce."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.groups import NO_PARTITIONS

_TWO_FAULTS: Final = (
    "**A batch with two faults** is refused for one of them, and it is not always the one that Kafka names: a size, a "
    "sequence or a time that is wrong."
)

KNOWN: Final = (
    Known(
        "by design",
        "**Bits of a batch that only brokers set** are refused: the time type LogAppendTime, and the delete horizon. "
        "Kafka stores such batches.",
        "produce/header/attributes=8 produce/header/attributes=64",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="INVALID_*",
        ends=True,
    ),
    Known(
        "by design",
        "**Records that cannot be decompressed** are stored with their batch, where its records are not walked; Kafka "
        "answers UNKNOWN_SERVER_ERROR.",
        "produce/header/attributes=[1-4]",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="NONE",
        ends=True,
    ),
    Known(
        "by design",
        "**A largest timestamp above the records' timestamps** is accepted where the records are not walked.",
        "produce/header/base_timestamp=0",
        path="answer.records.*.max_timestamp",
    ),
    Known(
        "by design",
        "**Bytes after a batch** that are no whole batch are refused. Kafka drops them in silence.",
        "produce/shape/a?byte?too?many",
        path="answer.responses.*.error_code",
        kafka="NONE",
        raftlog="INVALID_RECORD",
        ends=True,
    ),
    Known(
        "by design",
        NO_PARTITIONS,
        "produce/shape/no?partition",
        path="answer",
        kafka="(default)",
    ),
    Known(
        "kafka's own fault",
        "A codec that does not exist is answered with UNSUPPORTED_COMPRESSION_TYPE, in Kafka with "
        "UNKNOWN_SERVER_ERROR.",
        "produce/header/attributes=[57]",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="UNSUPPORTED_COMPRESSION_TYPE",
    ),
    Known(
        "kafka's own fault",
        "A batch with a length beyond 32 bits is answered with INVALID_RECORD, as any batch that is cut off, in "
        "Kafka with UNKNOWN_SERVER_ERROR.",
        "produce/header/batch_length=2147483647",
        path="answer.responses.*",
        errors="UNKNOWN_SERVER_ERROR=INVALID_RECORD",
    ),
    Known(
        "kafka's own fault",
        "A partition with records of null is refused; Kafka never answers the request.",
        "produce/shape/records?of?null",
        path="answer",
        kafka="no answer",
    ),
    Known(
        "kafka's own fault",
        "A partition that a request names twice gets its first batch, and the second one is refused. Kafka stores the "
        "second one only, and answers once.",
        "produce/shape/a?partition?twice",
    ),
    Known(
        "by design",
        _TWO_FAULTS,
        "generated/*",
        step="Produce*",
        path="answer.responses.*.error_code",
        kafka="INVALID_*",
        raftlog="MESSAGE_TOO_LARGE",
    ),
    Known(
        "by design",
        _TWO_FAULTS,
        "generated/*",
        step="Produce*",
        path="answer.responses.*.error_code",
        kafka="INVALID_TIMESTAMP",
        raftlog="OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    Known(
        "by design",
        "**A refused batch of a transaction** is answered with the offset at which its log starts, as other refused "
        "batches are. Kafka leaves it out where the transaction was asked about first.",
        "generated/*",
        step="Produce*",
        path="answer.responses.*.log_start_offset",
        kafka="(default)",
    ),
)
