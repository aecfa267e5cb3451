"""Known differences in the levels of features and the versions of APIs."""

from __future__ import annotations

from typing import Final

from raftlog_chaos.conformance.differences import Known

NEWER: Final = "**ApiVersions 5, TxnOffsetCommit 6 and DeleteGroups 3** are there, as in Kafka 4.4."

KNOWN: Final = (
    Known("by design", NEWER, "features/versions-in/*", path="answer.[12]8", raftlog="0 to [56]"),
    Known("by design", NEWER, "features/versions-in/*", path="answer.42", raftlog="0 to 3"),
    Known("by design", NEWER, "features/unsupported-version/*", path="answer.2.0.2", raftlog="5"),
    Known("by design", NEWER, "features/unsupported-version/*", path="answer.frame", raftlog="*0005"),
    Known(
        "not built",
        "UnregisterController of Kafka 4.4 (controllers have no registrations: RemoveRaftVoter removes all of a voter)",
    ),
    Known(
        "by design",
        "**The APIs of client telemetry** are listed only while there is a subscription to client metrics.",
    ),
    Known(
        "kafka's own fault",
        "A feature that an UpdateFeatures request names twice is refused; Kafka takes the last level.",
        "features/validated/twice features/update-in/twice*",
        path="answer*",
        errors="NONE=INVALID_REQUEST",
    ),
    Known(
        "not built",
        "tiered storage, moving replicas between log directories",
        "features/versions-in/*",
        path="answer.34",
        raftlog="(default)",
    ),
    Known(
        "not built",
        "streams groups, two-phase commit (KIP-939), the feature eligible.leader.replicas.version",
        "features/versions-in/*",
        path="answer.[789]?",
        raftlog="(default)",
    ),
    Known(
        "not built",
        "metadata versions before 4.0",
        "features/versions-in/*",
        path="answer.supported_features.metadata.version.min_version",
    ),
)
