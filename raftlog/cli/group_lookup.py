"""Groups as their coordinators describe them: state, members, and what each member reads.

Classic groups and KIP-848's consumer groups are described by different APIs; here they look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from raftlog.base.errors import GroupIdNotFound, UnsupportedVersion, from_code
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target
from raftlog.client.metadata import PartitionKey
from raftlog.protocol.apis import ApiKey

NAMED: Final = 5
"""Members named in a message."""
DEAD: Final = "dead"
"""The state of a group that there is not."""
SHARE: Final = ("share",)
CONSUMER: Final = ("classic", "consumer")
"""Types of groups that one kind of command is for, as ListGroups has them (KIP-848, KIP-932)."""


class GroupMember(NamedTuple):
    """A member of a group and the partitions that it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[PartitionKey, ...]


class Group(NamedTuple):
    """A group; `state` in small letters."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


def described(target: Target, name: str, verb: str = "describe") -> Group:
    """Return a group. Raise Failure if there is none; for a share group it names this verb of `share-group`."""
    found = looked_up(target, name)
    if found is None:
        refuse_share_group(target, name, verb)
        raise Failure(f"there is no group {name}", exits.NOT_FOUND)
    return found


def refuse_share_group(target: Target, name: str, verb: str) -> None:
    """Raise Failure if a group is a share group: `raftlog share-group VERB` is for it."""
    refuse_type(target, name, SHARE, f"raftlog share-group {verb} {name}")


def refuse_type(target: Target, name: str, types: Sequence[str], command: str) -> None:
    """Raise Failure, with the command to use instead, if a group is of one of these types."""
    with target.failures(f"{name}: ", needs="DESCRIBE"):
        answer = target.cluster.ask_coordinator(
            name,
            ApiKey.LIST_GROUPS,
            lambda make: make.ListGroupsRequest(states_filter=(), types_filter=tuple(types)),
        )
    for each in answer.groups:
        if each.group_id == name and (getattr(each, "group_type", "").lower() or CONSUMER[0]) in types:
            kind = "share" if types == SHARE else "consumer"
            raise Failure(f"{name} is a {kind} group: {command}", exits.NOT_FOUND)


def looked_up(target: Target, name: str) -> Group | None:
    """Return a group, None when there is none. Raise Failure."""
    with target.failures(f"{name}: ", needs="DESCRIBE"):
        found = _describe_consumer(target, name) or _describe_classic(target, name)
    return None if found.state == DEAD else found


def _describe_consumer(target: Target, name: str) -> Group | None:
    """Return a group of KIP-848, None for another group and where the cluster knows no such groups."""
    try:
        (found,) = target.cluster.ask_coordinator(
            name,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            lambda make: make.ConsumerGroupDescribeRequest(
                group_ids=(name,), include_authorized_operations=False
            ),
            errors=_group_codes,
        ).groups
        _check(found)
    except (GroupIdNotFound, UnsupportedVersion):
        return None
    members = tuple(
        GroupMember(
            each.member_id,
            each.instance_id or None,
            each.client_id,
            each.client_host,
            tuple(
                (topic.topic_name, number)
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for each in found.members
    )
    coordinator = target.cluster.coordinator(name)
    return Group(name, found.group_state.lower(), found.assignor_name, coordinator, members)


def _describe_classic(target: Target, name: str) -> Group:
    (found,) = target.cluster.ask_coordinator(
        name,
        ApiKey.DESCRIBE_GROUPS,
        lambda make: make.DescribeGroupsRequest(groups=(name,), include_authorized_operations=False),
        errors=_group_codes,
    ).groups
    _check(found)
    members = tuple(
        GroupMember(
            each.member_id,
            getattr(each, "group_instance_id", None) or None,
            each.client_id,
            each.client_host,
            _partitions_of(bytes(each.member_assignment)) if found.protocol_type == "consumer" else (),
        )
        for each in found.members
    )
    return Group(
        name, found.group_state.lower(), found.protocol_data, target.cluster.coordinator(name), members
    )


def _partitions_of(assignment: bytes) -> tuple[PartitionKey, ...]:
    from raftlog.client.member import read_assignment

    assigned = read_assignment(assignment)
    return tuple((topic, number) for topic, numbers in assigned.items() for number in numbers)


def _group_codes(answer: Any) -> Sequence[int]:
    return [each.error_code for each in answer.groups]


def _check(found: Any) -> None:
    if found.error_code:
        raise from_code(found.error_code, getattr(found, "error_message", None))


def committed(target: Target, name: str) -> dict[PartitionKey, int]:
    """Return a group's committed offsets by partition. Raise Failure."""
    from raftlog.client.member import committed_offsets

    with target.failures(f"{name}: ", needs="DESCRIBE"):
        try:
            return committed_offsets(target.cluster, name)
        except GroupIdNotFound:
            return {}


def in_use(found: Group) -> str:
    """Return why a group with members can't be changed, in words; "" when it has none."""
    if not found.members:
        return ""
    names = [each.instance_id or each.member_id for each in found.members]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    count = "a member" if len(names) == 1 else f"{len(names)} members"
    static = any(each.instance_id for each in found.members)
    waits = "; static ones are members until their session ends" if static else ""
    return f"group {found.group_id} has {count} ({', '.join(names[:NAMED])}{more}): stop them first{waits}"
