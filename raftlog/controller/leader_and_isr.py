"""Computes a partition's leader and ISR from the brokers' availability, by one rule for all events.

A broker's availability changes with fencing, unfencing, a new incarnation, a controlled shutdown and a cleared
suspicion. The rule is then applied to each partition that may be affected (`PartitionIndex` knows which). It is
idempotent: a partition is settled when the rule yields no record.

The rule while some ISR member is alive: fenced and leaving members drop out of the ISR. A lost leader is replaced by
the first live ISR member in replica order. The rule while none is alive: the eligible leaders join the ISR, which does
not change otherwise. All its members hold all committed records, so the first to come back may lead.

A member that came back with an empty disk leaves the ISR at once, and so does one that reports its log as
damaged. If it was the last member in service, the ISR is lost. A damaged member leads then, for reading only. The
members out of service become eligible leaders, and the first to come back takes over. Without any, only an unclean
election can follow.

A drained leader hands over to a live ISR member that is not drained. A reassignment completes here if it had to wait
until a replica that stays was alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from raftlog.base.config import NodeConfig, topic_config
from raftlog.base.types import NO_BROKER, TopicPartition
from raftlog.controller.broker_availability import BrokerAvailability, elect_leader
from raftlog.controller.decisions import MAX_NAMED, MAX_PARTITION_RECORDS, Level, LogEvent
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.reassignment_completion import complete_reassignment
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState, without
from raftlog.metadata.metadata_records import UNCHANGED_LEADER, PartitionChanged
from raftlog.metadata.record_replay import changed

UNCLEAN_KEY: Final = "unclean.leader.election.enable"

_LEVELS: Final[dict[str, Level]] = {"partition_went_offline": "warning", "reassignment_completed": "info"}
"""Levels of events that do not need an operator at once."""

UncleanRule = Callable[[str], bool]
"""Says whether a topic allows unclean leader election."""


class LostReplicas(NamedTuple):
    """A broker with incomplete replicas: all (another disk), or only the `damaged` replicas that it reports.

    `reads_on`: while no complete replica is in service, the damaged replica leads for reading only. The other ISR
    members become eligible leaders.
    """

    broker_id: int = NO_BROKER
    damaged: frozenset[tuple[UUID, int]] | None = None
    reads_on: bool = False

    def affects(self, topic_id: UUID, index: int, members: tuple[int, ...]) -> bool:
        """Return whether this broker is among the members of a partition that it lacks records of."""
        return self.broker_id in members and (self.damaged is None or (topic_id, index) in self.damaged)


NO_LOST_REPLICAS: Final = LostReplicas()


class PartitionUpdates(NamedTuple):
    """The records that update partitions, log events for operators, and whether all partitions are done."""

    records: tuple[PartitionChanged, ...]
    events: tuple[LogEvent, ...]
    complete: bool


def unclean_rule(image: MetadataImage, config: NodeConfig) -> UncleanRule:
    """Return the rule: the topic's config decides, then the cluster-wide dynamic config, then the node's own."""
    cluster_wide = image.config("broker", "")

    def allowed(topic: str) -> bool:
        effective = topic_config(config, cluster_wide, image.config("topic", topic))
        return effective.unclean_leader_election_enable

    return allowed


def update_all_partitions(
    image: MetadataImage,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    *,
    index: PartitionIndex,
    lost_replicas: LostReplicas = NO_LOST_REPLICAS,
) -> PartitionUpdates:
    """Update every partition of the image, MAX_PARTITION_RECORDS at most; the next call continues.

    It visits only partitions that the availability or the lost replicas affect, in the order of topics and partition
    numbers. Damaged replicas come first. This batch may also unfence their broker, and a later batch could elect a
    damaged replica that is still in the ISR.
    """
    changes = _Changes()
    found = _concerned(image, index, availability, lost_replicas)
    damaged = _named(image, lost_replicas.damaged or ())
    concerned = [*sorted(found & damaged), *sorted(found - damaged)]
    for name, partitions in groupby(concerned, key=attrgetter("topic")):
        topic = image.topics[name]
        for state, change in _unsettled(
            topic, partitions, availability=availability, unclean=unclean, lost_replicas=lost_replicas
        ):
            if len(changes.records) == MAX_PARTITION_RECORDS:
                return PartitionUpdates(tuple(changes.records), changes.events(), False)
            changes.add(topic.name, state, change)
    return PartitionUpdates(tuple(changes.records), changes.events(), True)


def _named(image: MetadataImage, partitions: Iterable[tuple[UUID, int]]) -> Set[TopicPartition]:
    """Return partitions with the names of their topics, without deleted topics."""
    return frozenset(
        TopicPartition(image.topic_names[topic_id], number)
        for topic_id, number in partitions
        if topic_id in image.topic_names
    )


def _concerned(
    image: MetadataImage, index: PartitionIndex, availability: BrokerAvailability, lost_replicas: LostReplicas
) -> Set[TopicPartition]:
    """Return every partition that may need an update: all others are led and replicated by brokers in service."""
    here = index.at(image)
    damaged = _named(image, lost_replicas.damaged or ())
    lost = here.trusted_on(lost_replicas.broker_id)
    return frozenset().union(
        here.in_sync_outside(availability.alive | availability.suspected),
        here.in_sync_on_any(availability.draining),
        here.without_leader,
        here.reassigned,
        lost if lost_replicas.damaged is None else damaged & lost,
    )


def _unsettled(
    topic: TopicState,
    partitions: Iterable[TopicPartition],
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    lost_replicas: LostReplicas,
) -> Iterator[tuple[PartitionState, PartitionChanged]]:
    """Yield each partition that needs a change, and the change.

    A partition may need several changes in a row, each based on the previous change. An example is an election right
    after an ISR change, or at the end of a reassignment.
    """
    topic_id = topic.topic_id
    present = availability.alive | availability.suspected
    allowed: bool | None = None
    for _, index in partitions:
        state = topic.partitions[index]
        lacks = lost_replicas is not NO_LOST_REPLICAS and lost_replicas.affects(
            topic_id, index, (*state.isr, *state.eligible)
        )
        moves = bool(state.adding_replicas or state.removing_replicas)
        calm = state.leader in present and present.issuperset(state.isr) and not (lacks or state.isr_lost)
        if calm and not moves and state.leader not in availability.draining:
            continue
        if allowed is None:
            allowed = unclean(topic.name)
        change = update_leader_and_isr(
            topic_id, index, state, availability=availability, unclean=allowed, lost_replicas=lost_replicas
        )
        if change is not None:
            yield state, change
            if lacks or moves:
                state = changed(state, change)
            if lacks and allowed and (state.isr_lost or state.leader == NO_BROKER):
                change = update_leader_and_isr(
                    topic_id, index, state, availability=availability, unclean=True
                )
                if change is not None:
                    yield state, change
                    state = changed(state, change)
        ended = complete_reassignment(topic_id, index, state, availability) if moves else None
        if ended is not None:
            yield state, ended


def update_leader_and_isr(
    topic_id: UUID,
    index: int,
    state: PartitionState,
    *,
    availability: BrokerAvailability,
    unclean: bool,
    lost_replicas: LostReplicas = NO_LOST_REPLICAS,
) -> PartitionChanged | None:
    """Return the record that brings a partition's leader and ISR up to date, or None if no change is needed.

    No replica is elected uncleanly in the record that first notes its damage. Until then it is in the ISR or eligible,
    so its election would count as clean. But an elected replica accepts its damaged log only if its election was
    unclean.

    If a member of the ISR lacks records, or eligible leaders join the ISR, the record also sets the remaining eligible
    leaders. No replica is in both lists. After an unclean election there are no eligible leaders.
    """
    # `lossy` is the broker with incomplete replicas. `sound` and `eligible` are the replicas with all committed
    # records: the members of the ISR, and the eligible leaders. `reader` leads for reading only if the ISR is lost.
    isr, lost, joins = state.isr, state.isr_lost, False
    reader, lossy = state.leader, lost_replicas.broker_id
    sound, eligible = () if lost else isr, state.eligible
    loses = lost_replicas is not NO_LOST_REPLICAS and lost_replicas.affects(
        topic_id, index, (*isr, *eligible)
    )
    if loses:
        sound, eligible = without(sound, (lossy,)), without(eligible, (lossy,))
        if lost_replicas.damaged is not None:
            reader = lossy if lossy in isr else reader
            unclean = unclean and lossy not in state.trusted
    if loses or eligible:
        reads_on = lost_replicas.reads_on if loses and lossy in isr else lost
        members, joins = _in_sync(state, sound, eligible, reads_on=reads_on, availability=availability)
        lost = not members
        isr = members or ((lossy,) if loses and lossy in isr else isr)
    if any(member in availability.alive for member in isr) and not lost:
        isr = tuple(
            member for member in isr if member in availability.alive or member in availability.suspected
        )
    leader = NO_BROKER if lost else _leader(state, isr, availability)
    if leader == NO_BROKER and unclean:
        leader = _unclean_leader(state, availability)
        if leader != NO_BROKER:
            isr, lost, sound, eligible, joins = (leader,), False, (), (), bool(state.eligible)
    if lost and availability.is_unfenced(reader):
        leader = reader
    change = _change(topic_id, index, state, leader=leader, isr=isr, lost=lost)
    if not (loses or joins):
        return change
    candidates = state.in_replica_order({*sound, *eligible}.difference((*isr, lossy)))
    if change is None:
        changes = candidates != state.eligible
        return PartitionChanged(topic_id, index, eligible=candidates) if changes else None
    return msgspec.structs.replace(change, eligible=candidates)


def _in_sync(
    state: PartitionState,
    sound: tuple[int, ...],
    eligible: tuple[int, ...],
    *,
    reads_on: bool,
    availability: BrokerAvailability,
) -> tuple[tuple[int, ...], bool]:
    """Return the ISR, empty if it is lost, and whether eligible leaders join it.

    `sound` are its members so far that have all committed records. `reads_on`: the ISR is lost while neither they nor
    the eligible leaders may lead, so that a damaged member leads for reading.
    """
    if any(map(availability.is_unfenced, sound)):
        return sound, False
    may_lead = availability.alive | availability.suspected
    if reads_on and may_lead.isdisjoint((*sound, *eligible)):
        return (), False
    return (state.in_replica_order({*sound, *eligible}), True) if eligible else (sound, False)


def _leader(state: PartitionState, isr: tuple[int, ...], availability: BrokerAvailability) -> int:
    leader = state.leader
    stays = leader in isr and availability.is_unfenced(leader)
    if stays and leader not in availability.draining:
        return leader
    elected = elect_leader(state.replicas, isr, availability)
    if stays and (elected not in availability.alive or elected in availability.draining):
        return leader  # draining, but no other replica can lead
    return elected


def _unclean_leader(state: PartitionState, availability: BrokerAvailability) -> int:
    live = [replica for replica in state.replicas if replica in availability.alive]
    # An emptied disk comes last, and a member of a lost ISR has one if it does not lead for reading. An added replica
    # may have as little.
    live.sort(
        key=lambda replica: (
            replica in availability.disk_lost,
            replica in state.isr,
            replica in state.adding_replicas,
        )
    )
    return live[0] if live else NO_BROKER


def _change(
    topic_id: UUID, index: int, state: PartitionState, *, leader: int, isr: tuple[int, ...], lost: bool
) -> PartitionChanged | None:
    if leader == state.leader and isr == state.isr and lost == state.isr_lost:
        return None
    reelected = state.isr_lost and not lost  # a leader for reading only becomes a full leader, in a new epoch
    return PartitionChanged(
        topic_id=topic_id,
        partition=index,
        leader=UNCHANGED_LEADER if leader == state.leader and not reelected else leader,
        isr=None if isr == state.isr else isr,
        isr_lost=None if lost == state.isr_lost else lost,
    )


class _Changes:
    """Records in the making, and the events to log."""

    def __init__(self) -> None:
        self.records: list[PartitionChanged] = []
        self._remarkable: dict[str, list[str]] = {}

    def add(self, topic: str, state: PartitionState, change: PartitionChanged) -> None:
        self.records.append(change)
        if change.replicas is not None:
            self._note("reassignment_completed", topic, change)
        elif change.isr_lost:
            self._note("isr_lost", topic, change)
        elif change.leader == NO_BROKER:
            self._note("partition_went_offline", topic, change)
        elif change.leader >= 0 and (
            change.leader not in state.eligible
            and (change.isr_lost is False or change.leader not in state.isr)
        ):
            self._note("unclean_leader_elected", topic, change)

    def _note(self, name: str, topic: str, change: PartitionChanged) -> None:
        self._remarkable.setdefault(name, []).append(f"{topic}-{change.partition}")

    def events(self) -> tuple[LogEvent, ...]:
        return tuple(_event(name, partitions) for name, partitions in self._remarkable.items())


def _event(name: str, partitions: list[str]) -> LogEvent:
    fields: dict[str, Any] = {"count": len(partitions), "partitions": partitions[:MAX_NAMED]}
    return LogEvent(_LEVELS.get(name, "error"), name, fields)
