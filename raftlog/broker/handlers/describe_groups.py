"""DescribeGroups 0-6: members and their assignments, of classic groups only.

A node's admin API also asks what happened to a group of either type, in a field of raftlog's own. Nobody else is told:
the answer names topics, which the admin API hides from those who may not see them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from raftlog.base.errors import NONE, CoordinatorLoadInProgress, GroupIdNotFound, KafkaError
from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.metadata_view import NOT_ASKED
from raftlog.broker.rights import GROUP, demand, operations
from raftlog.broker.turns import TurnCounter, in_turns
from raftlog.coordinator.group import DEAD, STABLE, Group
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ADMIN_API, DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_GROUPS

FIRST_NOT_FOUND_VERSION: Final = 6
"""Before it, a group that does not exist is described as Dead (KIP-1043)."""


MAX_MEMBERS: Final = 20_000
"""Members in one answer, and those of the group that reaches it."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per group; once there is enough to tell, the others are told to ask again."""
    make = response_builders(API_KEY, request.api_version)
    is_admin = request.has_all_rights or request.principal == ADMIN_API
    if is_admin and getattr(message, "tell_history", False) and len(message.groups) == 1:
        return await _tell_history(broker, request, message.groups[0])
    groups, told, pace = [], 0, TurnCounter(broker.env)
    async for group_id in in_turns(broker.env, dict.fromkeys(message.groups)):
        answer = await _describe(broker, request, message, group_id, None if told >= MAX_MEMBERS else pace)
        groups.append(answer)
        told += len(answer.members)
    return make.DescribeGroupsResponse(groups=tuple(groups))


async def _describe(
    broker: BrokerContext, request: RequestContext, message: Any, group_id: str, pace: TurnCounter | None
) -> Any:
    """`pace` None: there is no room for more."""
    make = response_builders(API_KEY, request.api_version)
    try:
        if pace is None:
            raise CoordinatorLoadInProgress("the answer is full, ask again for this group")
        demand(broker, request, Operation.DESCRIBE, GROUP, group_id)
        group = await broker.groups.read(group_id)
        if group.consumer is not None:
            group = Group(group_id)
        if not group.exists and request.api_version >= FIRST_NOT_FOUND_VERSION:
            raise GroupIdNotFound(f"group {group_id} is not a classic group")
    except KafkaError as error:
        state = DEAD if isinstance(error, GroupIdNotFound) else ""
        return make.DescribedGroup(
            group_id=group_id,
            group_state=state,
            error_code=error.code,
            error_message=error.message,
            members=(),
        )
    return make.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.membership.protocol_type or "",
        protocol_data=(group.membership.protocol or "") if group.state == STABLE else "",
        members=await _members(make, group, pace),
        authorized_operations=operations(broker, request, GROUP, group_id)
        if getattr(message, "include_authorized_operations", False)
        else NOT_ASKED,
    )


async def _tell_history(broker: BrokerContext, request: RequestContext, group_id: str) -> Any:
    """Answer what happened to a group of either type, without its members. The admin API has seen to its rights."""
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


async def _members(make: Any, group: Group, pace: TurnCounter) -> tuple[Any, ...]:
    """Subscriptions are shown of a stable group only; in a rebalance the assignments are those before it."""
    is_stable = group.state == STABLE
    members = []
    for each in group.membership.members.values():
        member = make.DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.subscription if is_stable else b"",
            member_assignment=each.assignment,
        )
        members.append(member)
        await pace.did()
    return tuple(members)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.DESCRIBE, ResourceType.GROUP),)),
    max_parts=NAMES,
    audit=NoChange(),
    controllers=False,
)
