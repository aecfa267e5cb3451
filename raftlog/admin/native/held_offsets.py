"""The open transactions that hold back last stable offsets: consumers of committed records wait for their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from raftlog.admin.broker_questions import Where, by_leader, list_offsets
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.shared import topic_of
from raftlog.admin.native.measures import LATEST, MAX_PARTITIONS
from raftlog.admin.route import TRANSACTIONAL_ID, Call, Route, of_topic
from raftlog.base.transaction_listing import TransactionalId
from raftlog.base.turns import batches, each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.security.acls import Operation

MOST_HELD: Final = 200
"""Partitions whose transactions are named; all are counted."""


class HeldOffset(msgspec.Struct, order=True):
    """A partition whose last stable offset is below its high watermark, and the first transaction open there.

    `transactional_id` null: no coordinator knows the transaction, or the caller may not describe its id. `start_ms`:
    when the transaction began, or null. `last_ms`: when its producer wrote to the partition last, by its clock.
    """

    partition_id: int
    last_stable_offset: int
    high_watermark: int
    producer_id: int | None = None
    start_offset: int | None = None
    last_ms: int | None = None
    transactional_id: str | None = None
    start_ms: int | None = None


class HeldOffsets(msgspec.Struct):
    """The partitions of a topic that are held back; `data` has the first, with their transactions."""

    topic_name: str
    held_partitions: int
    data: list[HeldOffset]


async def list_held_offsets(call: Call) -> HeldOffsets:
    """Compare the leaders' last stable offsets with their high watermarks, and name what is between."""
    topic = topic_of(call, call.node.image())
    name = topic.name
    held: list[HeldOffset] = []
    for some in batches([(name, index) for index in range(len(topic.partitions))], MAX_PARTITIONS):
        wanted = dict.fromkeys(some, LATEST)
        ends, stable = await asyncio.gather(
            list_offsets(call, wanted), list_offsets(call, wanted, read_committed=True)
        )
        for where in some:
            (no_end, end), (no_stable, offset) = ends[where], stable[where]
            if not no_end and not no_stable and offset < end:
                held.append(HeldOffset(where[1], offset, end))
    shown = held[:MOST_HELD]
    if shown:
        await _add_producers(call, name, shown)
        await _add_ids(call, shown)
    return HeldOffsets(name, len(held), shown)


async def _add_producers(call: Call, topic: str, held: Iterable[HeldOffset]) -> None:
    """Ask the leaders for the producer of the first open transaction."""
    wanted = {(topic, each.partition_id): each for each in held}
    leaders, _ = by_leader(call, wanted)
    make = builders_for(ApiKey.DESCRIBE_PRODUCERS)

    async def ask(leader: int, partitions: list[Where]) -> Any:
        of_topic_ = make.TopicRequest(name=topic, partition_indexes=tuple(index for _, index in partitions))
        request = make.DescribeProducersRequest(topics=(of_topic_,))
        try:
            return await call.asker.ask(ApiKey.DESCRIBE_PRODUCERS, request, broker_id=leader)
        except BrokerUnreachable:
            return None

    for answer in await asyncio.gather(*(ask(*each) for each in leaders.items())):
        for each in () if answer is None else answer.topics[0].partitions:
            open_ = [one for one in each.active_producers if one.current_txn_start_offset >= 0]
            if open_:
                first = min(open_, key=lambda one: one.current_txn_start_offset)
                found = wanted[topic, each.partition_index]
                found.producer_id, found.start_offset = first.producer_id, first.current_txn_start_offset
                found.last_ms = first.last_timestamp


async def _add_ids(call: Call, held: Iterable[HeldOffset]) -> None:
    """Name the transactions that coordinators know, as far as the caller may describe them."""
    if call.node.transactions is None:
        return
    port = call.node.transactions()
    producers = {each.producer_id for each in held if each.producer_id is not None}
    known = await port.all(producer_ids=producers) if producers else []
    seen = await call.among(Operation.DESCRIBE, TRANSACTIONAL_ID, (each.transactional_id for each in known))
    named = [each for each in known if each.transactional_id in seen]
    times = await port.open(named)
    by_producer: dict[int | None, TransactionalId] = {each.producer_id: each for each in named}

    def add(each: HeldOffset) -> None:
        if found := by_producer.get(each.producer_id):
            each.transactional_id = found.transactional_id
            each.start_ms = times.get(found.transactional_id, (None, 0))[0]

    await each_part(call, held, add)


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topics/{topic_name}/held-offsets",
        list_held_offsets,
        "List the transactions that hold back consumers of committed records",
        rights=of_topic(Operation.READ),
    ),
)
