"""Requested leader elections, preferred and unclean (KIP-460), and the periodic rebalance (KIP-183).

The leader after a broker's death is chosen by `leader_and_isr`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from raftlog.base.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Decision
from raftlog.base.types import NO_BROKER
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.decisions import UPDATE_ALL_PARTITIONS, BatchLimit, LogEvent
from raftlog.controller.leader_and_isr import update_leader_and_isr
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.controller_api import (
    PREFERRED,
    UNCLEAN,
    ElectionResult,
    ElectionResults,
    ElectLeaders,
)
from raftlog.metadata.image import MetadataImage, PartitionState, TopicState, is_deprived
from raftlog.metadata.metadata_records import PartitionChanged

MAX_REBALANCED: Final = 1_000
"""Leaderships that one rebalance moves; the next interval moves more."""


def decide_elect_leaders(
    image: MetadataImage, request: ElectLeaders, availability: BrokerAvailability, index: PartitionIndex
) -> Decision:
    """Elect preferred or unclean leaders; asked for all partitions, return only partitions that needed it."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"election type {request.election_type} is unknown")
    room = BatchLimit()
    records: list[PartitionChanged] = []
    results: list[ElectionResult] = []
    for topic, partition in _asked_for(image, request, index):
        error: KafkaError | None = None
        try:
            unclean = request.election_type == UNCLEAN
            change = _elected(image, topic, partition, unclean=unclean, availability=availability)
            room.reserve(partitions=1)
            records.append(change)
        except ElectionNotNeeded as not_needed:
            if request.partitions is None:
                continue
            error = not_needed
        except KafkaError as failed:
            error = failed
        results.append(_result(topic, partition, error))
    effects: tuple[object, ...] = _events(image, request, records)
    if records and request.election_type == UNCLEAN:
        # a reassignment may have waited for this leader
        effects = (*effects, UPDATE_ALL_PARTITIONS)
    return Decision(tuple(records), ElectionResults(tuple(results)), effects)


def _asked_for(
    image: MetadataImage, request: ElectLeaders, index: PartitionIndex
) -> Iterable[tuple[str, int]]:
    """Return the partitions that a request is about: those it names, or all that need an election."""
    if request.partitions is not None:
        return dict.fromkeys(request.partitions)
    return _in_need(image, request.election_type, index)


def _in_need(image: MetadataImage, election_type: int, index: PartitionIndex) -> Iterator[tuple[str, int]]:
    """Yield the partitions that need an election, in the order of their names."""
    found = index.at(image)
    candidates = found.without_leader
    if election_type == PREFERRED:
        candidates = candidates | found.imbalanced
    for name, number in sorted(candidates):
        if needs_election(image.topics[name].partitions[number], election_type):
            yield name, number


def needs_election(state: PartitionState, election_type: int) -> bool:
    """Return whether a partition has another leader than an election of that type would give it, or none."""
    if election_type == PREFERRED:
        return state.leader != state.replicas[0]
    return state.leader == NO_BROKER or state.isr_lost


def _result(topic: str, partition: int, error: KafkaError | None) -> ElectionResult:
    if error is None:
        return ElectionResult(topic, partition)
    return ElectionResult(topic, partition, error.code, error.message)


def _elected(
    image: MetadataImage, topic_name: str, partition: int, *, unclean: bool, availability: BrokerAvailability
) -> PartitionChanged:
    topic, state = image.topics.get(topic_name), image.partition(topic_name, partition)
    if topic is None or state is None:
        raise UnknownTopicOrPartition()
    if unclean:
        return _elected_uncleanly(image, topic, partition, state, availability=availability)
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ElectionNotNeeded()
    if not _preferred_can_lead(state, availability):
        raise PreferredLeaderNotAvailable()
    return PartitionChanged(topic.topic_id, partition, leader=preferred)


def _preferred_can_lead(state: PartitionState, availability: BrokerAvailability) -> bool:
    preferred = state.replicas[0]
    may_lead = preferred in availability.alive and preferred not in availability.draining
    return may_lead and preferred in state.isr and not state.isr_lost


def _elected_uncleanly(
    image: MetadataImage,
    topic: TopicState,
    partition: int,
    state: PartitionState,
    *,
    availability: BrokerAvailability,
) -> PartitionChanged:
    if state.leader != NO_BROKER and not state.isr_lost:
        raise ElectionNotNeeded()
    change = update_leader_and_isr(topic.topic_id, partition, state, availability=availability, unclean=True)
    if change is None or change.leader < 0:
        raise EligibleLeadersNotAvailable()
    # Without a leader for reading, the member of a lost ISR has an empty disk. An added replica may have as little.
    emptied = {*availability.disk_lost, *(state.isr if state.isr_lost else ())}
    with_less = {*emptied, *state.adding_replicas}.difference(state.trusted)
    with_more = [each for each in state.replicas if each in image.brokers and each not in with_less]
    if state.leader == NO_BROKER and with_more and change.leader in with_less:
        raise EligibleLeadersNotAvailable(
            f"broker {change.leader} may have no records of this partition, and brokers {with_more} may have more: "
            "start them, or unregister those that will not come back"
        )
    return change


def _events(
    image: MetadataImage, request: ElectLeaders, records: list[PartitionChanged]
) -> tuple[LogEvent, ...]:
    if not records:
        return ()
    named = [f"{image.topic_names[each.topic_id]}-{each.partition}" for each in records[:10]]
    fields = {"count": len(records), "partitions": named}
    if request.election_type == UNCLEAN:
        return (LogEvent("error", "unclean_leader_election_asked_for", fields),)
    return (LogEvent("info", "preferred_leaders_elected", fields),)


def decide_rebalance(
    image: MetadataImage, availability: BrokerAvailability, *, index: PartitionIndex, percentage: int
) -> Decision:
    """Return leadership to preferred leaders that can take it, at most MAX_REBALANCED at a time.

    A broker gets leaderships back if it lacks more than `percentage` of its preferred leaderships.
    """
    records: list[PartitionChanged] = []
    preferred = index.at(image).preferred_leaders
    imbalanced = tuple(_imbalanced(image, index))
    missing = Counter(state.replicas[0] for _, _, state in imbalanced)
    deprived = {each for each, count in missing.items() if is_deprived(count, preferred[each], percentage)}
    for topic_id, number, state in imbalanced:
        if state.replicas[0] not in deprived:
            continue
        if len(records) == MAX_REBALANCED:
            break
        if _preferred_can_lead(state, availability):
            records.append(PartitionChanged(topic_id, number, leader=state.replicas[0]))
    events = (LogEvent("info", "leaders_rebalanced", {"count": len(records)}),) if records else ()
    return Decision(tuple(records), None, events)


def _imbalanced(image: MetadataImage, index: PartitionIndex) -> Iterator[tuple[UUID, int, PartitionState]]:
    for name, number in sorted(index.at(image).imbalanced):
        topic = image.topics[name]
        yield topic.topic_id, number, topic.partitions[number]
