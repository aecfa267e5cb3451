"""Known differences in groups of the classic protocol."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

LONG_NAMES: Final = (
    "**Names are limited**: names of groups, members, group instances and clients have at most 249 characters, as "
    "names of topics have."
)
NAMED_AGAIN: Final = (
    "**A group that a request names again** is described once, and its offsets are returned once, so that a small "
    "request makes no huge answer."
)
NO_PARTITIONS: Final = (
    "**A topic without partitions** in a request stands in the answer, as it does in other APIs. Kafka leaves it "
    "out."
)

FENCED_JOIN: Final = (
    "**A member that is fenced while it joins** is answered without its id, which would be of no more use."
)
WHILE_ASSIGNING: Final = (
    "**While a leader assigns**, members are described without an assignment, because a generation is recorded "
    "when it begins. Kafka shows what they had before."
)

_NO_GROUP: Final = (
    "**A group without members and offsets** is no group. In Kafka one is there until groups are cleaned the next "
    "time, though its offsets went with their topic, or their transaction was aborted."
)

KNOWN: Final = (
    Known(
        "by design",
        LONG_NAMES,
        "groups/join/a?long* group-admin/delete/a?long?name",
        ends=True,
        errors="MEMBER_ID_REQUIRED=INVALID_GROUP_ID NONE=INVALID_REQUEST NONE=INVALID_GROUP_ID",
    ),
    Known(
        "by design",
        NAMED_AGAIN,
        "group-admin/describe/*",
        step="DescribeGroups*",
        path="answer.groups.*",
        errors="NONE=GROUP_ID_NOT_FOUND",
    ),
    Known(
        "kafka's own fault",
        "A member that joins a new group and is refused leaves no group behind. Kafka lists an empty one.",
        "groups/join/no?protocol* groups/join/neither",
        step="DescribeGroups*",
        path="answer.groups.0.*",
        errors="NONE=GROUP_ID_NOT_FOUND",
    ),
    Known(
        "kafka's own fault",
        "A group rebalances with a consumer that with metadata that is no subscription, or with a protocol twice. In "
        "Kafka the rebalance never ends, and members that join get no answer.",
        "groups/metadata/*",
        path="answer",
        kafka="not within*",
        raftlog="it came",
    ),
    Known(
        "by design",
        WHILE_ASSIGNING,
        "groups/protocols/* groups/of-a-static-member/a?join?with?its?id",
        step="DescribeGroups*",
        path="answer.groups.*.members.*.member_assignment",
        raftlog="(default)",
    ),
    Known(
        "by design",
        FENCED_JOIN,
        "groups/two-at-once-with-one-instance",
        path="*member_id",
    ),
    Known(
        "by design",
        NO_PARTITIONS,
        "group-admin/delete-offsets/no?partition",
        step="OffsetDelete*",
        path="answer.topics",
        kafka="(default)",
    ),
    Known(
        "by design",
        "**A group begins with its first member or offset, and ends with the last of both.** A member id that was "
        "given out makes none, and a group without offsets is gone. Kafka keeps such groups until it next "
        "looks for expired offsets, or its coordinator moves.",
        "group-admin/delete-with-a-member-that-has-only-an-id group-admin/delete-offsets/*",
        step="[DO]*",
        ends=True,
        errors="NONE=GROUP_ID_NOT_FOUND",
    ),
    Known(
        "by design",
        "**An empty name of a group** to be deleted is refused as such (INVALID_GROUP_ID), as other APIs do. Kafka "
        "does not find the group.",
        "group-admin/delete/no?name",
        path="answer.results.0.error_code",
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
        "**A leader that left a classic group** is followed by the member that joined next. In Kafka the order of a "
        "hash table decides.",
        "generated/*",
        step="answer to JoinGroup*",
        path="answer.leader",
        kafka="member-*",
        raftlog="member-*",
        ends=True,
    ),
)
