"""DescribeTransactions 0: where transactional ids stand (KIP-664)."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from raftlog.base.errors import KafkaError, TransactionalIdNotFound
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.turns import in_turns
from raftlog.coordinator.transactions.transaction import Transaction
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.shapes import response_shapes

API_KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Answer per transactional id; only its coordinator can."""
    make = response_shapes(API_KEY, request.api_version)
    return make.DescribeTransactionsResponse(
        transaction_states=tuple(
            [await _describe(broker, make, each) async for each in in_turns(message.transactional_ids)]
        )
    )


async def _describe(broker: BrokerContext, make: Any, transactional_id: str) -> Any:
    try:
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
    topics = groupby(sorted(found.partitions), key=lambda each: each.topic)
    return make.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=tuple(
            make.TopicData(topic=name, partitions=tuple(each.partition for each in places))
            for name, places in topics
        ),
    )
