"""Known differences in share sessions."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "A partition's answer names no leader, -1, if its leader has not moved. Kafka sends zeros, which are the "
        "id and the epoch of a possible leader; clients read neither.",
        "share-sessions/*",
        path="answer.responses.*.current_leader",
        kafka="(default)",
        raftlog="*-1*",
    ),
    Known(
        "by design",
        "**A first share fetch without records** has an answer without partitions. Kafka names each partition.",
        "share-sessions/type/* share-sessions/not-held share-sessions/session-epoch/0?of?fetch share-sessions/limit/*",
        step="ShareFetch*",
        path="answer.responses",
        kafka="*'records': [[][]]*",
        raftlog="(default)",
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
        "**Acknowledgements that overlap** are malformed, as those out of order, and no record is looked at. In Kafka "
        "the second of them finds a record in another state.",
        "share-sessions/ranges/overlapping share-sessions/ranges/twice",
        path="answer.responses.*.error_code",
        kafka="INVALID_RECORD_STATE",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "by design",
        "**Acquired records** are in one range if they were released together. Kafka begins a range at each batch.",
        "share-sessions/limit/one?record?at?most",
        path="answer.responses.*.acquired_records.*",
    ),
    Known(
        "by design",
        "**A share fetch of no bytes** acquires the first batch, as a Fetch reads it. In Kafka it acquires none.",
        "share-sessions/limit/no?bytes",
        path="answer.responses",
        kafka="(default)",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "A share fetch with batches of no records acquires each batch. Kafka adds a range that ends before it begins.",
        "share-sessions/limit/batches?of?none",
        path="answer.responses.*.acquired_records.*",
    ),
    Known(
        "kafka's own fault",
        "A share fetch in an unknown mode is invalid. In Kafka it is an unknown error.",
        "share-sessions/limit/an?unknown?mode",
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
    Known(
        "by design",
        "A share acknowledgement of no records has no answer for its partition. Kafka looks for the topic.",
        "share-sessions/place/an?unknown?topic?of?acknowledge",
        path="answer.responses",
        raftlog="(default)",
    ),
)
