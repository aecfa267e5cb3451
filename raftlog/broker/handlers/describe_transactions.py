"""DescribeTransactions 0: where transactional ids stand (KIP-664)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.base.errors import CoordinatorLoadInProgress, KafkaError, TransactionalIdNotFound
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import Pace, in_turns
from raftlog.coordinator.transactions.transaction import Transaction
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS


MOST_TOLD: Final = 20_000
"""Ids and their partitions in one answer, and those of the id that reaches it."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per transactional id; once there is enough to tell, the others are told to ask again."""
    make = response_shapes(API_KEY, request.api_version)
    described: list[Any] = []
    told, pace = 0, Pace()
    for each in dict.fromkeys(message.transactional_ids):  # once, however often it is named
        found = await _describe(broker, make, each, is_full=told >= MOST_TOLD)
        described.append(found)
        parts = 1 + sum(len(topic.partitions) for topic in found.topics)
        told += parts
        if pace.is_due(parts):
            await asyncio.sleep(0)
    return make.DescribeTransactionsResponse(transaction_states=tuple(described))


async def _describe(broker: BrokerContext, make: Any, transactional_id: str, *, is_full: bool) -> Any:
    """Only its coordinator can."""
    try:
        if is_full:
            raise CoordinatorLoadInProgress
        found: Transaction = await broker.transactions.read(transactional_id)
        if not found.exists:
            raise TransactionalIdNotFound
    except KafkaError as error:
        return make.TransactionState(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            topics=(),
        )
    topics: dict[str, list[int]] = {}
    async for topic, index in in_turns(found.partitions):
        topics.setdefault(topic, []).append(index)
    return make.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=tuple(
            [
                make.TopicData(topic=name, partitions=tuple(sorted(topics[name])))
                async for name in in_turns(sorted(topics))
            ]
        ),
    )
