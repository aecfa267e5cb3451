"""AddPartitionsToTxn 0-5: partitions that a transaction will write to (KIP-98, 890).

Clients add theirs up to version 3, one transaction in a request. From version 4 on brokers send several. They verify
that partitions are part of a transaction, or add them for a client that only writes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from raftlog.base.errors import (
    NONE,
    ClusterAuthorizationFailed,
    InvalidTxnState,
    KafkaError,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from raftlog.base.types import INTERNAL_TOPICS, TopicPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.transaction_deadlines import ADDED_S
from raftlog.broker.handlers.shared.fenced_producer import error_for_version
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.rights import TOPIC, TRANSACTIONAL_ID, among, demand
from raftlog.coordinator.transactions.transaction import ClientTransactionVersion, ProducerIdAndEpoch
from raftlog.coordinator.transactions.transaction_requests import AddPartitions, VerifyPartitions
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

API_KEY: Final = ApiKey.ADD_PARTITIONS_TO_TXN

FIRST_FENCED_VERSION: Final = 2
"""Earlier versions return INVALID_PRODUCER_EPOCH to a fenced producer."""

FIRST_BROKERS_VERSION: Final = 4
FIRST_ABORTABLE_VERSION: Final = 5

Codes = dict[TopicPartition, int]


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond per partition once the added partitions are committed."""
    version = request.api_version
    make = response_builders(API_KEY, version)
    if version < FIRST_BROKERS_VERSION:
        producer = ProducerIdAndEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        wanted = AddPartitions(
            message.v3_and_below_transactional_id,
            producer,
            await _topic_partitions(broker, message.v3_and_below_topics),
        )
        demand(broker, request, Operation.WRITE, TRANSACTIONAL_ID, wanted.transactional_id)
        topics = {each.topic for each in wanted.partitions} - INTERNAL_TOPICS  # only brokers write there
        codes = _denied(
            wanted, await among(broker, request, Operation.WRITE, TOPIC, topics, log_if_denied=True)
        )
        if not codes:
            codes = await _add(broker, version, wanted, add=broker.transactions.add_partitions)
        results = _topics(make, message.v3_and_below_topics, codes)
        return make.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if request.peer_broker_id is None:
        raise ClusterAuthorizationFailed("versions 4 and above are only for brokers")
    answers = await asyncio.gather(*(_serve(broker, version, each) for each in message.transactions))
    results = (
        make.AddPartitionsToTxnResult(
            transactional_id=each.transactional_id, topic_results=_topics(make, each.topics, codes)
        )
        for each, codes in zip(message.transactions, answers, strict=True)
    )
    return make.AddPartitionsToTxnResponse(results_by_transaction=results)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the error for the whole request if the version can, otherwise for each partition."""
    make = response_builders(API_KEY, request.api_version)
    if request.api_version >= FIRST_BROKERS_VERSION:
        return make.AddPartitionsToTxnResponse(error_code=error.code, results_by_transaction=())
    topics = _topics(make, message.v3_and_below_topics, defaultdict(lambda: error.code))
    return make.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


async def _topic_partitions(broker: BrokerContext, topics: Iterable[Any]) -> frozenset[TopicPartition]:
    named = ((topic.name, index) for topic in topics for index in topic.partitions)
    return frozenset(await each_part(broker.env, named, lambda each: TopicPartition(*each)))


def _topics(make: Any, topics: Iterable[Any], codes: Codes) -> Iterator[Any]:
    def partitions(topic: Any) -> Iterator[Any]:
        for index in topic.partitions:
            code = codes[TopicPartition(topic.name, index)]
            yield make.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)

    for each in topics:
        yield make.AddPartitionsToTxnTopicResult(name=each.name, results_by_partition=partitions(each))


def _denied(wanted: AddPartitions, allowed: frozenset[str]) -> Codes:
    """Return an error code per partition unless the sender may write to all of them, otherwise no codes."""
    if all(each.topic in allowed for each in wanted.partitions):
        return {}
    return {
        each: OperationNotAttempted.code if each.topic in allowed else TopicAuthorizationFailed.code
        for each in wanted.partitions
    }


async def _serve(broker: BrokerContext, version: int, wanted: Any) -> Codes:
    """Verify or add for one transaction of another broker's clients, without delaying the other transactions."""
    producer = ProducerIdAndEpoch(wanted.producer_id, wanted.producer_epoch)
    topic_partitions = await _topic_partitions(broker, wanted.topics)
    if wanted.verify_only:
        return await _verify(
            broker, version, VerifyPartitions(wanted.transactional_id, producer, topic_partitions)
        )
    request = AddPartitions(
        wanted.transactional_id, producer, topic_partitions, ClientTransactionVersion.TV_2
    )
    add = partial(broker.transactions.add_partitions_for_broker, within_s=ADDED_S)
    return await _add(broker, version, request, add=add)


async def _verify(broker: BrokerContext, version: int, request: VerifyPartitions) -> Codes:
    refusal = TransactionAbortable if version >= FIRST_ABORTABLE_VERSION else InvalidTxnState
    try:
        missing = await broker.transactions.verify(request, within_s=ADDED_S)
    except KafkaError as error:
        return dict.fromkeys(request.partitions, error.code)
    return {each: refusal.code if each in missing else NONE for each in request.partitions}


async def _add(
    broker: BrokerContext,
    version: int,
    request: AddPartitions,
    *,
    add: Callable[[AddPartitions], Awaitable[None]],
) -> Codes:
    """All or none: a partition that does not exist keeps the others out."""
    image = broker.image()
    unknown: set[TopicPartition] = set()

    def look_up(each: TopicPartition) -> None:
        if image.partition(each.topic, each.partition) is None:
            unknown.add(each)

    await each_part(broker.env, request.partitions, look_up)
    if unknown:
        return {
            each: UnknownTopicOrPartition.code if each in unknown else OperationNotAttempted.code
            for each in request.partitions
        }
    try:
        await add(request)
    except KafkaError as error:
        shown = error_for_version(error, version, first_fenced_version=FIRST_FENCED_VERSION)
        return dict.fromkeys(request.partitions, shown.code)
    return dict.fromkeys(request.partitions, NONE)


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=DemandedPerPart(
        (Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID), Right(Operation.WRITE, ResourceType.TOPIC))
    ),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
    prepared=(5,),
)
