"""Requests that change what all clients of a cluster share: a foreign broker is not sent these.

Names of histories carry their session's mark. A name without it belongs to another client.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

_OF_BROKERS: Final = (4, 8)
"""Types of config resources: BROKER and BROKER_LOGGER."""
_MATCH: Final = 2
"""A pattern type of filters for ACLs."""
_ALWAYS: Final = {
    "UpdateFeatures": "features",
    "UnregisterBroker": "brokers",
    "AddRaftVoter": "voters",
    "RemoveRaftVoter": "voters",
    "UpdateRaftVoter": "voters",
    "BrokerRegistration": "brokers",
    "BrokerHeartbeat": "brokers",
    "ControllerRegistration": "controllers",
    "AllocateProducerIds": "blocks of producer ids",
    "Vote": "the controllers' epoch",
    "BeginQuorumEpoch": "the controllers' epoch",
    "EndQuorumEpoch": "the controllers' epoch",
    "AlterPartition": "in-sync replicas",
    "AssignReplicasToDirs": "replicas",
    "CreateDelegationToken": "delegation tokens",
}
"""Requests by name, and what they change."""


def shared_state(api: str, fields: Mapping[str, Any], *, mark: str = "", foreign: Container[str] = ()) -> str:
    """Return what a request would change for all clients, "" for no change. Without a mark, names are not checked.

    `foreign` are the names of the topics that others use.
    """
    if api in _CHANGES_TOPICS and any(text in foreign for text in _texts(fields)):
        return "topics of others"
    if api in _ALWAYS:
        return _ALWAYS[api]
    if api in ("AlterConfigs", "IncrementalAlterConfigs"):
        kinds = {each.get("resource_type") for each in fields.get("resources") or ()}
        return "configs of brokers" if kinds & set(_OF_BROKERS) else _of_topics(fields)
    if api == "ElectLeaders":
        return "" if fields.get("topic_partitions") is not None else "leaders of all partitions"
    if api == "AlterClientQuotas":
        named = [each for entry in fields.get("entries") or () for each in entry.get("entity") or ()]
        shared = [each for each in named if _is_foreign(each.get("entity_name"), mark)]
        return "quotas of other clients" if shared else ""
    if api == "CreateAcls":
        created = fields.get("creations") or ()
        return "rights of other clients" if _any_foreign(created, "resource_name", mark) else ""
    if api == "DeleteAcls":
        filters = fields.get("filters") or ()
        return "rights of other clients" if any(_chooses_foreign(each, mark) for each in filters) else ""
    if api == "AlterUserScramCredentials":
        users = [*(fields.get("deletions") or ()), *(fields.get("upsertions") or ())]
        return "other users" if _any_foreign(users, "name", mark) else ""
    return _of_topics(fields) if api in _WRITES else ""


def changed_by(recorded: Iterable[Mapping[str, Any]]) -> str:
    """Return what the recorded requests of a history change for all clients, "" for no change."""
    found = (
        shared_state(str(step["asked"]).partition(" ")[0], step.get("fields") or {}) for step in recorded
    )
    return next(filter(None, found), "")


_WRITES: Final = (
    "Produce",
    "DeleteRecords",
    "DeleteTopics",
    "CreatePartitions",
    "CreateTopics",
    "AlterPartitionReassignments",
    "WriteTxnMarkers",
)
"""Requests that change the topics that they name."""
_CHANGES_TOPICS: Final = (
    *_WRITES,
    "AddPartitionsToTxn",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "ElectLeaders",
    "IncrementalAlterConfigs",
)
"""These, and requests that a broker refuses for internal topics, or that have no effect there."""


def _of_topics(fields: Any) -> str:
    """Return "internal topics" if an internal topic is named anywhere: a broker less careful than Kafka may obey."""
    return "internal topics" if any(text.startswith("__") for text in _texts(fields)) else ""


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _any_foreign(named: Iterable[Mapping[str, Any]], field: str, mark: str) -> bool:
    return any(_is_foreign(each.get(field), mark) for each in named)


def _chooses_foreign(acl_filter: Mapping[str, Any], mark: str) -> bool:
    """Whether a filter of DeleteAcls may match an ACL of others: a name that MATCHes is also that of wildcards."""
    matches = acl_filter.get("pattern_type_filter") == _MATCH
    return (matches or _is_foreign(acl_filter.get("resource_name_filter"), mark)) and _is_foreign(
        acl_filter.get("principal_filter"), mark
    )


def _is_foreign(name: str | None, mark: str) -> bool:
    return name is None or mark not in name
