"""ReadShareGroupState 0: the leader of a partition reads its state in a share group (KIP-932).

Only other brokers send it. The leader's epoch is recorded, so its predecessors can write no more.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_states import answer_partitions, share_state_api
from raftlog.coordinator.share_state.share_state import SharePartitionKey, ShareState
from raftlog.coordinator.share_state.share_state_requests import ReadState
from raftlog.protocol.apis import ApiKey

API_KEY: Final = ApiKey.READ_SHARE_GROUP_STATE


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once the leader epochs are committed."""
    states: list[ShareState] = []

    def begin(key: SharePartitionKey, each: Any) -> asyncio.Future[ShareState]:
        return broker.share_states.read(ReadState(key, each.leader_epoch))

    response = await answer_partitions(broker, request, message, begin, _fields, note=states.append)
    letters = states[0].letters if len(states) == 1 else None
    return response if letters is None else dataclasses.replace(response, letters=letters.encode())


def _fields(make: Any, state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": (
            make.StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=int(each.state),
                delivery_count=each.delivery_count,
            )
            for each in state.batches
        ),
    }


API: Final = share_state_api(API_KEY, handle)
