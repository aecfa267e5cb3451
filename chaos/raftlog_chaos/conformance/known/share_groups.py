"""Known differences in share groups."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "**A member that sends its former epoch** gets its assignment again, because the answer before may be lost. "
        "Kafka sends it once.",
        "share-groups/epoch/the?epoch?before",
        path="answer.assignment",
    ),
    Known(
        "by design",
        "**Setting or deleting offsets of a share group** begins a group epoch, which fences leaders that know the "
        "former offsets. In Kafka the epoch stays, so a leader may write what it knows over them.",
        "share-groups/offsets-are-set/*",
        step="ShareGroupDescribe*",
        path="answer.groups.0.assignment_epoch",
    ),
    Known(
        "kafka's own fault",
        "The offset of a partition that a topic does not have is described as missing. Kafka does not answer.",
        "share-groups/offsets-of-what-is-not-there",
        step="DescribeShareGroupOffsets*",
        path="answer",
        kafka="no answer",
    ),
    Known(
        "kafka's own fault",
        "Offsets that cannot be set make no group. In Kafka they do.",
        "share-groups/offsets-of-what-is-not-there",
        step="DeleteShareGroupOffsets*",
        path="answer.*",
        errors="NONE=GROUP_ID_NOT_FOUND",
    ),
)
