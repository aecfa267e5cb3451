"""Leaderships that an operator moves: a partition's to a named replica, or all of a broker's (drain).

A drain is a record: it must outlive the controller that decided it, and the broker's own restart, which is what most
drains are for. It is a preference: a draining broker keeps leading partitions that no other broker can lead, until
another can (`leader_and_isr`).
"""

from __future__ import annotations

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    KafkaError,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Decision
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.decisions import MAX_NAMED, UPDATE_ALL_PARTITIONS, BatchLimit, LogEvent
from raftlog.controller.leader_and_isr import UncleanRule, update_all_partitions
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.controller_api import (
    BrokerDrain,
    DrainBroker,
    LeadershipTransfer,
    PartitionResult,
    PartitionResults,
    TransferLeaderships,
)
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import BrokerChanged, PartitionChanged, Record
from raftlog.metadata.record_replay import apply_records


def decide_transfer_leaderships(
    image: MetadataImage, request: TransferLeaderships, availability: BrokerAvailability
) -> Decision:
    """Move leaderships to named replicas, each partition on its own."""
    room = BatchLimit()
    records: dict[tuple[str, int], PartitionChanged] = {}
    results: list[PartitionResult] = []
    for wanted in request.transfers:
        named = (wanted.topic, wanted.partition)
        try:
            change = _transferred(image, wanted, availability)
            room.reserve(partitions=1)
        except KafkaError as error:
            results.append(PartitionResult(*named, error.code, error.message))
            continue
        results.append(PartitionResult(*named))
        if change is not None:
            records[named] = change
    moved = [f"{topic}-{partition}" for topic, partition in records]
    event = LogEvent(
        "info", "leaderships_transferred", {"count": len(moved), "partitions": moved[:MAX_NAMED]}
    )
    return Decision(tuple(records.values()), PartitionResults(tuple(results)), (event,) if records else ())


def _transferred(
    image: MetadataImage, wanted: LeadershipTransfer, availability: BrokerAvailability
) -> PartitionChanged | None:
    topic, state = image.topics.get(wanted.topic), image.partition(wanted.topic, wanted.partition)
    if topic is None or state is None:
        raise UnknownTopicOrPartition(f"there is no partition {wanted.topic}-{wanted.partition}")
    leader = wanted.leader
    if leader not in state.replicas:
        raise InvalidReplicaAssignment(f"broker {leader} is not one of the replicas {list(state.replicas)}")
    if state.leader == leader:
        return None
    if leader not in state.isr or state.isr_lost:
        lost = ", which is lost" if state.isr_lost else ""
        raise EligibleLeadersNotAvailable(
            f"broker {leader} is not in sync: the ISR is {list(state.isr)}{lost}"
        )
    if leader not in availability.alive:
        raise EligibleLeadersNotAvailable(f"broker {leader} is not in service")
    if leader in availability.draining:
        raise EligibleLeadersNotAvailable(f"broker {leader} is being drained of leaderships")
    return PartitionChanged(topic.topic_id, wanted.partition, leader=leader)


def decide_drain(
    image: MetadataImage,
    request: DrainBroker,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
) -> Decision:
    """Begin or end a drain; the leaderships move in the same batch, as many as one holds."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"broker {request.broker_id} is not registered")
    drained = request.draining or broker.broker_id in image.decommissions
    updates = update_all_partitions(
        image, availability.with_draining(broker.broker_id, drained), unclean, index=index
    )
    records: tuple[Record, ...] = updates.records
    effects: tuple[object, ...] = updates.events
    if broker.draining != request.draining:
        change = BrokerChanged(broker.broker_id, broker.broker_epoch, draining=request.draining)
        records = (change, *records)
        event = "broker_drain_began" if request.draining else "broker_drain_ended"
        effects = (LogEvent("info", event, {"broker_id": broker.broker_id}), *effects)
    if not updates.complete:
        effects = (*effects, UPDATE_ALL_PARTITIONS)
    after = apply_records(image, records)
    reply = BrokerDrain(broker.broker_id, request.draining, _led_by(after, broker.broker_id, index))
    return Decision(records, reply, effects)


def _led_by(image: MetadataImage, broker_id: int, index: PartitionIndex) -> int:
    in_sync = index.at(image).in_sync_on(broker_id)  # a leader is in the ISR
    return sum(image.topics[name].partitions[number].leader == broker_id for name, number in in_sync)
