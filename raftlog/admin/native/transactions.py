"""Transactional ids of the whole cluster, and transactions that hang: open in a partition, known to no coordinator.

Kafka's tool ends those with a request that clients may not send here (WriteTxnMarkers); an operator may, by this door.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import ApiError, not_found
from raftlog.admin.route import Call, Route
from raftlog.admin.view import TransactionPort
from raftlog.base.errors import TransactionalIdNotFound
from raftlog.base.types import TopicPartition

SLICE: Final = 1_000
"""Transactional ids that are told of before others have the loop."""

LARGEST_OFFSET: Final = 2**63 - 1


class TransactionalId(msgspec.Struct):
    """`state` in Kafka's words: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.

    `start_ms`: when its transaction began, wall clock; it and `timeout_ms` are -1 if none is open.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    start_ms: int
    timeout_ms: int


class TransactionalIds(msgspec.Struct):
    """All of the cluster, by name."""

    data: list[TransactionalId]


class WrittenTo(msgspec.Struct):
    """A partition."""

    topic_name: str
    partition_id: int


class DescribedId(msgspec.Struct):
    """`start_ms`: when its transaction began, wall clock, -1 if none is open. `partitions`: what that wrote to."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[WrittenTo]


class Hanging(msgspec.Struct):
    """An open transaction in a partition since `start_offset`. `last_ms`: when its producer wrote there last, by its
    clock.

    `last_sequence`: of what it wrote last, -1 for offsets of groups.
    """

    topic_name: str
    partition_id: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_ms: int
    last_sequence: int


class HangingTransactions(msgspec.Struct):
    data: list[Hanging]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """Which: in a topic ("" is all), unused for so long; by default for transaction.max.timeout.ms of this node."""

    topic: Annotated[str, msgspec.Meta(max_length=249)] = ""
    unused_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class StartOffset(msgspec.Struct, forbid_unknown_fields=True):
    """The offset where the transaction begins in the partition, as it is listed."""

    start_offset: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]


def _port(call: Call) -> TransactionPort:
    if call.node.transactions is None:
        raise ApiError(503, "this node is no broker: ask one that is")
    return call.node.transactions


async def list_transactions(call: Call) -> TransactionalIds:
    """Each coordinator is asked; if one does not answer, so does this."""
    listed = await _port(call).all()
    times = await _port(call).open(listed)
    data: list[TransactionalId] = []
    for each in listed:
        data.append(
            TransactionalId(
                each.transactional_id,
                each.coordinator,
                each.producer_id,
                each.state,
                *times.get(each.transactional_id, (-1, -1)),
            )
        )
        if len(data) % SLICE == 0:
            await asyncio.sleep(0)
    return TransactionalIds(data)


async def describe_transaction(call: Call) -> DescribedId:
    """As its coordinator knows it."""
    name = call.path["transactional_id"]
    try:
        found = await _port(call).one(name)
    except TransactionalIdNotFound:
        raise not_found(f"transactional id {name[:100]}") from None
    partitions = [WrittenTo(*each) for each in sorted(found.partitions)]
    return DescribedId(*found._replace(partitions=partitions))


async def find_hanging_transactions(call: Call) -> HangingTransactions:
    """All brokers are asked. Each holds up the consumers that read committed records of its partition."""
    unused_ms = call.query.unused_ms
    found = await _port(call).hanging(
        call.query.topic or None,
        unused_ms=call.node.config.transaction_max_timeout_ms if unused_ms is None else unused_ms,
    )
    return HangingTransactions([Hanging(*each) for each in found])


async def abort_hanging_transaction(call: Call) -> Hanging:
    """409 if its coordinator knows of it: then that one ends it; also if it ended meanwhile."""
    tp = TopicPartition(call.path["topic_name"], call.path["partition_id"])
    start_offset = call.body.start_offset
    call.audit.update(topic=tp.topic, partition=tp.partition, start_offset=start_offset)
    return Hanging(*await _port(call).end_hanging(tp, start_offset))


ROUTES: Final = (
    Route("GET", "/v1/transactions", list_transactions, "List transactional ids", TransactionalIds),
    Route(
        "GET",
        "/v1/transactions/{transactional_id}",
        describe_transaction,
        "Describe a transactional id and its transaction",
        DescribedId,
    ),
    Route(
        "GET",
        "/v1/hanging-transactions",
        find_hanging_transactions,
        "Find transactions that nobody will end",
        HangingTransactions,
        query=Wanted,
    ),
    Route(
        "POST",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/abort",
        abort_hanging_transaction,
        "Abort a transaction that nobody will end",
        Hanging,
        body=StartOffset,
    ),
)
