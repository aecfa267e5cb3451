"""Registration, heartbeat, fencing, controlled shutdown and unregistration of brokers (KIP-631); their producer ids.

Each changes the brokers' availability, and updates every affected partition in the same batch. Batches are bounded: a
decision that needs more replies DECIDE_AGAIN, and is decided again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from raftlog.base.machine import Decision
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.decisions import DECIDE_AGAIN, UPDATE_ALL_PARTITIONS, LogEvent
from raftlog.controller.leader_and_isr import (
    NO_LOST_REPLICAS,
    LostReplicas,
    PartitionUpdates,
    UncleanRule,
    update_all_partitions,
)
from raftlog.controller.metadata_limits import check_registration_size
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.broker_requests import (
    AllocateProducerIds,
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerRegistration,
    PreviousOpening,
    ProducerIdBlock,
    RegisterBroker,
)
from raftlog.metadata.controller_api import Done, UnregisterBroker
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION, finalized_level, unsupported_reason
from raftlog.metadata.image import BrokerState, MetadataImage
from raftlog.metadata.metadata_records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ProducerIdsAllocated,
    Record,
)
from raftlog.metadata.record_levels import FIELDS_SINCE
from raftlog.metadata.record_replay import apply_records

BLOCK_SIZE: Final = 1_000
"""Producer ids in one block."""

DISK_LOST_SINCE: Final = FIELDS_SINCE[BrokerRegistered]["disk_lost"]
"""The level of raftlog.metadata.version since which brokers with a lost disk are recorded."""


def decide_register(
    image: MetadataImage,
    request: RegisterBroker,
    *,
    in_session: bool,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
) -> Decision:
    """Register a broker, fenced; a new incarnation leaves its ISRs and leaderships in the same batch.

    A broker that lacks a log directory, or has an older copy, is trusted with no records: only it knows which
    partitions lay there. `in_session`: the image's incarnation has a valid session.
    """
    existing = image.brokers.get(request.broker_id)
    _check_registration(image, request)
    if existing is not None and _is_same(existing, request):
        return Decision(reply=BrokerRegistration(existing.broker_epoch))
    if existing is not None and existing.incarnation_id != request.incarnation_id and in_session:
        raise DuplicateBrokerRegistration(f"broker {request.broker_id} is already running as another process")
    last = existing or image.unregistered.get(request.broker_id)
    went_back = () if last is None else _older_directories(last, request)
    disk_lost = last is not None and not set(last.directory_ids) <= set(request.directory_ids)
    disk_lost = disk_lost or bool(went_back)
    updates = update_all_partitions(
        image,
        availability.with_fenced({request.broker_id}),
        unclean,
        index=index,
        lost_replicas=LostReplicas(request.broker_id) if disk_lost else NO_LOST_REPLICAS,
    )
    if not updates.complete:
        return Decision(updates.records, DECIDE_AGAIN, updates.events)
    record = BrokerRegistered(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=request.endpoints,
        rack=request.rack,
        directory_ids=request.directory_ids,
        features=request.features,
        disk_lost=_recorded_as_lost(image, request.broker_id, index) if disk_lost or last is None else None,
    )
    broker_epoch = image.offset + len(updates.records)
    fields = {"broker_id": request.broker_id, "broker_epoch": broker_epoch, "disk_lost": disk_lost}
    return Decision(
        (*updates.records, record),
        BrokerRegistration(broker_epoch, went_back),
        (*updates.events, LogEvent("info", "controller_registered_broker", fields)),
    )


def _recorded_as_lost(image: MetadataImage, broker_id: int, index: PartitionIndex) -> bool | None:
    """Return True, or None where the level does not allow that, or the broker has no replica.

    Without its kept registration, an unregistered broker may come back with any disk.
    """
    is_allowed = finalized_level(image, RAFTLOG_METADATA_VERSION) >= DISK_LOST_SINCE
    return True if is_allowed and index.at(image).replicas[broker_id] else None


def _older_directories(last: BrokerState, request: RegisterBroker) -> tuple[UUID, ...]:
    """Return the log directories that, by their own files, are older than the last registration."""
    return tuple(
        directory_id
        for directory_id, opening in zip(request.directory_ids, request.previous, strict=False)
        if directory_id in last.directory_ids and _went_back(last, opening)
    )


def _went_back(broker: BrokerState, opening: PreviousOpening) -> bool:
    """Return whether a log directory is older than its broker's last registration.

    A process writes its incarnation there before it registers, and drops older ids once it has. So a crash at any
    moment leaves the id that the metadata knows. A release before 0.4.0 writes none: only its clean stop is compared.
    Apache Kafka compares only that (KIP-966), and so distrusts a broker after each crash.
    """
    if broker.incarnation_id in opening.incarnations or opening.clean_epoch == broker.broker_epoch:
        return False
    return broker.wrote_incarnation or 0 <= opening.clean_epoch < broker.broker_epoch


def _check_registration(image: MetadataImage, request: RegisterBroker) -> None:
    if request.cluster_id and request.cluster_id != image.cluster_id:
        raise InconsistentClusterId(
            f"broker {request.broker_id} belongs to cluster {request.cluster_id}, not to {image.cluster_id}"
        )
    if request.broker_id < 0 or not request.endpoints:
        raise InvalidRegistration("a broker needs an id of at least 0 and at least one endpoint")
    if request.previous and len(request.previous) != len(request.directory_ids):
        raise InvalidRegistration(
            f"broker {request.broker_id} names the last owners of {len(request.previous)} log directories, "
            f"and has {len(request.directory_ids)}"
        )
    check_registration_size(image, request)
    for name, level in image.features.items():
        reason = unsupported_reason(request.features, name, level)
        if reason is not None:
            raise UnsupportedVersion(
                f"broker {request.broker_id} {reason}; the cluster's level of it is {level}"
            )


def _is_same(broker: BrokerState, request: RegisterBroker) -> bool:
    return (
        broker.incarnation_id == request.incarnation_id
        and broker.endpoints == request.endpoints
        and broker.rack == request.rack
        and broker.directory_ids == request.directory_ids
        and broker.features == request.features
    )


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerState:
    """Return a broker. Raise BrokerIdNotRegistered or, for another incarnation, StaleBrokerEpoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpoch(f"broker {broker_id} has epoch {broker.broker_epoch}, not {broker_epoch}")
    return broker


