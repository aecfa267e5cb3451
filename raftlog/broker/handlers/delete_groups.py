"""DeleteGroups 0-2: end groups that have no members, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE, KafkaError
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.DELETE_GROUPS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per group, once its end is committed."""
    make = response_shapes(API_KEY, request.api_version)
    results = [
        make.DeletableGroupResult(group_id=each, error_code=await _delete(broker, each))
        async for each in in_turns(dict.fromkeys(message.groups_names))
    ]
    return make.DeleteGroupsResponse(results=tuple(results))


async def _delete(broker: BrokerContext, group_id: str) -> int:
    try:
        await broker.groups.delete(group_id)
    except KafkaError as error:
        return error.code
    return NONE


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Answer each group with the same failure."""
    make = response_shapes(API_KEY, request.api_version)
    return make.DeleteGroupsResponse(
        results=tuple(
            make.DeletableGroupResult(group_id=each, error_code=error.code) for each in message.groups_names
        )
    )
