"""Known differences in ListOffsets."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "**Records without timestamps** have no largest one: ListOffsets finds none for -3. Kafka names the first "
        "record.",
        "list-offsets/log/without?times",
        path="answer.topics.*",
        kafka="0",
        raftlog="(default)",
    ),
    Known(
        "by design",
        "**A topic without partitions, or named twice,** stands in the answer of ListOffsets and DeleteRecords as in "
        "the request. Kafka leaves it out, or answers once.",
        "list-offsets/shape/* delete-records/shape/no?partition delete-records/shape/a?partition?twice",
        path="answer*",
        step="[LD]*",
    ),
    Known(
        "kafka's own fault",
        "The largest timestamp (-3) is that of a record which is there. Kafka also names records before the log's "
        "start.",
        "list-offsets/after-deleted-records/*",
        path="answer.topics.*",
        step="ListOffsets v11",
    ),
    Known(
        "kafka's own fault",
        "An isolation level that does not exist is read as read_uncommitted. Kafka answers UNKNOWN_SERVER_ERROR.",
        "list-offsets/isolation/2* list-offsets/isolation/-1* fetch/offset/isolation?2 fetch/offset/isolation?-1",
        path="answer*",
        ends=True,
        errors="UNKNOWN_SERVER_ERROR=NONE UNKNOWN_SERVER_ERROR=UNSUPPORTED_VERSION",
    ),
)
