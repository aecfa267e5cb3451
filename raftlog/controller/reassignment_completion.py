"""The end of a reassignment (KIP-455): its condition, and its record.

The rule: once all target replicas are in the ISR, the others leave the replicas and the ISR. If the leader is leaving,
the same record elects a target replica. Until then all replicas keep their data. Completion waits while the leader is
leaving and no remaining replica is known to be alive: it must not take a partition offline. There is no state: every
change of a partition checks this condition.
"""

from __future__ import annotations

from uuid import UUID

from raftlog.controller.broker_availability import BrokerAvailability, elect_leader
from raftlog.metadata.image import PartitionState, without
from raftlog.metadata.metadata_records import UNCHANGED_LEADER, PartitionChanged


def complete_reassignment(
    topic_id: UUID, index: int, state: PartitionState, availability: BrokerAvailability
) -> PartitionChanged | None:
    """Return the record that ends a partition's reassignment, or None if none is running or it cannot complete yet."""
    if not state.is_reassigned or state.isr_lost:
        return None
    target = state.target_replicas
    if not set(target) <= set(state.isr):
        return None
    isr = without(state.isr, state.removing_replicas)
    leader = UNCHANGED_LEADER
    if state.leader not in target:
        leader = elect_leader(target, isr, availability)
        if leader not in availability.alive:
            return None
    return PartitionChanged(
        topic_id,
        index,
        leader=leader,
        isr=None if isr == state.isr else isr,
        replicas=target,
        adding_replicas=(),
        removing_replicas=(),
        eligible=None
        if set(state.eligible) <= set(target)
        else without(state.eligible, state.removing_replicas),
    )
