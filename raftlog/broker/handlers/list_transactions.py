"""ListTransactions 0-2: the transactional ids that this broker coordinates, filtered (KIP-664, 994, 1152)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.coordinator.transactions.pattern import matcher
from raftlog.coordinator.transactions.transaction import IDLE, State, Transaction
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.LIST_TRANSACTIONS

ANY_DURATION: Final = -1

_STATES: Final = frozenset(each.value for each in State)


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer with those that pass all filters; states that nobody knows are named."""
    make = response_shapes(API_KEY, request.api_version)
    states = frozenset(message.state_filters)
    passes = _filter(message, states, now_ms=broker.env.wall_clock_ms())
    found = await broker.transactions.read_all()
    return make.ListTransactionsResponse(
        unknown_state_filters=tuple(sorted(states - _STATES)),
        transaction_states=tuple(
            [
                make.TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer.producer_id,
                    transaction_state=each.state.value,
                )
                async for each in in_turns(found)
                if passes(each)
            ]
        ),
    )


def _filter(message: Any, states: frozenset[str], *, now_ms: int) -> Callable[[Transaction], bool]:
    """Return what every listed id must pass. Raises InvalidRegularExpression."""
    producer_ids = frozenset(message.producer_id_filters)
    longer_than_ms = getattr(message, "duration_filter", ANY_DURATION)
    matches = matcher(getattr(message, "transactional_id_pattern", None))

    def passes(each: Transaction) -> bool:
        return (
            (not states or each.state.value in states)
            and (not producer_ids or each.producer.producer_id in producer_ids)
            and (longer_than_ms < 0 or (each.state not in IDLE and now_ms - each.start_ms > longer_than_ms))
            and matches(each.transactional_id)
        )

    return passes
