"""ListTransactions 0-2: the transactional ids that this broker coordinates, filtered (KIP-664, 994, 1152)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raftlog.base.env import Env
from raftlog.base.errors import InvalidRegularExpression
from raftlog.base.regex import STEPS_AT_ONCE, check_regex, compiled, steps
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.rights import TRANSACTIONAL_ID, may
from raftlog.coordinator.transactions.transaction import IDLE, Transaction, TransactionState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import Filtered, Operation, ResourceType, Right

API_KEY: Final = ApiKey.LIST_TRANSACTIONS

ANY_DURATION: Final = -1

_STATES: Final = frozenset(each.value for each in TransactionState)


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Return the transactions that pass all filters, and the unknown states of the request.

    Brokers send this to find transactions unknown to every coordinator, and abort them. So they get an error rather
    than a partial list.
    """
    make = response_builders(API_KEY, request.api_version)
    states = frozenset(message.state_filters)
    pattern = getattr(message, "transactional_id_pattern", None) or ""
    check_regex(pattern)
    passes = _filter(message, states, now_ms=broker.env.wall_clock_ms())
    known = await broker.transactions.read_all(wholly=request.peer_broker_id is not None)
    found: list[Transaction] = []

    def visit(each: Transaction) -> None:
        if passes(each) and may(broker, request, Operation.DESCRIBE, TRANSACTIONAL_ID, each.transactional_id):
            found.append(each)

    await each_part(broker.env, known, visit)
    if pattern:
        found = await _matching(broker.env, pattern, found)
    return make.ListTransactionsResponse(
        unknown_state_filters=tuple(sorted(states - _STATES)),
        transaction_states=(
            make.TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer.producer_id,
                transaction_state=each.state.value,
            )
            for each in found
        ),
    )


def _filter(message: Any, states: frozenset[str], *, now_ms: int) -> Callable[[Transaction], bool]:
    """Return what every listed id must pass, beside the pattern."""
    producer_ids = frozenset(message.producer_id_filters)
    longer_than_ms = getattr(message, "duration_filter", ANY_DURATION)

    def passes(each: Transaction) -> bool:
        return (
            (not states or each.state.value in states)
            and (not producer_ids or each.producer.producer_id in producer_ids)
            and (longer_than_ms < 0 or (each.state not in IDLE and now_ms - each.start_ms > longer_than_ms))
        )

    return passes


async def _matching(env: Env, pattern: str, found: list[Transaction]) -> list[Transaction]:
    """Return the transactions whose whole id matches.

    Raises InvalidRegularExpression where a single id would take too long.
    """
    matches = compiled(pattern).fullmatch

    def match(each: Transaction) -> bool:
        if steps(pattern, each.transactional_id) > STEPS_AT_ONCE:
            raise InvalidRegularExpression(
                f"matching takes too long on a transactional id of {len(each.transactional_id)} characters"
            )
        return matches(each.transactional_id) is not None

    are_matching = await each_part(
        env,
        found,
        match,
        size_of=lambda each: steps(pattern, each.transactional_id),
        at_once=STEPS_AT_ONCE,
    )
    return [each for each, is_matching in zip(found, are_matching, strict=True) if is_matching]


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=Filtered((Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),)),
    max_parts=AT_ONCE,
    audit=NoChange(),
    controllers=False,
)
