"""DeleteGroups 0-3: delete groups without members, with their offsets (KIP-229).

Since version 3 an error has a message (KIP-1331).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.base.errors import NONE, CoordinatorLoadInProgress, KafkaError
from raftlog.broker.api import NAMES, Api, Change
from raftlog.broker.audited_changes import named
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.controller_requests import truncate_message
from raftlog.broker.long_work.turns import together
from raftlog.broker.rights import GROUP, demand
from raftlog.coordinator.group_coordinator import GroupCoordinator
from raftlog.coordinator.group_requests import DeleteGroup
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DELETE_GROUPS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per group, once its deletion is committed."""
    make = response_builders(API_KEY, request.api_version)
    deleted = await together(
        broker.env,
        dict.fromkeys(message.groups_names),
        lambda each: _delete(broker, request, each),
        size_of=broker.groups.size_of,
    )
    return make.DeleteGroupsResponse(
        results=(
            make.DeletableGroupResult(
                group_id=each,
                error_code=NONE if outcome is None else outcome.code,
                error_message=None if outcome is None else truncate_message(outcome.message),
            )
            for each, outcome in deleted
        )
    )


def _delete(broker: BrokerContext, request: RequestContext, group_id: str) -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    try:
        demand(broker, request, Operation.DELETE, GROUP, group_id)
        begun = broker.groups.ask(GroupCoordinator.delete, DeleteGroup(group_id))
    except KafkaError as error:
        begun = loop.create_future()
        begun.set_exception(error)
        return begun
    return loop.create_task(_finish(broker, group_id, begun))


async def _finish(broker: BrokerContext, group_id: str, begun: asyncio.Future[Any]) -> None:
    """Wait for a deletion. The states of a share group are deleted before the group."""
    change = await begun
    if change is None:
        return
    from raftlog.broker.handlers.shared.share_changes import carry_out  # few clusters have share groups

    for outcome in (await carry_out(broker, change)).values():
        if isinstance(outcome, KafkaError):
            raise outcome
    if await broker.groups.ask(GroupCoordinator.delete, DeleteGroup(group_id)) is not None:
        raise CoordinatorLoadInProgress("the group has got new states: delete it again")


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart((Right(Operation.DELETE, ResourceType.GROUP),)),
    max_parts=NAMES,
    audit=Change(lambda _, response: named(response.results, "group_id")),
    controllers=False,
)
