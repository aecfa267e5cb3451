"""Heartbeat 0-4 of a group's member (KIP-62, 345)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import Heartbeat, MemberRef
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response

API_KEY: Final = ApiKey.HEARTBEAT


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer whether the member still belongs to its generation."""
    member = MemberRef(message.member_id, getattr(message, "group_instance_id", None))
    asked = Heartbeat(message.group_id, member, message.generation_id)
    await broker.groups.ask(GroupCoordinator.heartbeat, asked)
    return build_response(API_KEY, request.api_version)
