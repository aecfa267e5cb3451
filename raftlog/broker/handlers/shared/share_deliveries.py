"""A share group's deliveries as this broker knows them: as a leader by its memory, and as a share coordinator."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from raftlog.base.share_deliveries import (
    ANY_OFFSET,
    DeliveriesAnswer,
    DeliveriesQuestion,
    DeliveryEvent,
    LedPartition,
    RecordNow,
)
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.broker.coordination.share_group_configs import share_config
from raftlog.broker.long_work.turns import each_part, run_steps
from raftlog.coordinator.share_state.share_state import SharePartitionKey, ShareState
from raftlog.sharing.delivery import DeliveryState
from raftlog.sharing.in_flight import InFlightRange
from raftlog.sharing.share_partition import SharePartition

DONE, NOT_FETCHED = RecordNow("done"), RecordNow("not_fetched")

HISTORY_AT_ONCE: Final = 2_000
"""Past deliveries, and keys, that are compared between two turns of the loop; some 0.2 µs each."""


async def describe_deliveries(broker: BrokerContext, question: DeliveriesQuestion) -> DeliveriesAnswer:
    """Return the group's partitions led here, or what is known here of one record."""
    led = broker.share_partitions
    config = share_config(broker, question.group_id)
    answer = DeliveriesAnswer(
        led.record.began_ms,
        led.record.history.evicted_ms,
        config.share_delivery_count_limit,
        config.share_record_lock_duration_ms,
        dead_letter_topic=config.errors_deadletterqueue_topic_name,
    )
    if question.topic_id is None or question.offset == ANY_OFFSET:
        keys = await _keys(broker, led, question.group_id)
        found = await each_part(broker.env, keys, partial(_partition, led), size_of=led.parts_of)
        answer.partitions = [each for each in found if each is not None]
        return answer
    key = SharePartitionKey(question.group_id, question.topic_id, question.partition)
    machine = led.machine_of(key)
    if machine is not None:
        answer.record = _record(machine, question.offset, broker.env.wall_clock_ms())
    answer.events = [
        DeliveryEvent(
            each.delivery.member_id,
            each.delivery.delivery_count,
            each.acquired_ms,
            each.ended_ms,
            each.delivery.end.value,
            each.delivery.state.name.lower(),
        )
        for each in await run_steps(
            broker.env, led.record.history.look(key, question.offset), at_once=HISTORY_AT_ONCE
        )
    ]
    clients = led.record.clients
    answer.clients = {
        each.member_id: clients[each.member_id] for each in answer.events if each.member_id in clients
    }
    state = None if broker.made_share_states is None else broker.made_share_states.last_state(key)
    if state is not None:
        answer.stored = _stored(state, question.offset)
    return answer


async def _keys(broker: BrokerContext, led: LedSharePartitions, group_id: str) -> list[SharePartitionKey]:
    found = await each_part(
        broker.env,
        led.all(),
        lambda each: each[0] if each[0].group_id == group_id else None,
        at_once=HISTORY_AT_ONCE,
    )
    return [key for key in found if key is not None]


def _partition(led: LedSharePartitions, key: SharePartitionKey) -> LedPartition | None:
    found = led.describe(key)
    if found is None:
        return None
    in_flight = found.in_flight
    return LedPartition(
        key.topic_id,
        key.partition,
        found.leader_epoch,
        in_flight.start_offset,
        in_flight.end_offset,
        in_flight.held,
        in_flight.done,
        found.lag,
        round(found.oldest_lock_s * 1000),
        dict(in_flight.deliveries),
        found.is_full,
        in_flight.archiving,
        found.letters_failed,
    )


def _record(machine: SharePartition, offset: int, now_ms: int) -> RecordNow:
    if offset < machine.start_offset:
        return DONE
    for each in machine.ranges:
        if each.first_offset <= offset < each.end_offset:
            return _in_flight(each, now_ms)
    return NOT_FETCHED


def _in_flight(each: InFlightRange, now_ms: int) -> RecordNow:
    state = each.state.name.lower()
    if each.state is not DeliveryState.ACQUIRED:
        return RecordNow(state, each.delivery_count)
    now = asyncio.get_running_loop().time()
    acquired_ms, expires_ms = (
        now_ms + round((at - now) * 1000) for at in (each.acquired_at, each.lock_expires_at)
    )
    is_pending = each.pending is not None
    return RecordNow(state, each.delivery_count, each.member_id or "", acquired_ms, expires_ms, is_pending)


def _stored(state: ShareState, offset: int) -> RecordNow | None:
    if state.start_offset < 0:
        return None
    if offset < state.start_offset:
        return DONE
    for each in state.batches:
        if each.first_offset <= offset <= each.last_offset:
            return RecordNow(each.state.name.lower(), each.delivery_count)
    return RecordNow(DeliveryState.AVAILABLE.name.lower())
