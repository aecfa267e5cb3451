"""ListGroups 0-5: the groups that this broker coordinates, by state (KIP-518) and type (KIP-848)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.LIST_GROUPS

CLASSIC: Final = "classic"


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer with all groups here, COORDINATOR_LOAD_IN_PROGRESS while some are still read back."""
    make = response_shapes(API_KEY, request.api_version)
    states = {each.lower() for each in getattr(message, "states_filter", ())}
    types = {each.lower() for each in getattr(message, "types_filter", ())}
    groups = [] if types and CLASSIC not in types else await broker.groups.read_all()
    return make.ListGroupsResponse(
        groups=tuple(
            make.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.membership.protocol_type or "",
                group_state=group.state,
                group_type=CLASSIC,
            )
            for group in groups
            if not states or group.state.lower() in states
        )
    )
