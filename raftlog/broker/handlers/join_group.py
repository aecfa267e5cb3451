"""JoinGroup 0-9 (KIP-62, 345, 394, 559, 800, 814)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from raftlog.base.errors import CoordinatorLoadInProgress, KafkaError
from raftlog.base.errors import MemberIdRequired as MemberIdRequiredError
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.rights import viewer
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_memory import protocols_bytes
from raftlog.coordinator.group_requests import JoinGroup, JoinGroupResult, MemberIdRequired, MemberRef
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import build_response, response_builders
from raftlog.security.acls import READ_GROUP

API_KEY: Final = ApiKey.JOIN_GROUP

FIRST_TWO_STEP_VERSION: Final = 4
FIRST_NULLABLE_PROTOCOL_VERSION: Final = 7
FIRST_SKIPPING_VERSION: Final = 9
MAX_REASON_CHARS: Final = 255
"""Clients cut their reasons to that, too."""

MAX_WAITING_BYTES: Final = 8 * 1024
"""A larger request does not wait for a loading coordinator, since waiting requests are not counted in memory."""


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all members have joined and the new generation is committed.

    From v4 on a new member first gets its id.

    Until then only what its group keeps is kept of the request. On COORDINATOR_LOAD_IN_PROGRESS librdkafka pauses three
    seconds, which would delay the first group of every new cluster. So a small request waits a moment while a
    coordinator is loading.
    """
    try:
        join = _request(broker, request, message)
        waiting: Awaitable[Any] = broker.groups.ask(GroupCoordinator.join, join, bounded=False)
    except CoordinatorLoadInProgress as error:
        if _size(join) > MAX_WAITING_BYTES:
            return _failed(request, error.code, message.member_id)
        waiting = _join_once_loaded(broker, join)
    except KafkaError as error:
        return _failed(request, error.code, message.member_id)
    return _answer(request, message.member_id, waiting)


def _size(join: JoinGroup) -> int:
    who = (join.group_id, join.member.member_id, join.member.group_instance_id or "", join.client_id)
    return protocols_bytes(join.protocols) + sum(map(len, (*who, join.protocol_type, join.reason)))


async def _join_once_loaded(broker: BrokerContext, join: JoinGroup) -> JoinGroupResult | MemberIdRequired:
    await broker.groups.wait_until_loaded(join.group_id)
    reply: JoinGroupResult | MemberIdRequired = await broker.groups.ask(
        GroupCoordinator.join, join, bounded=False
    )
    return reply


async def _answer(
    request: RequestContext, member_id: str, waiting: Awaitable[JoinGroupResult | MemberIdRequired]
) -> Any:
    try:
        reply = await waiting
    except KafkaError as error:
        error.__traceback__ = None  # it holds this frame, which holds the error
        return _failed(request, error.code, member_id)
    if isinstance(reply, MemberIdRequired):
        return _failed(request, MemberIdRequiredError.code, reply.member_id)
    return _joined(request, reply)


def _request(broker: BrokerContext, request: RequestContext, message: Any) -> JoinGroup:
    return JoinGroup(
        group_id=message.group_id,
        member=MemberRef(message.member_id, getattr(message, "group_instance_id", None)),
        client_id=request.client_id or "",
        client_host=f"/{request.peer_host}",
        session_timeout_ms=message.session_timeout,
        rebalance_timeout_ms=getattr(message, "rebalance_timeout", message.session_timeout),
        protocol_type=message.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in message.protocols),
        may_require_member_id=request.api_version >= FIRST_TWO_STEP_VERSION,
        may_skip_assignment=request.api_version >= FIRST_SKIPPING_VERSION,
        viewer=viewer(broker, request),
        reason=(getattr(message, "reason", None) or "")[:MAX_REASON_CHARS],
    )


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the response for an error before the group was known."""
    return _failed(request, error.code, "")


def _joined(request: RequestContext, reply: JoinGroupResult) -> Any:
    make = response_builders(API_KEY, request.api_version)
    members = tuple(
        make.JoinGroupResponseMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            metadata=each.subscription,
        )
        for each in reply.members
    )
    return make.JoinGroupResponse(
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol or _no_protocol(request),
        leader=reply.leader,
        member_id=reply.member_id,
        members=members,
        **(
            {"skip_assignment": reply.skip_assignment}
            if request.api_version >= FIRST_SKIPPING_VERSION
            else {}
        ),
    )


def _no_protocol(request: RequestContext) -> str | None:
    return None if request.api_version >= FIRST_NULLABLE_PROTOCOL_VERSION else ""


def _failed(request: RequestContext, error_code: int, member_id: str) -> Any:
    return build_response(
        API_KEY,
        request.api_version,
        error_code=error_code,
        generation_id=-1,
        protocol_name=_no_protocol(request),
        leader="",
        member_id=member_id,
        members=(),
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=READ_GROUP,
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
    prepared=(9,),
    waits_for_members=True,
)
