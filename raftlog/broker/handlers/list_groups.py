"""ListGroups 0-5: the groups that this broker coordinates, by state (KIP-518) and type (KIP-848)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.rights import CLUSTER, GROUP, may
from raftlog.coordinator.group import Group
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Filtered, Operation, ResourceType, Right

API_KEY: Final = ApiKey.LIST_GROUPS

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Return all groups here, with COORDINATOR_LOAD_IN_PROGRESS while some are still read back."""
    make = response_builders(API_KEY, request.api_version)
    states = {each.lower() for each in getattr(message, "states_filter", ())}
    types = {each.lower() for each in getattr(message, "types_filter", ())}
    groups = await broker.groups.read_all()
    sees_all = may(broker, request, Operation.DESCRIBE, CLUSTER)

    def listed(group: Group) -> Any:
        if (states and group.state.lower() not in states) or (types and _type(group) not in types):
            return None
        if not (sees_all or may(broker, request, Operation.DESCRIBE, GROUP, group.group_id)):
            return None
        return make.ListedGroup(
            group_id=group.group_id,
            protocol_type=_protocol_type(group),
            group_state=group.state,
            group_type=_type(group),
        )

    return make.ListGroupsResponse(groups=(listed(each) for each in groups))


def _protocol_type(group: Group) -> str:
    is_classic = group.modern is None
    return group.membership.protocol_type or "" if is_classic else _type(group)


def _type(group: Group) -> str:
    if group.share is not None:
        return SHARE
    return CLASSIC if group.consumer is None else CONSUMER


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Filtered(
        (Right(Operation.DESCRIBE, ResourceType.CLUSTER), Right(Operation.DESCRIBE, ResourceType.GROUP))
    ),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
)
