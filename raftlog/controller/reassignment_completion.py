"""The end of a reassignment (KIP-455): when it may come, and the one record that it is.

The rule: once all target replicas are in the ISR, the others leave the replicas and the ISR. If one of those led, the
same record elects a target replica. Until then everything that holds the partition goes on holding it. The end waits
while the leader is to go and no replica that stays is known to be alive: it must take no partition offline. Nobody is
asked and nothing is remembered: whoever changes a partition looks whether this is the end.
"""

from __future__ import annotations

from uuid import UUID

from raftlog.controller.broker_availability import BrokerAvailability, elect_leader
from raftlog.metadata.image import PartitionState, without
from raftlog.metadata.metadata_records import UNCHANGED_LEADER, PartitionChanged


def complete_reassignment(
    topic_id: UUID, index: int, state: PartitionState, standing: BrokerAvailability
) -> PartitionChanged | None:
    """Return the record that ends a partition's reassignment, or None if there is none or it cannot end yet."""
    if not state.is_reassigned or state.isr_lost:
        return None
    target = state.target_replicas
    if not set(target) <= set(state.isr):
        return None
    isr = without(state.isr, state.removing_replicas)
    leader = UNCHANGED_LEADER
    if state.leader not in target:
        leader = elect_leader(target, isr, standing)
        if leader not in standing.alive:
            return None
    return PartitionChanged(
        topic_id,
        index,
        leader=leader,
        isr=None if isr == state.isr else isr,
        replicas=target,
        adding_replicas=(),
        removing_replicas=(),
    )
