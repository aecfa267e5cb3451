"""WriteShareGroupState 0-1: the leader of a partition writes what a share group has done with it (KIP-932).

Only other brokers send it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_states import answer_partitions, share_state_api
from raftlog.coordinator.share_state.share_state import NO_COUNT, SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import WriteState
from raftlog.protocol.apis import ApiKey
from raftlog.sharing.delivery import DeliveryState, StateBatch

API_KEY: Final = ApiKey.WRITE_SHARE_GROUP_STATE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all changes are committed."""

    def begin(key: SharePartitionKey, each: Any) -> asyncio.Future[None]:
        write = WriteState(
            key,
            each.state_epoch,
            each.leader_epoch,
            each.start_offset,
            tuple(map(_state_batch, each.state_batches)),
            getattr(each, "delivery_complete_count", NO_COUNT),
        )
        return broker.share_states.write(write)

    return await answer_partitions(broker, request, message, begin)


def _state_batch(each: Any) -> StateBatch:
    if each.delivery_state not in set(DeliveryState):
        raise InvalidRequest(f"delivery state {each.delivery_state} is unknown")
    return StateBatch(
        each.first_offset, each.last_offset, DeliveryState(each.delivery_state), each.delivery_count
    )


API: Final = share_state_api(API_KEY, handle)
