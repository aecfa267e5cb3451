"""Known differences in DeleteRecords."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "kafka's own fault",
        "A batch that was sent again is answered as the first time after records were deleted too.",
        "delete-records/sequences-go-on",
        path="answer.responses.*.log_append_time",
        kafka="start*",
        raftlog="(default)",
    ),
)
