"""DescribeGroups 0-6: members and their assignments, of classic groups only.

A node's admin API also requests the history of a group of either type, in a private field. Other clients do not get it:
the response names topics, which the admin API hides from users without the right to see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from raftlog.base.errors import NONE, CoordinatorLoadInProgress, GroupIdNotFound, KafkaError
from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.metadata_view import NOT_ASKED
from raftlog.broker.rights import GROUP, demand, operations
from raftlog.coordinator.group import DEAD, STABLE, Group
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ADMIN_API, DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_GROUPS

FIRST_NOT_FOUND_VERSION: Final = 6
"""In earlier versions, a group that does not exist is described as Dead (KIP-1043)."""


MAX_MEMBERS: Final = 20_000
"""The limit of members in a response. The group that reaches it is still included."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group. Once the response is full, the remaining groups get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    is_admin = request.has_all_rights or request.principal == ADMIN_API
    if is_admin and getattr(message, "tell_history", False) and len(message.groups) == 1:
        return await _describe_history(broker, request, message.groups[0])
    answered = 0

    async def described(group_id: str) -> Any:
        nonlocal answered
        try:
            if answered >= MAX_MEMBERS:
                raise CoordinatorLoadInProgress("the response is full; describe this group again")
            group = await _read(broker, request, group_id)
        except KafkaError as error:
            return _failed(make, group_id, error)
        answered += len(group.membership.members)
        return _described(broker, request, message, group)

    return make.DescribeGroupsResponse(groups=(described(each) for each in dict.fromkeys(message.groups)))


async def _read(broker: BrokerContext, request: RequestContext, group_id: str) -> Group:
    demand(broker, request, Operation.DESCRIBE, GROUP, group_id)
    group = await broker.groups.read(group_id)
    if group.modern is not None:
        group = Group(group_id)
    if not group.exists and request.api_version >= FIRST_NOT_FOUND_VERSION:
        raise GroupIdNotFound(f"group {group_id} is not a classic group")
    return group


def _failed(make: Any, group_id: str, error: KafkaError) -> Any:
    return make.DescribedGroup(
        group_id=group_id,
        group_state=DEAD if isinstance(error, GroupIdNotFound) else "",
        error_code=error.code,
        error_message=error.message,
        members=(),
    )


def _described(broker: BrokerContext, request: RequestContext, message: Any, group: Group) -> Any:
    make = response_builders(API_KEY, request.api_version)
    return make.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.membership.protocol_type or "",
        protocol_data=(group.membership.protocol or "") if group.state == STABLE else "",
        members=_members(make, group),
        authorized_operations=operations(broker, request, GROUP, group.group_id)
        if getattr(message, "include_authorized_operations", False)
        else NOT_ASKED,
    )


async def _describe_history(broker: BrokerContext, request: RequestContext, group_id: str) -> Any:
    """Return the history of a group of either type, without its members. The admin API has checked authorization."""
    make = response_builders(API_KEY, request.api_version)
    history, state, error_code, error_message = b"", "", NONE, None
    try:
        found = await broker.groups.read_history(group_id)
        history, state = msgspec.json.encode(found), found.state
    except KafkaError as error:
        error_code, error_message = error.code, error.message
    group = make.DescribedGroup(
        group_id=group_id,
        group_state=state,
        error_code=error_code,
        error_message=error_message,
        members=(),
    )
    return make.DescribeGroupsResponse(groups=(group,), history=history)


def _members(make: Any, group: Group) -> Iterator[Any]:
    """Subscriptions are shown of a stable group only; in a rebalance the assignments are those before it."""
    is_stable = group.state == STABLE
    for each in group.membership.members.values():
        yield make.DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.subscription if is_stable else b"",
            member_assignment=each.assignment,
        )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.DESCRIBE, ResourceType.GROUP),)),
    max_parts=NAMES,
    audit=NoChange(),
    controllers=False,
)
