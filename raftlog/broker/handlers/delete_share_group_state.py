"""DeleteShareGroupState 0: a group's coordinator has states of share partitions deleted here (KIP-932)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_states import answer_partitions, share_state_api
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import DeleteState
from raftlog.protocol.apis import ApiKey

API_KEY: Final = ApiKey.DELETE_SHARE_GROUP_STATE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all states are gone."""

    def begin(key: SharePartitionKey, _: Any) -> asyncio.Future[None]:
        return broker.share_states.delete(DeleteState(key, message.state_epoch))

    return await answer_partitions(broker, request, message, begin)


API: Final = share_state_api(API_KEY, handle)