def decide_heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeat,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
    reads_on: bool = False,
) -> Decision:
    """Keep, fence or unfence a broker, or begin its controlled shutdown.

    A broker with a failed log directory is fenced, since only the broker knows which partitions lay there. A broker
    that reports its log as damaged leaves the ISR, before it is unfenced. `reads_on`: metadata may name eligible
    leaders, so a damaged replica may lead for reading until another comes back.
    """
    lost_replicas = LostReplicas(request.broker_id, frozenset(request.damaged), reads_on)
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    caught_up = request.metadata_offset > broker.broker_epoch
    want_fence = request.want_fence or bool(request.failed_directory_ids)
    if broker.fenced:
        if request.want_shutdown:
            return Decision(reply=BrokerHeartbeatReply(caught_up, True, True))
        if want_fence or not caught_up:
            return Decision(reply=BrokerHeartbeatReply(caught_up, True, False))
        return _unfence(
            image,
            broker,
            availability=availability,
            unclean=unclean,
            index=index,
            lost_replicas=lost_replicas,
        )
    if want_fence:
        decision = decide_fence_brokers(
            image, {broker.broker_id: "it asked"}, availability=availability, unclean=unclean, index=index
        )
        return decision._replace(
            reply=decision.reply or BrokerHeartbeatReply(caught_up, True, request.want_shutdown)
        )
    if request.want_shutdown:
        return _shut_down(
            image, broker, availability=availability, unclean=unclean, index=index, caught_up=caught_up
        )
    reply = BrokerHeartbeatReply(caught_up, False, False)
    if not request.damaged:
        return Decision(_refilled(image, broker, index), reply)
    # The next heartbeat reports what has no room here.
    updates = update_all_partitions(image, availability, unclean, index=index, lost_replicas=lost_replicas)
    return Decision(updates.records, reply, updates.events)


def _refilled(image: MetadataImage, broker: BrokerState, index: PartitionIndex) -> tuple[BrokerChanged, ...]:
    """Return the record that a broker has all records of a lost disk again: all its replicas are in sync."""
    if not broker.disk_lost:
        return ()
    here = index.at(image)
    in_sync = here.in_sync_on(broker.broker_id)
    # A lost ISR keeps its last member.
    if len(in_sync) < here.replicas[broker.broker_id] or not in_sync.isdisjoint(here.without_leader):
        return ()
    return (BrokerChanged(broker.broker_id, broker.broker_epoch, disk_lost=False),)


def _unfence(
    image: MetadataImage,
    broker: BrokerState,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
    lost_replicas: LostReplicas,
) -> Decision:
    broker_id = broker.broker_id
    record = BrokerChanged(broker_id, broker.broker_epoch, fenced=False, in_controlled_shutdown=False)
    updates = update_all_partitions(
        image,
        availability.with_alive(broker_id),
        unclean,
        index=index,
        lost_replicas=lost_replicas,
    )
    if lost_replicas.damaged and not updates.complete:
        # The batch after this one would elect the damaged replicas that have no room here: they leave their ISRs first.
        left = update_all_partitions(image, availability, unclean, index=index, lost_replicas=lost_replicas)
        if left.records:
            return Decision(left.records, DECIDE_AGAIN, left.events)
    event = LogEvent(
        "info", "controller_unfenced_broker", {"broker_id": broker_id, "broker_epoch": broker.broker_epoch}
    )
    # A leader must not be fenced: unfence first, update the rest afterwards.
    more = () if updates.complete else (UPDATE_ALL_PARTITIONS,)
    return Decision(
        (record, *updates.records),
        BrokerHeartbeatReply(True, False, False),
        (event, *updates.events, *more),
    )


