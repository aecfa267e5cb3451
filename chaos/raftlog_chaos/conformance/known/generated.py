"""Known differences that drawn histories show and no other one does yet."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.configs import UNKNOWN_OPERATION
from raftlog_chaos.conformance.known.consumer_groups import GONE_GROUP, REPEATED
from raftlog_chaos.conformance.known.groups import FENCED_JOIN, WHILE_ASSIGNING
from raftlog_chaos.conformance.known.transactions import LATE_COMMIT

_NO_GROUP: Final = (
    "**A group without members and offsets** is no group. In Kafka one is there until groups are cleaned the next "
    "time, though its offsets went with their topic, or their transaction was aborted."
)
_TWO_FAULTS: Final = (
    "**A batch with two faults** is refused for one of them, and it is not always the one that Kafka names: a size, a "
    "sequence or a time that is wrong."
)

_LEFT_OVER: Final = (
    "**A partition that is left over**, where members could have equally many, stays with the member that has it, "
    "or goes to the first by name. In Kafka the order of a hash table decides."
)
_FORMER_TOPIC: Final = (
    "**A fetch session that names a deleted topic by its id** is answered with UNKNOWN_TOPIC_ID. Kafka remembers the "
    "name, and answers INCONSISTENT_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."
)

KNOWN: Final = (
    Known(
        "kafka's own fault",
        UNKNOWN_OPERATION,
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
    Known(
        "by design",
        _NO_GROUP,
        "generated/*",
        step="OffsetCommit*",
        path="answer.topics.*.error_code",
        kafka="UNKNOWN_MEMBER_ID",
        raftlog="GROUP_ID_NOT_FOUND",
    ),
    Known(
        "by design",
        "**A transaction without records** that follows another one leaves no marker, if both have the same epoch "
        "(protocol 1): it ended nothing. Kafka writes the marker.",
        "generated/*",
        step="the partitions end after a transaction without records",
        path="answer.ends.*",
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
        "by design",
        _NO_GROUP,
        "generated/*",
        step="*OffsetCommit*",
        path="answer.topics.*.error_code",
        kafka="UNKNOWN_MEMBER_ID",
        raftlog="ILLEGAL_GENERATION",
    ),
    Known(
        "by design",
        _NO_GROUP,
        "generated/*",
        step="OffsetDelete*",
        path="answer.error_code",
        kafka="NONE",
        raftlog="GROUP_ID_NOT_FOUND",
        ends=True,
    ),
    Known(
        "by design",
        _NO_GROUP,
        "generated/*",
        step="DeleteGroups*",
        path="answer.results.*.error_code",
        kafka="NONE",
        raftlog="GROUP_ID_NOT_FOUND",
    ),
    Known(
        "by design",
        _NO_GROUP,
        "generated/*",
        step="DescribeGroups*Empty*",
        path="a*",
        kafka="*Empty",
        raftlog="*Dead",
    ),
    Known(
        "by design",
        _NO_GROUP,
        "generated/*",
        step="DescribeGroups*Empty*",
        path="answer.groups.*.error_code",
        kafka="NONE",
        raftlog="GROUP_ID_NOT_FOUND",
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
        "A static member that sends its first heartbeat again, because the answer was lost, is answered again. Kafka "
        "answers UNRELEASED_INSTANCE_ID, and shuts the member out until its session ends.",
        "generated/*",
        step="ConsumerGroupHeartbeat*again with its instance*",
        path="answer.error_code",
        kafka="UNRELEASED_INSTANCE_ID",
        raftlog="NONE",
        ends=True,
    ),
    Known(
        "by design",
        WHILE_ASSIGNING,
        "generated/*",
        step="DescribeGroups*CompletingRebalance*",
        path="answer.groups.*.members.*.member_assignment",
        raftlog="(default)",
    ),
    Known(
        "by design",
        FENCED_JOIN,
        "generated/*",
        step="answer to JoinGroup*",
        path="answer.member_id",
        kafka="static-member-*",
        raftlog="(default)",
    ),
    Known(
        "by design",
        REPEATED,
        "generated/*",
        step="ConsumerGroupHeartbeat*before it confirmed*",
        path="answer.assignment*",
        kafka="(default)",
    ),
    Known(
        "by design",
        GONE_GROUP,
        "generated/*",
        step="ConsumerGroupHeartbeat*",
        path="answer.error_code",
        kafka="GROUP_ID_NOT_FOUND",
        raftlog="UNKNOWN_MEMBER_ID",
    ),
    Known(
        "by design",
        _FORMER_TOPIC,
        "generated/*",
        step="Fetch* in session-*",
        path="answer.partitions.*.error_code",
        kafka="*_TOPIC_*",
        raftlog="UNKNOWN_TOPIC_ID",
    ),
    Known(
        "kafka's own fault",
        "A batch that is refused for an epoch which nobody gave out changes nothing for its producer. Kafka goes on "
        "expecting that batch's sequence, and refuses the next right one.",
        "generated/*",
        step="Produce*after a made-up epoch*",
        path="answer.responses.*.error_code",
        kafka="OUT_OF_ORDER_SEQUENCE_NUMBER",
        raftlog="NONE",
        ends=True,
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
    Known(
        "by design",
        "**A join with two faults**, a replaced member's id and protocols that do not fit, is refused for the first "
        "of them. Kafka names the other one.",
        "generated/*",
        step="answer to JoinGroup*",
        path="answer.error_code",
        kafka="INCONSISTENT_GROUP_PROTOCOL",
        raftlog="FENCED_INSTANCE_ID",
    ),
    Known(
        "by design",
        _LEFT_OVER,
        "generated/*",
        step="ConsumerGroupHeartbeat*in a group of several*",
        path="answer.assignment*",
        raftlog="(default)",
        ends=True,
    ),
    Known(
        "by design",
        _LEFT_OVER,
        "generated/*",
        step="ConsumerGroupHeartbeat*in a group of several*",
        path="answer.assignment*",
        kafka="(default)",
        ends=True,
    ),
    Known(
        "by design",
        "**A leader that left a classic group** is followed by the member that joined next. In Kafka the order of a "
        "hash table decides.",
        "generated/*",
        step="answer to JoinGroup*",
        path="answer.leader",
        kafka="member-*",
        raftlog="member-*",
        ends=True,
    ),
    Known(
        "by design",
        _LEFT_OVER,
        "generated/*",
        step="ConsumerGroupDescribe*in a group of several*",
        path="answer.groups.*.members.*assignment",
        ends=True,
    ),
    Known(
        "by design",
        "**A member that joined again** is in the epoch that it was told then. Kafka also takes the one before.",
        "generated/*",
        step="ConsumerGroupHeartbeat*in an epoch before it joined again*",
        path="answer.error_code",
        kafka="NONE",
        raftlog="FENCED_MEMBER_EPOCH",
        ends=True,
    ),
)
