"""DescribeTransactions 0: the state of transactional ids (KIP-664)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from raftlog.base.errors import CoordinatorLoadInProgress, KafkaError, TransactionalIdNotFound
from raftlog.broker.api import NAMES, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.rights import TOPIC, TRANSACTIONAL_ID, among, demand
from raftlog.coordinator.transactions.transaction import Transaction
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS

MAX_PARTITIONS: Final = 20_000
"""The limit of ids and their partitions in a response. The id that reaches it is still included."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per transactional id. Once the response is full, the remaining ids get a retriable error."""
    make = response_builders(API_KEY, request.api_version)
    answered = 0

    async def described(transactional_id: str) -> Any:
        nonlocal answered
        found = await _describe(broker, request, make, transactional_id, is_full=answered >= MAX_PARTITIONS)
        answered += 1 + sum(len(topic.partitions) for topic in found.topics)
        return found

    ids = dict.fromkeys(message.transactional_ids)  # once, however often it is named
    return make.DescribeTransactionsResponse(transaction_states=(described(each) for each in ids))


async def _describe(
    broker: BrokerContext, request: RequestContext, make: Any, transactional_id: str, *, is_full: bool
) -> Any:
    """Only its coordinator can. `is_full`: there is no room for more in the response."""
    try:
        if is_full:
            raise CoordinatorLoadInProgress
        demand(broker, request, Operation.DESCRIBE, TRANSACTIONAL_ID, transactional_id)
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
    topics: defaultdict[str, list[int]] = defaultdict(list)
    await each_part(broker.env, found.partitions, lambda tp: topics[tp.topic].append(tp.partition))
    visible = sorted(await among(broker, request, Operation.DESCRIBE, TOPIC, topics))
    visible_topics = await each_part(
        broker.env,
        visible,
        lambda name: make.TopicData(topic=name, partitions=tuple(sorted(topics[name]))),
    )
    return make.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=tuple(visible_topics),
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=DemandedPerPart(
        (
            Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
            Right(Operation.DESCRIBE, ResourceType.TOPIC),
        )
    ),
    max_parts=NAMES,
    audit=NoChange(),
    controllers=False,
)
