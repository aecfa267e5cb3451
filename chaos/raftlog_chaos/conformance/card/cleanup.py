"""Removes what histories left on a broker: transactions, groups, topics, rights, quotas, users and configs of theirs.

Only names with the mark of a session, or that a session asked for and that were not there before, are touched. Kafka
has no request that deletes a transactional id: the broker expires it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from raftlog_chaos.conformance.card.guest import GuestSession, Host
from raftlog_chaos.conformance.card.versions import NotServed
from raftlog_chaos.conformance.session import TIMEOUT_MS, NotReady

ANY: Final = 1
"""The value ANY of each enum in an ACL filter."""
LEAVING: Final = -1
"""The epoch with which a member of the new protocols leaves."""
GROUP_KINDS: Final = ("Consumer", "Share", "Streams")
"""The protocols with members that leave by a heartbeat, as the names of their requests begin."""
DELETE: Final = 1
"""An operation of IncrementalAlterConfigs."""
CONFIGS_OF: Final = {32: "a group", 16: "client metrics"}
"""Config resources that remain after everything else of their name is deleted."""
DYNAMIC_SOURCES: Final = (1, 7, 8)
"""The sources of explicitly set configs: of a topic, of client metrics, of a group."""
RETRIES_S: Final = 5.0


class Cleanup:
    """The names to remove: names with one of the marks, and `created` names that were not there `before`."""

    def __init__(self, host: Host, *, marks: frozenset[str], created: frozenset[str]) -> None:
        self._session = GuestSession(host._replace(cluster_wide=True))  # it looks at names itself
        self._marks = marks
        self._created = created

    def run(self) -> list[str]:
        """Remove everything, and return what is left, as texts. It can be run once."""
        try:
            return self._run()
        finally:
            self._session.close()

    def _run(self) -> list[str]:
        for remove in (
            self._end_transactions,
            self._delete_groups,
            self._delete_topics,
            self._delete_rights,
            self._delete_quotas,
            self._delete_users,
            self._delete_configs,
        ):
            self._try(remove)
        left: list[str] = []
        for kind, names in (("group", self._groups), ("topic", self._topics)):
            self._session.wait(f"no {kind} is left", _is_empty(names), within_s=RETRIES_S)
            left += [f"{kind} {name}" for name in _names(names)]
        return left

    def _try(self, remove: Callable[[], None]) -> None:
        """Remove, unless the broker does not serve it or its user may not: then no history has made any."""
        try:
            remove()
        except (NotServed, NotReady, OSError, LookupError):
            pass

    def _is_ours(self, name: str | None) -> bool:
        return name is not None and any(mark in name for mark in self._marks)

    # --- transactions and groups

    def _end_transactions(self) -> None:
        for node in self._session.nodes():
            found = self._session.query("ListTransactions", 1, node=node)["transaction_states"]
            for each in found:
                name = each["transactional_id"]
                if self._is_ours(name) and each["transaction_state"] == "Ongoing":
                    node_id = self._session.coordinator(name, kind=1)
                    fields = {"transactional_id": name, "transaction_timeout": TIMEOUT_MS}
                    self._session.query("InitProducerId", 4, node=node_id, **fields)

    def _groups(self) -> Iterator[str]:
        for node in self._session.nodes():
            for each in self._session.query("ListGroups", 5, node=node)["groups"]:
                if self._is_ours(each["group_id"]):
                    yield each["group_id"]

    def _delete_groups(self) -> None:
        for group in set(_names(self._groups)):
            self._delete_group(group, self._session.coordinator(group))

    def _delete_group(self, group: str, node: int) -> None:
        self._try(lambda: self._leave_classic(group, node))
        for kind in GROUP_KINDS:
            self._try(lambda kind=kind: self._leave(kind, group, node))  # type: ignore[misc]
        self._session.wait(f"{group} is deleted", lambda: self._is_deleted(group, node), within_s=RETRIES_S)

    def _leave_classic(self, group: str, node: int) -> None:
        (found,) = self._session.query("DescribeGroups", 5, node=node, groups=[group])["groups"]
        members = [{"member_id": each["member_id"]} for each in found["members"]]
        if members:
            self._session.query("LeaveGroup", 5, node=node, group_id=group, members=members)

    def _leave(self, kind: str, group: str, node: int) -> None:
        (found,) = self._session.query(f"{kind}GroupDescribe", 1, node=node, group_ids=[group])["groups"]
        for each in found["members"]:
            member = {"group_id": group, "member_id": each["member_id"], "member_epoch": LEAVING}
            self._session.query(f"{kind}GroupHeartbeat", 1, node=node, **member)

    def _is_deleted(self, group: str, node: int) -> bool:
        (answer,) = self._session.query("DeleteGroups", 2, node=node, groups_names=[group])["results"]
        return answer["error_code"] in ("NONE", "GROUP_ID_NOT_FOUND")

    # --- topics and the rest

    def _topics(self) -> Iterator[str]:
        for each in self._session.query("Metadata", 9, topics=None)["topics"]:
            if self._is_ours(each["name"]) or each["name"] in self._created:
                yield each["name"]

    def _delete_topics(self) -> None:
        if names := list(self._topics()):
            self._session.query("DeleteTopics", 5, topic_names=names, timeout=TIMEOUT_MS)

    def _delete_rights(self) -> None:
        filters = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        found = self._session.query("DescribeAcls", 3, **dict.fromkeys(filters, ANY))["resources"]
        ours = [
            {
                "resource_type_filter": resource["resource_type"],
                "resource_name_filter": resource["resource_name"],
                "pattern_type_filter": resource["pattern_type"],
                "principal_filter": acl["principal"],
                "host_filter": acl["host"],
                "operation": acl["operation"],
                "permission_type": acl["permission_type"],
            }
            for resource in found
            for acl in resource["acls"]
            if self._is_ours(resource["resource_name"]) or self._is_ours(acl["principal"])
        ]
        if ours:
            self._session.query("DeleteAcls", 3, filters=ours)

    def _delete_quotas(self) -> None:
        found = self._session.query("DescribeClientQuotas", 1, components=[])["entries"] or ()
        ours = [
            {
                "entity": each["entity"],
                "ops": [{"key": value["key"], "remove": True} for value in each["values"]],
            }
            for each in found
            if any(self._is_ours(part["entity_name"]) for part in each["entity"])
        ]
        if ours:
            self._session.query("AlterClientQuotas", 1, entries=ours)

    def _delete_users(self) -> None:
        found = self._session.query("DescribeUserScramCredentials", 0, users=None)["results"]
        ours = [
            {"name": each["user"], "mechanism": credential["mechanism"]}
            for each in found
            if self._is_ours(each["user"])
            for credential in each["credential_infos"]
        ]
        if ours:
            self._session.query("AlterUserScramCredentials", 0, deletions=ours)

    def _delete_configs(self) -> None:
        found = self._session.query("ListConfigResources", 1, resource_types=list(CONFIGS_OF))
        for each in found["config_resources"]:
            if self._is_ours(each["resource_name"]):
                self._unset(each["resource_type"], each["resource_name"])

    def _unset(self, kind: int, name: str) -> None:
        resource: Mapping[str, Any] = {"resource_type": kind, "resource_name": name}
        described = {**resource, "configuration_keys": None}
        (found,) = self._session.query("DescribeConfigs", 4, resources=[described])["results"]
        configs = [
            {"name": each["name"], "config_operation": DELETE}
            for each in found["configs"]
            if each["config_source"] in DYNAMIC_SOURCES
        ]
        if configs:
            self._session.query("IncrementalAlterConfigs", 1, resources=[{**resource, "configs": configs}])


def _names(listed: Callable[[], Iterator[str]]) -> Sequence[str]:
    """Return the listed names; empty if the broker does not list them."""
    try:
        return sorted(listed())
    except (NotServed, NotReady, OSError, LookupError):
        return ()


def _is_empty(listed: Callable[[], Iterator[str]]) -> Callable[[], bool]:
    return lambda: not _names(listed)
