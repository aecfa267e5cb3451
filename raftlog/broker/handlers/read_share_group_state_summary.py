"""ReadShareGroupStateSummary 0-1: a group's coordinator reads where its share partitions are (KIP-932).

Unlike a leader's read it fences no other leader.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_states import answer_partitions, share_state_api
from raftlog.coordinator.share_state.share_state import SharePartitionKey, ShareState
from raftlog.protocol.apis import ApiKey

API_KEY: Final = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY

FIRST_LEADER_EPOCH: Final = 0
"""The leader epoch of a state that no leader has read yet, as in Apache Kafka."""

NO_STATE: Final = ShareState(state_epoch=0)
"""The response for a partition without a state, as in Apache Kafka."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond with the committed states."""

    def begin(key: SharePartitionKey, _: Any) -> asyncio.Future[ShareState]:
        return broker.share_states.summary(key)

    return await answer_partitions(broker, request, message, begin, _fields)


def _fields(_: Any, state: ShareState) -> dict[str, Any]:
    it = state if state.exists else NO_STATE
    return {
        "state_epoch": it.state_epoch,
        "leader_epoch": max(it.leader_epoch, FIRST_LEADER_EPOCH),
        "start_offset": it.start_offset,
        "delivery_complete_count": it.delivery_complete_count,
    }


API: Final = share_state_api(API_KEY, handle)
