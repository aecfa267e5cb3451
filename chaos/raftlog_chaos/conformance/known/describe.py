"""Known differences in what a cluster says of itself, and in elections, reassignments and credentials."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

KNOWN: Final = (
    Known(
        "by design",
        "**Beside an error, the other fields of an answer have no meaning**, and may differ from Kafka's.",
        "describe/cluster-endpoints/* describe/quorum-of/* describe/token-in/* describe/token-changed-in/*",
        path="answer.*",
    ),
    Known(
        "by design",
        "**A partition that a request names twice** is answered once by the APIs of elections and reassignments, and "
        "is not reassigned.",
        "describe/election/of?a*twice describe/reassignment/a?topic?twice",
        path="answer.*",
        errors="NONE=INVALID_REQUEST",
    ),
    Known(
        "by design",
        "**Topics without results** are left out by the APIs of elections and reassignments, where "
        "Kafka lists them without partitions.",
        "describe/election/of?no?partition describe/election-of-all describe/reassignment/no?partition",
        path="answer.*",
        raftlog="(default)",
    ),
    Known(
        "by design",
        "**Of two faults of a request** another one may be named than Kafka names.",
        "describe/change-of-factor/forbidden describe/credentials-of/stored?and?deleted "
        "describe/credentials-of/deleted?twice",
        path="answer.*.error_code",
    ),
    Known(
        "kafka's own fault",
        "A SCRAM credential without salt is refused; Kafka stores it.",
        "describe/credentials-of/no?salt",
        path="answer.results.*.error_code",
        kafka="NONE",
        raftlog="UNACCEPTABLE_CREDENTIAL",
        ends=True,
    ),
    Known(
        "kafka's own fault",
        "A SCRAM credential without a salted password is refused as such; Kafka answers UNKNOWN_SERVER_ERROR.",
        "describe/credentials-of/no?password",
        path="answer.results.*.error_code",
        kafka="UNKNOWN_SERVER_ERROR",
        raftlog="UNACCEPTABLE_CREDENTIAL",
    ),
    Known(
        "kafka's own fault",
        "One request can set a user's credentials of both mechanisms; Kafka refuses it with DUPLICATE_RESOURCE.",
        "describe/credentials-of/two?mechanisms",
        path="answer.results.*.error_code",
        kafka="DUPLICATE_RESOURCE",
        raftlog="NONE",
        ends=True,
    ),
)
