"""The known differences between Apache Kafka 4.3 and raftlog, a module for each subject that has some."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Final

from raftlog_chaos.conformance.differences import Known

SUBJECTS: Final[Mapping[str, str]] = {
    "general": "In general",
    "features": "Features and versions",
    "topics": "Topics and partitions",
    "produce": "Producing",
    "idempotence": "Idempotent producers",
    "transactions": "Transactions",
    "fetch": "Fetching",
    "list_offsets": "Offsets by time",
    "delete_records": "Deleting records",
    "offsets": "Committed offsets",
    "groups": "Classic groups",
    "consumer_groups": "Consumer groups (KIP-848)",
    "share_groups": "Share groups (KIP-932)",
    "share_sessions": "Share sessions (KIP-932)",
    "share_requests": "Requests of share groups (KIP-932)",
    "describe": "Descriptions, elections and reassignments",
    "configs": "Configs of topics, groups and client metrics",
    "broker_configs": "Configs of brokers",
    "acls": "ACLs",
    "quotas": "Quotas",
}
"""Module → its heading on the page, in the page's order."""


@cache
def load_by_subject() -> Mapping[str, tuple[Known, ...]]:
    """Return the known differences by heading."""
    return {
        heading: importlib.import_module(f"{__name__}.{module}").KNOWN for module, heading in SUBJECTS.items()
    }


def load() -> tuple[Known, ...]:
    """Return all known differences."""
    return tuple(known for some in load_by_subject().values() for known in some)
