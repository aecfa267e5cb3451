"""LeaveGroup 0-5: one member, or since v3 several, each with its own error code (KIP-345)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, FencedInstanceId, KafkaError, UnknownMemberId
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import together
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import LeaveGroup, MemberRef
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.security.acls import READ_GROUP

API_KEY: Final = ApiKey.LEAVE_GROUP

FIRST_BATCHED_VERSION: Final = 3
MEMBERS_OWN: Final = (UnknownMemberId, FencedInstanceId)
"""The error of one member; other errors concern the request."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once the members' leaving is committed."""
    version = request.api_version
    if version < FIRST_BATCHED_VERSION:
        asked = LeaveGroup(message.group_id, MemberRef(message.member_id))
        await broker.groups.ask(GroupCoordinator.leave, asked)
        return build_response(API_KEY, version)
    make = response_builders(API_KEY, version)
    left = await together(
        broker.env,
        message.members,
        lambda each: broker.groups.ask(
            GroupCoordinator.leave,
            LeaveGroup(
                message.group_id,
                MemberRef(each.member_id, each.group_instance_id),
                getattr(each, "reason", None) or "",
            ),
        ),
    )

    def member(each: Any, outcome: KafkaError | None) -> Any:
        if outcome is not None and not isinstance(outcome, MEMBERS_OWN):
            raise outcome
        return make.MemberResponse(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=NONE if outcome is None else outcome.code,
        )

    return make.LeaveGroupResponse(members=(member(*each) for each in left))


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error of the whole request."""
    return build_response(API_KEY, request.api_version, error_code=error.code, members=())


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=READ_GROUP,
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(5,),
)
