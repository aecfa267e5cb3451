"""Transactional ids of the whole cluster, and transactions that hang: open in a partition, known to no coordinator.

Kafka's tool ends those with a request that clients may not send here (WriteTxnMarkers); operators may, by this API.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from raftlog.admin.errors import ApiError, not_found
from raftlog.admin.route import FILTERED, TOPIC, TRANSACTIONAL_ID, Call, Route
from raftlog.admin.view import TransactionPort
from raftlog.base.errors import TransactionalIdNotFound
from raftlog.base.transaction_listing import DescribedId, Hanging, TransactionalId
from raftlog.base.turns import each_part
from raftlog.base.types import TopicPartition
from raftlog.security.acls import ALTER_CLUSTER, Demanded, Operation, Right

LARGEST_OFFSET: Final = 2**63 - 1


class TransactionalIds(msgspec.Struct):
    """All of the cluster, by name."""

    data: list[TransactionalId]


class HangingTransactions(msgspec.Struct):
    data: list[Hanging]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """A filter: a topic ("" is all), and the time without use; by default transaction.max.timeout.ms of this node."""

    topic: Annotated[str, msgspec.Meta(max_length=249)] = ""
    unused_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class StartOffset(msgspec.Struct, forbid_unknown_fields=True):
    """The offset where the transaction begins in the partition, as it is listed."""

    start_offset: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]


def _port(call: Call) -> TransactionPort:
    if call.node.transactions is None:
        raise ApiError(503, "this node is not a broker: ask a broker")
    return call.node.transactions()


async def list_transactions(call: Call) -> TransactionalIds:
    """Ask each coordinator for its transactions; if any does not answer, the request fails."""
    found = await _port(call).all()
    seen = await call.among(Operation.DESCRIBE, TRANSACTIONAL_ID, (each.transactional_id for each in found))
    listed = [each for each in found if each.transactional_id in seen]
    times = await _port(call).open(listed)

    def add_times(each: TransactionalId) -> None:
        if each.transactional_id in times:
            each.start_ms, each.timeout_ms = times[each.transactional_id]

    await each_part(call, listed, add_times)
    return TransactionalIds(listed)


async def describe_transaction(call: Call) -> DescribedId:
    """Return a transaction as its coordinator knows it."""
    name = call.path["transactional_id"]
    try:
        found = await _port(call).one(name)
    except TransactionalIdNotFound:
        raise not_found(f"transactional id {name[:100]}") from None
    seen = await call.among(Operation.DESCRIBE, TOPIC, (each.topic_name for each in found.partitions))
    found.partitions = [each for each in found.partitions if each.topic_name in seen]
    return found


async def find_hanging_transactions(call: Call) -> HangingTransactions:
    """Ask all brokers for hanging transactions, which block consumers that read committed records of their
    partitions.
    """
    unused_ms = call.query.unused_ms
    found = await _port(call).hanging(
        call.query.topic or None,
        unused_ms=call.node.config.transaction_max_timeout_ms if unused_ms is None else unused_ms,
    )
    seen = await call.among(Operation.READ, TOPIC, (each.topic for each in found))
    return HangingTransactions([each for each in found if each.topic in seen])


async def abort_hanging_transaction(call: Call) -> Hanging:
    """Abort a hanging transaction; 409 if its coordinator knows it and will end it, or if it ended meanwhile."""
    tp = TopicPartition(call.path["topic_name"], call.path["partition_id"])
    start_offset = call.body.start_offset
    call.audit.update(topic=tp.topic, partition=tp.partition, start_offset=start_offset)
    return await _port(call).end_hanging(tp, start_offset)


ROUTES: Final = (
    Route("GET", "/v1/transactions", list_transactions, "List transactional ids", rights=FILTERED),
    Route(
        "GET",
        "/v1/transactions/{transactional_id}",
        describe_transaction,
        "Describe a transactional id and its transaction",
        rights=Demanded((Right(Operation.DESCRIBE, TRANSACTIONAL_ID, "transactional_id"),)),
    ),
    Route(
        "GET",
        "/v1/hanging-transactions",
        find_hanging_transactions,
        "Find hanging transactions",
        query=Wanted,
        rights=FILTERED,
    ),
    Route(
        "POST",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/abort",
        abort_hanging_transaction,
        "Abort a hanging transaction",
        body=StartOffset,
        rights=ALTER_CLUSTER,
    ),
)
