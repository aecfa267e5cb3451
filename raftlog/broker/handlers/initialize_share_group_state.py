"""InitializeShareGroupState 0: a group's coordinator has states of share partitions begun here (KIP-932).

Only other brokers send it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_states import answer_partitions, share_state_api
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import InitializeState
from raftlog.protocol.apis import ApiKey

API_KEY: Final = ApiKey.INITIALIZE_SHARE_GROUP_STATE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all states are committed."""

    def begin(key: SharePartitionKey, each: Any) -> asyncio.Future[None]:
        return broker.share_states.initialize(InitializeState(key, each.state_epoch, each.start_offset))

    return await answer_partitions(broker, request, message, begin)


API: Final = share_state_api(API_KEY, handle)
