"""Known differences in client quotas."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "**An entity that a request has twice** is answered twice, both times with an error.",
        "quotas/entries-twice",
        path="answer.entries.1",
        kafka="(none)",
    ),
    Known(
        "kafka's own fault",
        "A quota that is no finite number is refused; Kafka stores such rates of producers and of mutations.",
        "quotas/no-number/*",
        kafka="NONE",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "An entity with two names of one type is refused; Kafka takes the last one, in silence.",
        "quotas/a-type-twice",
        errors="NONE=INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "The removal of a quota with an unknown key is refused, as it is to set one.",
        "quotas/value/remove?an?unknown?key",
        kafka="NONE",
        raftlog="INVALID_REQUEST",
    ),
)
