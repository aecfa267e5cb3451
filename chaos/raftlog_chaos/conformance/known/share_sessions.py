"""Known differences in share sessions."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "A partition's answer names no leader, -1, if its leader has not moved. Kafka sends zeros, which are the "
        "id and the epoch of a possible leader; clients read neither.",
        "share-sessions/* share-requests/*",
        path="answer.responses.*.current_leader",
        kafka="(default)",
        raftlog="*-1*",
    ),
    Known(
        "by design",
        "**A share fetch that releases records** may acquire them again by itself. In Kafka the next fetch does.",
        "share-sessions/type/release?in?a?fetch",
        step="ShareFetch*",
        path="answer.responses*",
        ends=True,
    ),
    Known(
        "by design",
        "**Acquired records** are in one range if they were released together. Kafka begins a range at each batch.",
        "share-sessions/limit/one?record?at?most",
        path="answer.responses.*.acquired_records.*",
    ),
    Known(
        "kafka's own fault",
        "A share fetch with batches of no records acquires each batch. Kafka adds a range that ends before it begins.",
        "share-sessions/limit/batches?of?none share-requests/limit/batches?below?none",
        path="answer.responses.*.acquired_records.*",
    ),
    Known(
        "kafka's own fault",
        "A share fetch in an unknown mode is invalid. In Kafka it is an unknown error.",
        "share-sessions/limit/an?unknown?mode share-requests/wrong-twice/a?mode",
        path="answer.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "A share session needs the name of a group. In Kafka it may be empty, though no group can be called so.",
        "share-sessions/place/no?group?of?*",
        path="answer.*",
        errors="NONE=INVALID_REQUEST SHARE_SESSION_NOT_FOUND=INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        "A share fetch of an unknown topic id has that error for its partition. In Kafka the whole request has an "
        "unknown error.",
        "share-sessions/place/an?unknown?topic?of?fetch",
        path="answer.*",
        errors="UNKNOWN_SERVER_ERROR=NONE",
    ),
)
