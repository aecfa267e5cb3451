"""Known differences in Fetch and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

_FORMER_TOPIC: Final = (
    "**A fetch session that names a deleted topic by its id** is answered with UNKNOWN_TOPIC_ID. Kafka remembers the "
    "name, and answers INCONSISTENT_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."
)

KNOWN: Final = (
    Known(
        "by design",
        "**OFFSET_OUT_OF_RANGE says where the log is**: its start and its end stand beside the error.",
        "fetch/* delete-records/* cleaning/*",
        path="answer.responses.*.partitions.*.[hl]*",
        step="*Fetch*",
        kafka="[(-]*",
    ),
    Known(
        "by design",
        "**Answers end with whole batches.** Kafka cuts the last one off where a limit is, and clients throw that "
        "away.",
        "fetch/limit/*200*",
        path="answer.responses.*.records.*",
    ),
    Known(
        "by design",
        "**A fetch reads on in the next segment**, and waits only where the log ends. Kafka's answers end with a "
        "segment.",
        "fetch/segments-end/*",
        path="answer*",
    ),
    Known(
        "by design",
        "**A partition with an error** has a fetch answered at once. In Kafka it waits for records of the others.",
        "fetch/waits-not/an?error?of?another?partition",
        path="answer",
        step="it came at once",
        kafka="False",
        raftlog="True",
    ),
    Known(
        "by design",
        "**A consumer that read in an epoch which its leader does not know** reads on. Kafka answers "
        "OFFSET_OUT_OF_RANGE, and the consumer begins anew.",
        "fetch/last-fetched-epoch/*",
        path="answer.responses.*",
        errors="OFFSET_OUT_OF_RANGE=NONE",
    ),
    Known(
        "by design",
        "**FENCED_LEADER_EPOCH names the leader** in every version that can.",
        "fetch/epochs-after-a-restart",
        path="answer.responses.*.current_leader",
        kafka="(default)",
    ),
    Known(
        "kafka's own fault",
        "A negative limit of a fetch is taken for 0. Kafka answers UNKNOWN_SERVER_ERROR.",
        "fetch/limit/-1* fetch/limit/*-1?of*",
        path="answer.responses.*",
        step="Fetch *",
        errors="UNKNOWN_SERVER_ERROR=NONE",
    ),
    Known(
        "kafka's own fault",
        "OffsetForLeaderEpoch of an epoch below -1 finds none. Kafka finds the end of an empty log.",
        "fetch/offset-for-leader-epoch/*",
        path="answer.topics.*",
        kafka="[-0]*",
        raftlog="(default)",
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
)