def decide_fence_brokers(
    image: MetadataImage,
    reasons: Mapping[int, str],
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
) -> Decision:
    """Fence brokers: they lose all leaderships, and leave every ISR with a live member."""
    brokers = [image.brokers[broker_id] for broker_id in reasons if broker_id in image.brokers]
    brokers = [broker for broker in brokers if not broker.fenced]
    if not brokers:
        return Decision()
    updates = update_all_partitions(image, availability.with_fenced(reasons.keys()), unclean, index=index)
    if not updates.complete:
        return Decision(updates.records, DECIDE_AGAIN, updates.events)
    fencing = tuple(BrokerChanged(each.broker_id, each.broker_epoch, fenced=True) for each in brokers)
    events = tuple(
        LogEvent(
            "warning",
            "controller_fenced_broker",
            {"broker_id": each.broker_id, "reason": reasons[each.broker_id]},
        )
        for each in brokers
    )
    return Decision((*updates.records, *fencing), None, (*events, *updates.events))


def _shut_down(
    image: MetadataImage,
    broker: BrokerState,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
    caught_up: bool,
) -> Decision:
    updates = update_all_partitions(
        image, availability.with_shutting_down(broker.broker_id), unclean, index=index
    )
    records: tuple[Record, ...] = updates.records
    events = updates.events
    if not broker.in_controlled_shutdown:
        records = (
            BrokerChanged(broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True),
            *records,
        )
        fields = {"broker_id": broker.broker_id, "partitions_moved": len(updates.records)}
        events = (LogEvent("info", "controlled_shutdown_began", fields), *events)
    may_stop = updates.complete and not _waits_for_another(image, broker.broker_id, availability, index)
    more = () if updates.complete else (UPDATE_ALL_PARTITIONS,)
    return Decision(records, BrokerHeartbeatReply(caught_up, False, may_stop), (*events, *more))


def _waits_for_another(
    image: MetadataImage, broker_id: int, availability: BrokerAvailability, index: PartitionIndex
) -> bool:
    """Return whether the broker leads a partition that another broker may lead soon.

    A suspected member may after a heartbeat, and an eligible leader in service once it is in sync. Kafka elects an
    eligible leader at once, which loses the records of acks=1 that it has not fetched. A broker does not wait for ever:
    when it stops, the eligible leader takes over all the same.
    """
    here = index.at(image)
    doubtful = availability.suspected - {broker_id}
    led = here.in_sync_on(broker_id)
    for name, number in led if doubtful else led & here.with_eligible:
        state = image.topics[name].partitions[number]
        others = set(state.isr) - {broker_id}
        may_come = not (doubtful.isdisjoint(others) and availability.alive.isdisjoint(state.eligible))
        if may_come and state.leader == broker_id and availability.alive.isdisjoint(others):
            return True
    return False


def decide_unregister(
    image: MetadataImage,
    request: UnregisterBroker,
    *,
    availability: BrokerAvailability,
    unclean: UncleanRule,
    index: PartitionIndex,
) -> Decision:
    """Unregister a broker, running or not: it loses all leaderships and leaves every ISR with a live member.

    It is no eligible leader any more, and a running broker does not take part until its process restarts, as in Apache
    Kafka. If no other replica has all records of a partition, its registration stays known. It may lead again if it
    returns with its log directories, and with no older copy of them.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"broker {request.broker_id} is not registered")
    without_it = availability.with_fenced({broker.broker_id})
    updates: PartitionUpdates = update_all_partitions(
        image,
        without_it,
        unclean,
        index=index,
        lost_replicas=_replaceable(image, broker.broker_id, without_it, index),
    )
    if not updates.complete:
        return Decision(updates.records, DECIDE_AGAIN, updates.events)
    is_last = bool(index.at(apply_records(image, updates.records)).trusted_on(broker.broker_id))
    record = BrokerUnregistered(
        broker.broker_id, broker.broker_epoch, broker.directory_ids if is_last else ()
    )
    fields = {"broker_id": broker.broker_id, "was_running": not broker.fenced}
    event = LogEvent("info", "controller_unregistered_broker", fields)
    return Decision((*updates.records, record), Done(), (*updates.events, event))


def _replaceable(
    image: MetadataImage, broker_id: int, availability: BrokerAvailability, index: PartitionIndex
) -> LostReplicas:
    """Return a broker's replicas in sync beside a live member, or eligible: other replicas have what they have.

    The only eligible leader of a lost ISR is not among them.
    """
    return LostReplicas(
        broker_id,
        frozenset(
            (topic.topic_id, name.partition)
            for name in index.at(image).trusted_on(broker_id)
            for topic in (image.topics[name.topic],)
            for state in (topic.partitions[name.partition],)
            if state.trusted != (broker_id,)
            and (broker_id in state.eligible or not availability.alive.isdisjoint(state.isr))
        ),
    )


def decide_allocate_producer_ids(image: MetadataImage, request: AllocateProducerIds) -> Decision:
    """Allocate the next block of producer ids to a broker (KIP-730). A block in a lost reply is not allocated again."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsAllocated(request.broker_id, first + BLOCK_SIZE)
    return Decision((record,), ProducerIdBlock(first, BLOCK_SIZE))
