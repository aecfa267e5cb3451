"""WriteTxnMarkers 1-2: a transaction's coordinator has its end written by the leaders of its partitions (KIP-98, 890).

From other brokers only. Each partition is answered once its marker is committed; one that was written already is not
written again. In `__consumer_offsets` the group coordinator writes it, and its offsets count from then on, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.errors import (
    NONE,
    ClusterAuthorizationFailed,
    KafkaError,
    RequestTimedOut,
)
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.transaction_deadlines import MARKERS_COMMITTED_S
from raftlog.broker.partition_lookup import locate
from raftlog.broker.turns import TurnCounter, in_turns
from raftlog.coordinator.group_requests import WriteTxnMarker
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker
from raftlog.security.acls import BrokersOnly

API_KEY: Final = ApiKey.WRITE_TXN_MARKERS

Codes = dict[tuple[int, TopicPartition], int]
"""By marker (its place in the request) and partition."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Write all markers, then answer when all are committed or the time is up."""
    if request.peer_broker_id is None:
        return await _response(broker, request, message, {}, otherwise=ClusterAuthorizationFailed)
    codes: Codes = {}
    waiting: dict[asyncio.Future[int], tuple[int, TopicPartition]] = {}
    async for number, asked, tp in in_turns(broker.env, _topic_partitions(message)):
        if not request.is_awaited:
            # It is asked again elsewhere, is done by now, and the next transaction may have begun.
            return await _response(broker, request, message, codes, otherwise=RequestTimedOut)
        try:
            waiting[_write(broker, _marker(message, asked), tp)] = (number, tp)
        except KafkaError as error:
            codes[number, tp] = error.code
    if waiting:
        await asyncio.wait(waiting, timeout=MARKERS_COMMITTED_S)
    async for future, key in in_turns(broker.env, waiting.items()):
        codes[key] = future.result() if future.done() else RequestTimedOut.code
    return await _response(broker, request, message, codes, otherwise=RequestTimedOut)


def _topic_partitions(message: Any) -> Iterator[tuple[int, Any, TopicPartition]]:
    for number, marker in enumerate(message.markers):
        for topic in marker.topics:
            for index in topic.partition_indexes:
                yield number, marker, TopicPartition(topic.name, index)


def _marker(message: Any, asked: Any) -> TxnMarker:
    return TxnMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        getattr(asked, "transaction_version", 0),
        message.open_since,
        message.last_sequence,
        message.last_timestamp,
    )


def _write(broker: BrokerContext, marker: TxnMarker, tp: TopicPartition) -> asyncio.Future[int]:
    """Append one marker; the future gives the error code at commit."""
    waiter = PendingMarker()
    partition = locate(broker, *tp)
    if tp.topic == CONSUMER_OFFSETS_TOPIC:
        broker.groups.end_transaction(tp.partition, WriteTxnMarker(*marker)).add_done_callback(
            waiter.answered
        )
    else:
        end_offset = partition.append_marker(marker, now_ms=broker.env.ages.latest_ms())
        partition.await_commit(end_offset, waiter)
    return waiter.code


class PendingMarker:
    """Waits for one marker's commit (`CommitWaiter`)."""

    def __init__(self) -> None:
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def committed(self, partition: Partition) -> None:
        self._settle(NONE)

    def failed(self, partition: Partition, error: KafkaError) -> None:
        self._settle(error.code)

    def answered(self, future: asyncio.Future[None]) -> None:
        """The group coordinator has, or has not, ended the transaction."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError):
            self._settle(error.code)
        else:
            self._settle(RequestTimedOut.code if error or future.cancelled() else NONE)

    def _settle(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)


async def _response(
    broker: BrokerContext, request: RequestContext, message: Any, codes: Codes, *, otherwise: type[KafkaError]
) -> Any:
    """Answer each partition with its code, those without one with the same failure."""
    make = response_builders(API_KEY, request.api_version)
    topics: list[list[Any]] = [[] for _ in message.markers]
    pace = TurnCounter(broker.env)
    for number, marker in enumerate(message.markers):
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                code = codes.get((number, TopicPartition(topic.name, index)), otherwise.code)
                told = make.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                partitions.append(told)
                await pace.did()
            topics[number].append(
                make.WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(partitions))
            )
            await pace.did()
    return make.WriteTxnMarkersResponse(
        markers=tuple(
            [
                make.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(found))
                async for marker, found in in_turns(broker.env, zip(message.markers, topics, strict=True))
            ]
        )
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    needs=BrokersOnly(),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
