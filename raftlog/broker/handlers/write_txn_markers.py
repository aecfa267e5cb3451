"""WriteTxnMarkers 1-2: a transaction's coordinator has the partition leaders write its markers (KIP-98, 890).

Only other brokers send it. A partition succeeds once its marker is committed. A marker that exists already is not
written again. In `__consumer_offsets` the group coordinator writes it, which commits or aborts the offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from raftlog.base.errors import (
    NONE,
    KafkaError,
    RequestTimedOut,
)
from raftlog.base.types import CONSUMER_OFFSETS_TOPIC, TopicPartition
from raftlog.broker.api import IN_TURNS, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.coordination.transaction_deadlines import MARKERS_COMMITTED_S
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.partition_lookup import locate
from raftlog.coordinator.group_requests import WriteTxnMarker
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker
from raftlog.security.acls import BrokersOnly

API_KEY: Final = ApiKey.WRITE_TXN_MARKERS

Codes = dict[tuple[int, TopicPartition], int]
"""Keyed by marker (its index in the request) and partition."""


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Write all markers, then respond when all are committed or at the timeout."""
    codes: Codes = {}
    waiting: dict[asyncio.Future[int], tuple[int, TopicPartition]] = {}

    def write(number: int, asked: Any, tp: TopicPartition) -> None:
        if not request.is_awaited:
            return  # the coordinator retried elsewhere, so it is done by now, and the next transaction may have begun
        try:
            waiting[_write(broker, _marker(message, asked), tp)] = (number, tp)
        except KafkaError as error:
            codes[number, tp] = error.code

    def note(future: asyncio.Future[int], key: tuple[int, TopicPartition]) -> None:
        codes[key] = future.result() if future.done() else RequestTimedOut.code

    await each_part(broker.env, _topic_partitions(message), lambda each: write(*each))
    if waiting and request.is_awaited:
        await asyncio.wait(waiting, timeout=MARKERS_COMMITTED_S)
        await each_part(broker.env, waiting.items(), lambda each: note(*each))
    return _response(request, message, codes, otherwise=RequestTimedOut.code)


def error_response(request: RequestContext, message: Any, error: KafkaError) -> Any:
    """Return the same error for each partition."""
    return _response(request, message, {}, otherwise=error.code)


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
    """Append one marker; the future has the error code at commit."""
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
        """Note that the group coordinator has, or has not, ended the transaction."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError):
            self._settle(error.code)
        else:
            self._settle(RequestTimedOut.code if error or future.cancelled() else NONE)

    def _settle(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)


def _response(request: RequestContext, message: Any, codes: Codes, *, otherwise: int) -> Any:
    """Return each partition's code, or `otherwise` where there is none."""
    make = response_builders(API_KEY, request.api_version)

    def partitions(number: int, topic: Any) -> Iterator[Any]:
        for index in topic.partition_indexes:
            code = codes.get((number, TopicPartition(topic.name, index)), otherwise)
            yield make.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

    def topics(number: int, marker: Any) -> Iterator[Any]:
        for each in marker.topics:
            yield make.WritableTxnMarkerTopicResult(name=each.name, partitions=partitions(number, each))

    return make.WriteTxnMarkersResponse(
        markers=(
            make.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics(number, marker))
            for number, marker in enumerate(message.markers)
        )
    )


API: Final = Api(
    key=API_KEY,
    handle=handle,
    error_response=error_response,
    needs=BrokersOnly(),
    max_parts=IN_TURNS,
    audit=NoChange(),
    controllers=False,
)
