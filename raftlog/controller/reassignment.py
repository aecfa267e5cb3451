"""Reassignments that clients start, cancel or list (KIP-455): each partition succeeds or fails on its own.

A new reassignment replaces a running reassignment. The partition keeps its present replicas and adds the wanted
replicas, so no in-sync replica goes before the new replicas have caught up. Cancelling returns to the replicas before
the first reassignment. `complete_reassignment` ends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from raftlog.base.config import NodeConfig
from raftlog.base.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Decision
from raftlog.base.types import NO_BROKER
from raftlog.controller.broker_availability import BrokerAvailability, elect_leader
from raftlog.controller.decisions import MAX_NAMED, LogEvent
from raftlog.controller.metadata_limits import MetadataLimits
from raftlog.controller.partition_index import PartitionIndex
from raftlog.controller.reassignment_completion import complete_reassignment
from raftlog.controller.replica_placer import closed_brokers
from raftlog.metadata.controller_api import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    OngoingReassignments,
    PartitionResult,
    PartitionResults,
    Reassignment,
)
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState, without
from raftlog.metadata.metadata_records import UNCHANGED_LEADER, PartitionChanged
from raftlog.metadata.record_replay import changed


class FoundPartition(NamedTuple):
    """A partition by its topic and number."""

    topic: TopicState
    number: int
    state: PartitionState


def decide_alter_reassignments(
    image: MetadataImage,
    request: AlterReassignments,
    *,
    availability: BrokerAvailability,
    config: NodeConfig,
) -> Decision:
    """Begin, replace or cancel reassignments; a change without new replicas completes in the same batch."""
    closed = closed_brokers(image, availability.cordoned)
    bounds = MetadataLimits(image, config)
    times = Counter((each.topic, each.partition) for each in request.reassignments)
    records: list[PartitionChanged] = []
    results: list[PartitionResult] = []
    happened: dict[str, list[str]] = {}
    for wanted in request.reassignments:
        named = (wanted.topic, wanted.partition)
        try:
            if times[named] > 1:
                raise InvalidRequest("the partition is named more than once in this request")
            found = _find(image, *named)
            _check_replication_factor(found.state, request, wanted)
            news = _asked_for(image, found, wanted.replicas, availability, closed)
            bounds.batch_limit.reserve(partitions=len(news))
            bounds.add_replicas(_replicas_added(found.state, news))
        except KafkaError as error:
            results.append(PartitionResult(*named, error.code, error.message))
            continue
        results.append(PartitionResult(*named))
        records += news
        if news:
            event = "reassignment_cancelled" if wanted.replicas is None else "reassignment_began"
            happened.setdefault(event, []).append(f"{wanted.topic}-{wanted.partition}")
        if len(news) > 1:
            happened.setdefault("reassignment_completed", []).append(f"{wanted.topic}-{wanted.partition}")
    events = (
        LogEvent("info", name, {"count": len(each), "partitions": each[:MAX_NAMED]})
        for name, each in happened.items()
    )
    return Decision(tuple(records), PartitionResults(tuple(results)), tuple(events))


def _replicas_added(state: PartitionState, records: tuple[PartitionChanged, ...]) -> int:
    """Return by how many the replicas of a partition grow, at the beginning of its reassignment."""
    replicas = records[0].replicas if records else None
    return 0 if replicas is None else len(replicas) - len(state.replicas)


def _find(image: MetadataImage, topic_name: str, index: int) -> FoundPartition:
    topic = image.topics.get(topic_name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {topic_name}")
    state = image.partition(topic_name, index)
    if state is None:
        raise UnknownTopicOrPartition(
            f"topic {topic_name} has {len(topic.partitions)} partitions, none with number {index}"
        )
    return FoundPartition(topic, index, state)


def _check_replication_factor(
    state: PartitionState, request: AlterReassignments, wanted: Reassignment
) -> None:
    if wanted.replicas is None or not wanted.replicas or request.allow_replication_factor_change:
        return
    if len(wanted.replicas) != len(state.target_replicas):
        raise InvalidReplicationFactor(
            f"the replication factor would change from {len(state.target_replicas)} to {len(wanted.replicas)},"
            " which this request does not allow"
        )


def _asked_for(
    image: MetadataImage,
    found: FoundPartition,
    target: tuple[int, ...] | None,
    availability: BrokerAvailability,
    closed: Mapping[int, str],
) -> tuple[PartitionChanged, ...]:
    """Return the records of a requested reassignment, or of its cancellation."""
    if target is None:
        return (_cancelled(found, availability),)
    _check_target(image, target, found.state.replicas, closed)
    return begin_reassignment(found, target, availability)


def begin_reassignment(
    found: FoundPartition, target: tuple[int, ...], availability: BrokerAvailability
) -> tuple[PartitionChanged, ...]:
    """Return the records of a reassignment to registered brokers: none if it is done already, two if it completes at
    once.
    """
    change = _begun(found, target)
    if change is None:
        return ()
    topic, index, state = found
    end = complete_reassignment(topic.topic_id, index, changed(state, change), availability)
    return (change,) if end is None else (change, end)


def _check_target(
    image: MetadataImage, target: tuple[int, ...], present: tuple[int, ...], closed: Mapping[int, str]
) -> None:
    if not target:
        raise InvalidReplicaAssignment("a partition needs at least one replica, but none is given")
    for broker_id, count in Counter(target).items():
        if broker_id < 0:
            raise InvalidReplicaAssignment(
                f"{broker_id} in {list(target)} is not a broker id, which is at least 0"
            )
        if count > 1:
            raise InvalidReplicaAssignment(f"{list(target)} names broker {broker_id} more than once")
        if broker_id not in image.brokers:
            raise InvalidReplicaAssignment(f"no broker is registered with id {broker_id}")
        if broker_id in closed and broker_id not in present:
            raise InvalidReplicaAssignment(f"{closed[broker_id]}, and gets no new replicas")


def _begun(found: FoundPartition, target: tuple[int, ...]) -> PartitionChanged | None:
    state = found.state
    removing = without(state.replicas, target)
    replicas = target + removing
    adding = without(replicas, state.original_replicas)
    if (replicas, adding, removing) == (state.replicas, state.adding_replicas, state.removing_replicas):
        return None
    return PartitionChanged(
        found.topic.topic_id,
        found.number,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
    )


def _cancelled(found: FoundPartition, availability: BrokerAvailability) -> PartitionChanged:
    """Return the record that removes the added replicas. Raise if no replica would be left with all records.

    An original replica that is an eligible leader has them. Kafka refuses, or would elect one uncleanly. A damaged
    replica that leads for reading has not, so the added replicas stay while only they have them.
    """
    topic, index, state = found
    if not state.is_reassigned:
        raise NoReassignmentInProgress(f"{topic.name}-{index} is not being reassigned")
    isr = without(state.isr, state.adding_replicas)
    leader = UNCHANGED_LEADER
    if state.leader in state.adding_replicas:
        eligible = () if state.isr_lost else state.eligible
        leader = elect_leader(state.original_replicas, isr or eligible, availability)
        isr = isr or without((leader,), (NO_BROKER,))
    if not isr or (state.trusted and not without(state.trusted, state.adding_replicas)):
        raise InvalidReplicaAssignment(
            f"none of the replicas {list(state.original_replicas)} is in sync, or an eligible leader in service: "
            "cancelling would lose records"
        )
    return PartitionChanged(
        topic.topic_id,
        index,
        leader=leader,
        isr=None if isr == state.isr else isr,
        replicas=state.original_replicas,
        adding_replicas=(),
        removing_replicas=(),
    )


def decide_list_reassignments(
    image: MetadataImage, request: ListReassignments, index: PartitionIndex
) -> Decision:
    """Return the running reassignments."""
    ongoing = tuple(
        OngoingReassignment(
            found.topic.name,
            found.number,
            found.state.replicas,
            found.state.adding_replicas,
            found.state.removing_replicas,
        )
        for found in _listed(image, request.partitions, index)
        if found.state.is_reassigned
    )
    return Decision(reply=OngoingReassignments(ongoing))


def _listed(
    image: MetadataImage, partitions: tuple[tuple[str, int], ...] | None, index: PartitionIndex
) -> Iterator[FoundPartition]:
    named = sorted(index.at(image).reassigned) if partitions is None else dict.fromkeys(partitions)
    for name, number in named:
        asked_for = image.partition(name, number)
        if asked_for is not None:
            yield FoundPartition(image.topics[name], number, asked_for)
