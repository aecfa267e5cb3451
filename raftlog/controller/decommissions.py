"""Brokers that leave: a decommissioned broker gets no new replica, and its replicas move to other brokers.

It leads only what no other broker can lead. The moves are reassignments (KIP-455), derived from the metadata: from time
to time the controller begins as many as may run at once. There is no other state, so a new controller continues them. A
broker without a replica is unregistered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain, islice
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
from raftlog.metadata.effective_config import cordoned_brokers
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import DecommissionChanged, PartitionChanged, Record

MAX_MOVES: Final = 20
"""Partitions that move off decommissioned brokers at a time."""

MAX_LOOKED: Final = 500
"""Partitions that are looked at in one turn, some 10 µs each."""

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
        _check_others(image, request, index)
    before = image.decommissions.get(broker_id)
    other = before if before is not None and request.replace_with == NO_BROKER else request.replace_with
    changes = request.ended or before != other
    record = DecommissionChanged(broker_id, other, request.ended)
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


def _check_others(image: MetadataImage, request: DecommissionBroker, index: PartitionIndex) -> None:
    """Raise unless the brokers that stay can hold every replica, and the replacement is one of them."""
    broker_id, other = request.broker_id, request.replace_with
    staying = image.brokers.keys() - image.decommissions.keys() - {broker_id}
    if other != NO_BROKER and other not in staying:
        raise InvalidRequest(
            f"broker {other} cannot replace broker {broker_id}: it is not registered, or is being decommissioned too"
        )
    leaving = image.decommissions.keys() | {broker_id}
    held = index.at(image).held_by_any(leaving)
    largest = max(
        ((len(image.topics[name].partitions[number].target_replicas), name) for name, number in held),
        default=(0, ""),
    )
    if largest[0] > len(staying):
        raise InvalidReplicationFactor(
            f"topic {largest[1]} has replication factor {largest[0]}, and without broker {broker_id} only "
            f"{len(staying)} brokers are left: add a broker first"
        )


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
    for name in chain(plan.lost_their_target(), plan.next_in_turn()):
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
        self._may_hold_new = availability.alive - cordoned_brokers(image, availability.cordoned)
        self._index = index.at(image)
        self._leaving: Mapping[int, int] = image.decommissions
        self._replicas = Counter(index.replicas)
        self._receiving: Counter[int] = Counter()
        self._moving = sorted(index.reassigned.intersection(index.leaving))
        for name in self._moving:
            self._receiving.update(self._state(name).adding_replicas)

    def lost_their_target(self) -> Iterator[TopicPartition]:
        """Yield the partitions that move off a decommissioned broker to a broker that is not in service."""
        for name in self._moving:
            state = self._state(name)
            leaves = not self._leaving.keys().isdisjoint(state.removing_replicas)
            if leaves and any(self._is_gone(each, state) for each in state.target_replicas):
                yield name

    def next_in_turn(self) -> Iterator[TopicPartition]:
        """Yield partitions that do not move, while more may; each that was looked at goes to the end of the queue."""
        room = MAX_MOVES - len(self._moving)
        for name in tuple(islice(self._index.leaving, MAX_LOOKED)):
            if room <= 0:
                return
            if not self._state(name).is_reassigned:
                before = self._receiving.total()
                yield name
                room -= self._receiving.total() > before
            self._index.postpone(name)

    def begin(self, name: TopicPartition) -> tuple[PartitionChanged, ...]:
        """Return the records that begin a partition's move; none if it must wait."""
        state = self._state(name)
        target = self._target(state)
        if target is None:
            return ()
        added = set(target) - set(state.replicas)
        self._receiving.update(added)
        self._replicas.update(added)
        found = FoundPartition(self._image.topics[name.topic], name.partition, state)
        return begin_reassignment(found, target, self._availability)

    def _state(self, name: TopicPartition) -> PartitionState:
        return self._image.topics[name.topic].partitions[name.partition]

    def _target(self, state: PartitionState) -> tuple[int, ...] | None:
        """Return the replicas of a partition without decommissioned brokers, or None if it must stay for now.

        A move with a staying replica out of service would not complete, and hold up others.
        """
        if state.leader == NO_BROKER or state.isr_lost:
            return None
        target = list(state.target_replicas)
        for position, broker_id in enumerate(target):
            if broker_id in self._leaving or self._is_gone(broker_id, state):
                receiver = self._receiver(broker_id, target, state)
                if receiver is None:
                    return None
                target[position] = receiver
            elif not self._availability.is_unfenced(broker_id):
                return None
        return tuple(target)

    def _receiver(self, broker_id: int, target: list[int], state: PartitionState) -> int | None:
        """Return the broker that takes over a replica: the named one, else by room, rack and load; None without any.

        A named broker is waited for while it is registered and not fenced.
        """
        brokers = self._image.brokers
        taken = {*target, *state.original_replicas}
        wanted = brokers.get(self._leaving.get(broker_id, NO_BROKER))
        if wanted is not None and wanted.broker_id not in taken and not wanted.fenced:
            return wanted.broker_id if self._may_receive(wanted.broker_id) else None
        others = self._availability.alive - self._leaving.keys() - taken
        others = others - self._availability.draining or others  # a full disk counts as drained
        free = filter(self._may_receive, others)
        staying = [each for each in target if each not in self._leaving and each != broker_id]
        racks = Counter(brokers[each].rack for each in staying if each in brokers)
        return min(
            free,
            key=lambda each: (racks[brokers[each].rack], self._replicas[each], each),
            default=None,
        )

    def _may_receive(self, broker_id: int) -> bool:
        return broker_id in self._may_hold_new and self._receiving[broker_id] < MAX_MOVES_TO_BROKER

    def _is_gone(self, broker_id: int, state: PartitionState) -> bool:
        """Return whether a replica of a running move's target leaves too, or is to come to a broker that is not in
        service.
        """
        if broker_id in state.isr or not state.is_reassigned:
            return False
        broker = self._image.brokers.get(broker_id)
        is_absent = broker is None or broker.fenced
        return broker_id in self._leaving or (broker_id in state.adding_replicas and is_absent)
