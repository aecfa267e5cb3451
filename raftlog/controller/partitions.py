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
from raftlog.controller.brokers import current_broker
from raftlog.controller.decisions import Event
from raftlog.controller.settling import Settlement, UncleanRule, settle_without_leader
from raftlog.controller.standing import Standing
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.records import PartitionChanged
from raftlog.metadata.requests import AlterPartition, AlterPartitionReply, IsrChange, IsrChanged


def decide_alter_partition(
    image: MetadataImage, request: AlterPartition, standing: Standing, unclean: UncleanRule
) -> Decision:
    """Answer every ISR change of one leader on its own; those accepted leave in one batch.

    A leader that leaves itself out resigns: its log is damaged, so another member leads, or the ISR is lost.
    """
    current_broker(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChanged] = []
    events: list[Event] = []
    results: list[IsrChanged] = []
    seen = set()
    for change in request.changes:
        try:
            if (change.topic_id, change.partition) in seen:
                raise InvalidRequest("one change per partition in a request")
            seen.add((change.topic_id, change.partition))
            state = _accepted(image, change, request.broker_id)
        except KafkaError as error:
            results.append(IsrChanged(change.topic_id, change.partition, error.code))
            continue
        if all(member.broker_id != state.leader for member in change.isr):
            topic = image.topics[image.topic_names[change.topic_id]]
            settled = settle_without_leader(topic, change.partition, standing, unclean=unclean(topic.name))
            records += settled.records
            events += settled.events
            results.append(_resigned_result(change, state, settled))
            continue
        isr = _in_order(state, change)
        changed = isr != state.isr
        if changed:
            records.append(PartitionChanged(change.topic_id, change.partition, isr=isr))
        results.append(_accepted_result(change, state, isr, state.partition_epoch + changed))
    return Decision(tuple(records), AlterPartitionReply(tuple(results)), tuple(events))


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
        raise InvalidRequest("only the leader changes the isr")
    if change.partition_epoch < state.partition_epoch:
        raise InvalidUpdateVersion()
    _check_isr(image, state, change)
    return state


def _check_isr(image: MetadataImage, state: PartitionState, change: IsrChange) -> None:
    members = [member.broker_id for member in change.isr]
    if len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        raise InvalidRequest(f"isr {members} is not a set of the replicas {list(state.replicas)}")
    if state.leader not in members and set(members) != set(state.isr) - {state.leader}:
        raise InvalidRequest("a leader that resigns changes nothing else")
    for member in change.isr:
        broker = image.brokers.get(member.broker_id)
        if broker is None or member.broker_epoch not in (-1, broker.broker_epoch):
            raise IneligibleReplica()
        # Who is in the isr already may stay: only coming in needs a broker that is in service (KIP-841).
        if member.broker_id not in state.isr and (broker.fenced or broker.in_controlled_shutdown):
            raise IneligibleReplica()


def _in_order(state: PartitionState, change: IsrChange) -> tuple[int, ...]:
    wanted = {member.broker_id for member in change.isr}
    return state.isr if wanted == set(state.isr) else tuple(r for r in state.replicas if r in wanted)


def _accepted_result(
    change: IsrChange, state: PartitionState, isr: tuple[int, ...], partition_epoch: int
) -> IsrChanged:
    return IsrChanged(
        topic_id=change.topic_id,
        partition=change.partition,
        error_code=0,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=isr,
        partition_epoch=partition_epoch,
    )


def _resigned_result(change: IsrChange, state: PartitionState, settled: Settlement) -> IsrChanged:
    """Without a record nobody better may lead: the topic allows unclean elections, and this replica stays."""
    if not settled.records:
        return _accepted_result(change, state, state.isr, state.partition_epoch)
    leader = settled.records[0].leader
    return IsrChanged(
        change.topic_id, change.partition, 0, leader, state.leader_epoch + 1, (), state.partition_epoch + 1
    )
