"""Brokers that leave: a decommissioned broker gets no new replica, and its replicas move to other brokers.

It leads only what no other broker can lead. The moves are reassignments (KIP-455), derived from the metadata: from time
to time the controller begins as many as may run at once. There is no other state, so a new controller continues them. A
broker without a replica is unregistered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    InvalidReplicationFactor,
    InvalidRequest,
    NoReassignmentInProgress,
)
from raftlog.base.machine import Decision
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.brokers import decide_unregister
from raftlog.controller.decisions import MAX_NAMED, UPDATE_ALL_PARTITIONS, LogEvent
from raftlog.controller.leader_and_isr import UncleanRule, update_all_partitions
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.reassignment import FoundPartition, begin_reassignment
from raftlog.metadata.controller_api import DecommissionBroker, Done, UnregisterBroker
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import DecommissionChanged, PartitionChanged, Record

MAX_MOVES: Final = 20
"""Partitions that move off decommissioned brokers at a time."""

MAX_MOVES_TO_BROKER: Final = 5
"""Partitions of these that one broker receives at a time."""


def decide_decommission(
    image: MetadataImage,
    request: DecommissionBroker,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
) -> Decision:
    """Begin or end a decommission. Leaderships move in the same batch; an ended one lets running moves complete."""
    broker_id = request.broker_id
    if broker_id not in image.brokers:
        raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
    if request.ended:
        if broker_id not in image.decommissions:
            raise NoReassignmentInProgress(f"broker {broker_id} is not being decommissioned")
    else:
        _check_others(image, request)
    changes = request.ended or image.decommissions.get(broker_id) != request.replace_with
    record = DecommissionChanged(broker_id, request.replace_with, request.ended)
    drained = image.brokers[broker_id].draining or not request.ended
    updates = update_all_partitions(
        image, availability.with_draining(broker_id, drained), unclean, index=index
    )
    records: tuple[Record, ...] = (record, *updates.records) if changes else updates.records
    effects: tuple[object, ...] = updates.events
    if changes:
        event = "broker_recommissioned" if request.ended else "broker_decommission_began"
        effects = (LogEvent("info", event, {"broker_id": broker_id}), *effects)
    if not updates.complete:
        effects = (*effects, UPDATE_ALL_PARTITIONS)
    return Decision(records, Done(), effects)


def _check_others(image: MetadataImage, request: DecommissionBroker) -> None:
    """Raise unless the brokers that stay can hold every replica, and the replacement is one of them."""
    broker_id, other = request.broker_id, request.replace_with
    staying = image.brokers.keys() - image.decommissions.keys() - {broker_id}
    if other != NO_BROKER and other not in staying:
        raise InvalidRequest(
            f"broker {other} cannot replace broker {broker_id}: it is not registered, or leaves too"
        )
    largest = max(
        ((len(state.target_replicas), name) for name, state in _held(image, broker_id)),
        default=(0, ""),
    )
    if largest[0] > len(staying):
        raise InvalidReplicationFactor(
            f"topic {largest[1]} has replication factor {largest[0]}, and without broker {broker_id} only "
            f"{len(staying)} brokers are left: add a broker first"
        )


def _held(image: MetadataImage, broker_id: int) -> Iterator[tuple[str, PartitionState]]:
    for name, topic in image.topics.items():
        for state in topic.partitions:
            if broker_id in state.replicas:
                yield name, state


def decide_moves(
    image: MetadataImage,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
) -> Decision:
    """Begin the next moves off decommissioned brokers, or unregister one that is empty."""
    for broker_id in sorted(image.decommissions):
        if not index.at(image).replicas[broker_id]:
            request = UnregisterBroker(broker_id)
            decision = decide_unregister(
                image, request, availability=availability, unclean=unclean, index=index
            )
            event = LogEvent("info", "broker_decommissioned", {"broker_id": broker_id})
            return decision._replace(effects=(*decision.effects, event))
    plan = MovePlan(image, availability, index)
    records: list[PartitionChanged] = []
    moved: list[str] = []
    for name in sorted(index.leaving):
        changes = plan.begin(name)
        if changes:
            records += changes
            moved.append(str(name))
    event = LogEvent(
        "info", "decommission_moves_began", {"count": len(moved), "partitions": moved[:MAX_NAMED]}
    )
    return Decision(tuple(records), effects=(event,) if moved else ())


class MovePlan:
    """The moves off decommissioned brokers that may begin now."""

    def __init__(self, image: MetadataImage, availability: BrokerAvailability, index: PartitionIndex) -> None:
        self._image = image
        self._availability = availability
        self._leaving: Mapping[int, int] = image.decommissions
        self._replicas = Counter(index.at(image).replicas)
        self._receiving: Counter[int] = Counter()
        self._under_way = 0
        for topic, number in index.reassigned & index.leaving:
            state = image.topics[topic].partitions[number]
            self._receiving.update(state.adding_replicas)
            self._under_way += 1

    def begin(self, name: TopicPartition) -> tuple[PartitionChanged, ...]:
        """Return the records that begin a partition's move; none if it must wait."""
        topic = self._image.topics[name.topic]
        state = topic.partitions[name.partition]
        is_new = not state.is_reassigned
        if (is_new and self._under_way >= MAX_MOVES) or (not is_new and not self._lost_its_target(state)):
            return ()
        target = self._target(state)
        if target is None:
            return ()
        added = [each for each in target if each not in state.replicas]
        if any(self._receiving[each] >= MAX_MOVES_TO_BROKER for each in added):
            return ()
        self._under_way += is_new
        self._receiving.update(added)
        self._replicas.update(added)
        found = FoundPartition(topic, name.partition, state)
        return begin_reassignment(found, target, self._availability)

    def _target(self, state: PartitionState) -> tuple[int, ...] | None:
        """Return the replicas of a partition without decommissioned brokers, or None if it must stay for now."""
        if state.leader == NO_BROKER or state.isr_lost:
            return None
        target = list(state.target_replicas)
        for position, broker_id in enumerate(target):
            if broker_id in self._leaving or self._is_gone(broker_id, state):
                receiver = self._receiver(broker_id, target, state)
                if receiver is None:
                    return None
                target[position] = receiver
        return tuple(target)

    def _receiver(self, broker_id: int, target: list[int], state: PartitionState) -> int | None:
        """Return the broker that takes over a replica: the named one, else by rack and load; None without any."""
        staying = [each for each in target if each not in self._leaving and each != broker_id]
        free = self._availability.alive - self._leaving.keys() - {*target, *state.replicas}
        wanted = self._leaving.get(broker_id, NO_BROKER)
        if wanted in free:
            return wanted
        brokers = self._image.brokers
        racks = Counter(brokers[each].rack for each in staying if each in brokers)
        return min(
            free, key=lambda each: (racks[brokers[each].rack], self._replicas[each], each), default=None
        )

    def _lost_its_target(self, state: PartitionState) -> bool:
        """Whether a move off a decommissioned broker waits for a broker that is not in service."""
        return not self._leaving.keys().isdisjoint(state.removing_replicas) and any(
            self._is_gone(each, state) for each in state.target_replicas
        )

    def _is_gone(self, broker_id: int, state: PartitionState) -> bool:
        """Whether a broker that was to receive a replica is fenced, unregistered or leaves too."""
        if broker_id not in state.adding_replicas or broker_id in state.isr:
            return False
        broker = self._image.brokers.get(broker_id)
        return broker is None or broker.fenced or broker_id in self._leaving
