"""Known differences in groups of the consumer protocol."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known
from raftlog_chaos.conformance.known.groups import LONG_NAMES, NAMED_AGAIN

GONE_GROUP: Final = (
    "**A heartbeat to a group that is gone** is answered with UNKNOWN_MEMBER_ID, after which members join again. "
    "Kafka answers GROUP_ID_NOT_FOUND, which ends them."
)
REPEATED: Final = (
    "**Until a member has confirmed its partitions**, answers to its heartbeats repeat them, because an answer may "
    "be lost or come late. Kafka sends them once."
)

_LEFT_OVER: Final = (
    "**A partition that is left over**, where members could have equally many, stays with the member that has it, "
    "or goes to the first by name. In Kafka the order of a hash table decides."
)

KNOWN: Final = (
    Known(
        "by design",
        LONG_NAMES,
        "consumer-groups/join/a?long?group consumer-groups/join/a?long?member",
        path="answer.error_code",
        ends=True,
    ),
    Known(
        "by design",
        NAMED_AGAIN,
        "consumer-groups/described/*",
        step="ConsumerGroupDescribe*",
        path="answer.groups.*",
        errors="NONE=INVALID_GROUP_ID",
    ),
    Known(
        "by design",
        GONE_GROUP,
        "consumer-groups/* static-consumers/* migration/*",
        path="answer.error_code",
        kafka="GROUP_ID_NOT_FOUND",
        raftlog="UNKNOWN_MEMBER_ID",
    ),
    Known(
        "by design",
        REPEATED,
        "consumer-groups/* static-consumers/* migration/*",
        step="ConsumerGroupHeartbeat*",
        path="answer.assignment",
        kafka="(default)",
    ),
    Known(
        "by design",
        "**A regular expression is resolved in the heartbeat that brings it**, so the first answer has its topics. "
        "Kafka resolves it in the background, and begins another epoch then. A member that also names topics gets only "
        "those first.",
        "consumer-groups/expression/* consumer-groups/an-expression-and-a-name",
        step="ConsumerGroup*",
        path="*",
    ),
    Known(
        "by design",
        "**A member without subscriptions** begins an epoch as any other does.",
        "migration/classic-requests/JoinGroup consumer-groups/a-full-group",
        path="answer.*epoch",
    ),
    Known(
        "by design",
        "**Epochs and generations of a group are one count**, also when it changes its protocol.",
        "migration/an-empty-group-that-changes",
        path="*.generation_id",
    ),
    Known(
        "by design",
        "**A group in which all members use the classic protocol** is a classic group, also if its last other member "
        "changed its protocol. Kafka makes it one when that member leaves.",
        "migration/classic-requests/JoinGroup?with?its?id",
        step="ConsumerGroup*",
        path="answer.*error_code",
        ends=True,
    ),
    Known(
        "by design",
        "**A member that reports another rack** begins an epoch, since the assignor `uniform` prefers partitions with "
        "a replica in it. Kafka's does not use it.",
        "consumer-groups/heartbeat/a?rack",
        path="answer.member_epoch",
        kafka="first+0",
        raftlog="first+1",
        ends=True,
    ),
    Known(
        "by design",
        "**A group that becomes classic** shows what its members had, until its rebalance ends. Kafka shows what they "
        "would have had next.",
        "migration/the-last-consumer-that-leaves",
        step="DescribeGroups*",
        path="answer.groups.0.members.0.member_assignment",
    ),
    Known(
        "kafka's own fault",
        "A consumer group refuses a classic member that sends metadata that is no subscription, with "
        "INCONSISTENT_GROUP_PROTOCOL. Kafka gives it an id, and answers UNKNOWN_SERVER_ERROR when it joins with that.",
        "migration/a-classic-member-that-joins/anything",
        path="answer.error_code",
        kafka="MEMBER_ID_REQUIRED",
        raftlog="INCONSISTENT_GROUP_PROTOCOL",
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
        _LEFT_OVER,
        "generated/*",
        step="ConsumerGroupDescribe*in a group of several*",
        path="answer.groups.*.members.*assignment",
        ends=True,
    ),
    Known(
        "by design",
        "**A member that joined again** is in the epoch of that response. Kafka also takes the epoch before.",
        "generated/*",
        step="ConsumerGroupHeartbeat*in an epoch before it joined again*",
        path="answer.error_code",
        kafka="NONE",
        raftlog="FENCED_MEMBER_EPOCH",
        ends=True,
    ),
)
