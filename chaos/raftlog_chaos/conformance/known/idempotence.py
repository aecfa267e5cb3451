"""Known differences in the work of idempotent producers."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "kafka's own fault",
        "A batch that was sent again is answered with a log append time, though the topic has the producers' own "
        "times. raftlog answers it as it answered the first time.",
        "idempotence/*",
        path="answer.responses.*.log_append_time",
        kafka="start*",
        raftlog="(default)",
    ),
)
