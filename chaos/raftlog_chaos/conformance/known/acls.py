"""Known differences in ACLs."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

UNKNOWN: Final = (
    "Types, operations and permissions of ACLs that do not exist are answered with INVALID_REQUEST, for each ACL and "
    "filter by itself. Kafka closes the connection, answers UNKNOWN_SERVER_ERROR, or matches no entity."
)
NEVER: Final = (
    "**An ACL that could never match is refused**: for a principal without a name, and for a host that is no address. "
    "Kafka stores it, and compares the text."
)

KNOWN: Final = (
    Known(
        "kafka's own fault",
        UNKNOWN,
        "acls/created/*",
        path="answer.results.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "kafka's own fault",
        UNKNOWN,
        "acls/created/* acls/filtered/*",
        path="answer",
        kafka="the connection is closed",
        raftlog="*INVALID_REQUEST*",
    ),
    Known(
        "kafka's own fault",
        UNKNOWN,
        "acls/filtered/*",
        path="answer.error_code",
        kafka="NONE",
        raftlog="INVALID_REQUEST",
    ),
    Known(
        "by design",
        NEVER,
        "acls/created/*",
        path="answer.results.0.error_code",
        kafka="NONE",
        raftlog="INVALID_REQUEST",
        ends=True,
    ),
    Known(
        "by design",
        "**An ACL that two filters of one DeleteAcls choose** is in the answer once, for the first of them, so that a "
        "small request makes no huge answer. Kafka lists it for both.",
        "acls/several-filters",
        step="DeleteAcls*",
        path="answer.filter_results.1.matching_acls",
    ),
)
