"""Heartbeat 0-4 of a group's member (KIP-62, 345)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import CoordinatorLoadInProgress
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import Heartbeat, MemberRef
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response
from raftlog.security.acls import READ_GROUP

API_KEY: Final = ApiKey.HEARTBEAT


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond whether the member still belongs to its generation.

    While the coordinator loads, a heartbeat succeeds, as in Kafka: aiokafka's consumer ends at that error.
    """
    member = MemberRef(message.member_id, getattr(message, "group_instance_id", None))
    asked = Heartbeat(message.group_id, member, message.generation_id)
    try:
        waiting = broker.groups.ask(GroupCoordinator.heartbeat, asked)
    except CoordinatorLoadInProgress:
        return build_response(API_KEY, request.api_version)
    await waiting
    return build_response(API_KEY, request.api_version)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=READ_GROUP,
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
    prepared=(4,),
)
