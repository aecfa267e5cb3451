"""SyncGroup 0-5 (KIP-345, 559)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from raftlog.base.errors import CoordinatorLoadInProgress, InconsistentGroupProtocol, RebalanceInProgress
from raftlog.broker.api import Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import MemberRef, SyncGroup, SyncGroupResult
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response
from raftlog.security.acls import READ_GROUP

API_KEY: Final = ApiKey.SYNC_GROUP

FIRST_MANDATORY_PROTOCOL_VERSION: Final = 5
"""From it on a member sends the protocol that its group has chosen, by type and name (KIP-559)."""


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Awaitable[Any]:
    """Return the member's own assignment once it is committed. The request is not kept until then.

    While the coordinator loads, a member has to join again, as in Kafka up to 3.9. COORDINATOR_LOAD_IN_PROGRESS in a
    sync ends Java's and aiokafka's consumers.
    """
    if request.api_version >= FIRST_MANDATORY_PROTOCOL_VERSION and None in (
        message.protocol_type,
        message.protocol_name,
    ):
        raise InconsistentGroupProtocol("protocol_type and protocol_name must not be null")
    asked = SyncGroup(
        group_id=message.group_id,
        member=MemberRef(message.member_id, getattr(message, "group_instance_id", None)),
        generation=message.generation_id,
        assignments={each.member_id: bytes(each.assignment) for each in message.assignments},
        protocol_type=getattr(message, "protocol_type", None),
        protocol=getattr(message, "protocol_name", None),
    )
    try:
        waiting = broker.groups.ask(GroupCoordinator.sync, asked, bounded=False)
    except CoordinatorLoadInProgress:
        raise RebalanceInProgress from None
    return _synced(request, waiting)


async def _synced(request: RequestContext, waiting: Awaitable[SyncGroupResult]) -> Any:
    reply = await waiting
    return build_response(
        API_KEY,
        request.api_version,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=READ_GROUP,
    max_parts=20_000,  # members, at once; the record of a generation has no room for as many
    audit=NoChange(),
    controllers=False,
    prepared=(5,),
    waits_for_members=True,
)
