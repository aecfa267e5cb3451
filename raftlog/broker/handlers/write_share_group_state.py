"""WriteShareGroupState 0-1: the leader of a partition writes what a share group has done with it (KIP-932).

Only other brokers send it.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any, Final

from raftlog.base.errors import InvalidRequest
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.share_states import answer_partitions, share_state_api
from raftlog.broker.long_work.turns import each_part
from raftlog.coordinator.share_state.share_state import NO_COUNT, SharePartitionKey
from raftlog.coordinator.share_state.share_state_requests import WriteState
from raftlog.protocol.apis import ApiKey
from raftlog.sharing.dead_letter import decode_dead_letters
from raftlog.sharing.delivery import DeliveryState, StateBatch

API_KEY: Final = ApiKey.WRITE_SHARE_GROUP_STATE

_STATES: Final = {int(each): each for each in DeliveryState}


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond once all changes are committed."""
    batches = iter(
        await each_part(
            broker.env,
            (it for topic in message.topics for each in topic.partitions for it in each.state_batches),
            _state_batch,
        )
    )

    def begin(key: SharePartitionKey, each: Any) -> asyncio.Future[None]:
        own = tuple(it for it in islice(batches, len(each.state_batches)) if it is not None)
        if len(own) != len(each.state_batches):
            raise InvalidRequest("a delivery state is unknown")
        write = WriteState(
            key,
            each.state_epoch,
            each.leader_epoch,
            each.start_offset,
            own,
            getattr(each, "delivery_complete_count", NO_COUNT),
            decode_dead_letters(message.letters),
        )
        return broker.share_states.write(write)

    return await answer_partitions(broker, request, message, begin)


def _state_batch(each: Any) -> StateBatch | None:
    """Return a batch; None if its state is unknown."""
    state = _STATES.get(each.delivery_state)
    return (
        None if state is None else StateBatch(each.first_offset, each.last_offset, state, each.delivery_count)
    )


API: Final = share_state_api(API_KEY, handle)
