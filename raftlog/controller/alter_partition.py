"""ISR changes that partition leaders ask for (KIP-497), fenced by epochs of leader, partition and brokers (KIP-903)."""

from __future__ import annotations

from raftlog.base.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.base.machine import Decision
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.brokers import check_broker_epoch
from raftlog.controller.decisions import MAX_NAMED, UPDATE_ALL_PARTITIONS, LogEvent
from raftlog.controller.eligible_leaders import MinInsync, with_eligible_leaders
from raftlog.controller.reassignment_completion import complete_reassignment
from raftlog.metadata.broker_requests import AlterPartition, AlterPartitionReply, IsrChange, IsrChangeResult
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.metadata_records import PartitionChanged
from raftlog.metadata.record_replay import changed


def decide_alter_partition(
    image: MetadataImage,
    request: AlterPartition,
    availability: BrokerAvailability,
    min_insync: MinInsync | None = None,
) -> Decision:
    """Answer every ISR change of one leader on its own; accepted changes leave in one batch.

    A change may end a reassignment, which is more than the leader asked for: its response says to wait for the
    metadata.
    """
    leader = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChanged] = []
    results: list[IsrChangeResult] = []
    completed: list[str] = []
    seen = set()
    for change in request.changes:
        try:
            if (change.topic_id, change.partition) in seen:
                raise InvalidRequest("a request may change each partition only once")
            seen.add((change.topic_id, change.partition))
            state = _accepted(image, change, request.broker_id)
        except KafkaError as error:
            results.append(IsrChangeResult(change.topic_id, change.partition, error.code))
            continue
        members = {member.broker_id for member in change.isr}
        if members != set(state.isr):
            isr = state.in_replica_order(members)
            record = PartitionChanged(change.topic_id, change.partition, isr=isr)
            record = with_eligible_leaders(state, record, image.topic_names[change.topic_id], min_insync)
            records.append(record)
            state = changed(state, record)
            end = complete_reassignment(change.topic_id, change.partition, state, availability)
            if end is not None:
                records.append(end)
                completed.append(f"{image.topic_names[change.topic_id]}-{change.partition}")
                results.append(IsrChangeResult(change.topic_id, change.partition, InvalidUpdateVersion.code))
                continue
        results.append(_accepted_result(change, state))
    effects: list[object] = []
    if completed:
        fields = {"count": len(completed), "partitions": completed[:MAX_NAMED]}
        effects.append(LogEvent("info", "reassignment_completed", fields))
    if records and (leader.in_controlled_shutdown or leader.broker_id in availability.draining):
        effects.append(
            UPDATE_ALL_PARTITIONS
        )  # a new member may take over from a broker that only waits to hand over its leaderships
    return Decision(tuple(records), AlterPartitionReply(tuple(results)), tuple(effects))


def _accepted(image: MetadataImage, change: IsrChange, broker_id: int) -> PartitionState:
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        raise UnknownTopicId()
    if not 0 <= change.partition < len(topic.partitions):
        raise UnknownTopicOrPartition()
    state = topic.partitions[change.partition]
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        # The leader knows more than this controller's tail, so another controller is active.
        raise NotController()
    if change.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch()
    if broker_id != state.leader:
        raise InvalidRequest("only the leader may change the ISR")
    if change.partition_epoch < state.partition_epoch:
        raise InvalidUpdateVersion()
    if state.isr_lost:
        raise InvalidRequest(
            "the ISR is lost: its last member lacks committed records, so no replica is in sync"
        )
    _check_isr(image, state, change)
    return state


def _check_isr(image: MetadataImage, state: PartitionState, change: IsrChange) -> None:
    members = [member.broker_id for member in change.isr]
    if len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        raise InvalidRequest(f"ISR {members} is not a subset of the replicas {list(state.replicas)}")
    if state.leader not in members:
        raise InvalidRequest("the ISR must contain the leader")
    for member in change.isr:
        broker = image.brokers.get(member.broker_id)
        if broker is None or member.broker_epoch not in (-1, broker.broker_epoch):
            raise IneligibleReplica()
        # A member of the ISR may stay: only joining requires a broker in service (KIP-841).
        if member.broker_id not in state.isr and (broker.fenced or broker.in_controlled_shutdown):
            raise IneligibleReplica()


def _accepted_result(change: IsrChange, state: PartitionState) -> IsrChangeResult:
    return IsrChangeResult(
        topic_id=change.topic_id,
        partition=change.partition,
        error_code=0,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        eligible=state.eligible,
    )
