"""LeaveGroup 0-5: one member, or since v3 several, each with its own answer (KIP-345)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, FencedInstanceId, KafkaError, UnknownMemberId
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.coordinator.requests import MemberRef
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import build, response_shapes

API_KEY: Final = ApiKey.LEAVE_GROUP

FIRST_BATCHED_VERSION: Final = 3


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer once the members' leaving is committed."""
    version = request.api_version
    if version < FIRST_BATCHED_VERSION:
        await broker.groups.leave(message.group_id, MemberRef(message.member_id))
        return build(API_KEY, version)
    make = response_shapes(API_KEY, version)
    members = []
    async for each in in_turns(message.members):
        code = await _leave(broker, message.group_id, MemberRef(each.member_id, each.group_instance_id))
        members.append(
            make.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
        )
    return make.LeaveGroupResponse(members=tuple(members))


async def _leave(broker: BrokerContext, group_id: str, member: MemberRef) -> int:
    """Only what is wrong with this member is its own error; the rest concerns the request."""
    try:
        await broker.groups.leave(group_id, member)
    except (UnknownMemberId, FencedInstanceId) as error:
        return error.code
    return NONE


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Say what is wrong with the whole request."""
    return build(API_KEY, request.api_version, error_code=error.code, members=())
