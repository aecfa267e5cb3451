"""Known differences in what requests of share groups are checked for, and in the partitions that answers name."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "**An acknowledgement before the first fetch** of a partition finds no acquired record. Kafka does not know "
        "the partition until a member has fetched it, also after each move of its leader.",
        "share-requests/nothing-in-flight share-requests/nothing-is-named",
        step="ShareAcknowledge*",
        path="answer.responses.*.error_code",
        kafka="UNKNOWN_TOPIC_OR_PARTITION",
        raftlog="INVALID_RECORD_STATE",
    ),
    Known(
        "kafka's own fault",
        "Acknowledged offsets from before the start offset to behind the end are invalid. In Kafka the whole request "
        "has an unknown error if no record is in flight.",
        "share-requests/nothing-in-flight",
        step="ShareAcknowledge*",
        path="answer.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="NONE",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "A share fetch of fewer bytes than none acquires no record. In Kafka each partition has an unknown error.",
        "share-requests/limit/fewer?bytes?than?none",
        path="answer.responses",
        kafka="*UNKNOWN_SERVER_ERROR*",
        raftlog="(default)",
    ),
    Known(
        "kafka's own fault",
        "A share fetch with a wait below zero does not wait. In Kafka it acquires no record.",
        "share-requests/limit/a?wait?below?zero",
        path="answer.responses*",
    ),
    Known(
        "by design",
        "**Records of a share fetch** are whole batches. Kafka fills up its limit with part of the next batch, which "
        "clients ignore.",
        "share-requests/limit/more?bytes?at?least?than?at?most",
        path="answer.responses.*.records.1",
        raftlog="(none)",
    ),
    Known(
        "kafka's own fault",
        "Start offsets below -1 are invalid. Kafka takes them, and counts a lag from there.",
        "share-requests/offsets-altered/far?below?zero",
        path="answer.*",
        errors="NONE=INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "The lag of a group that begins beyond the end of a log is 0. In Kafka it is negative.",
        "share-requests/offsets-altered/beyond?the?end share-requests/offsets-altered/a?topic?twice",
        step="DescribeShareGroupOffsets*",
        path="answer.*.lag",
        raftlog="0",
    ),
    Known(
        "by design",
        "A partition whose start offset is set twice in a request has one answer, for the last. Kafka has two.",
        "share-requests/offsets-altered/a?partition?twice",
        path="answer.responses.*.partitions.1",
        raftlog="(none)",
    ),
    Known(
        "kafka's own fault",
        "A start offset for a partition below zero has that partition's error. In Kafka the request has an unknown "
        "error.",
        "share-requests/offsets-altered/a?partition?below?zero",
        path="answer.*",
        errors="UNKNOWN_SERVER_ERROR=NONE",
    ),
    Known(
        "kafka's own fault",
        "Offsets of a topic without partitions, or of a group without a name, are described as none. In Kafka that is "
        "an unknown error.",
        "share-requests/offsets-described/no?partitions share-requests/offsets-of-no-group/no?group",
        path="answer.groups.*",
        errors="UNKNOWN_SERVER_ERROR=NONE",
    ),
)
