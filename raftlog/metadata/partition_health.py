"""The health of a partition's replication, by one rule for health checks, metrics and the command line."""

from __future__ import annotations

from typing import NamedTuple

from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import PartitionState


class PartitionHealth(NamedTuple):
    """The health of one partition's replication."""

    under_replicated: bool
    """Some target replica is not in the ISR."""
    under_min_isr: bool
    """acks=all is refused, by the leader or because there is no leader."""
    at_min_isr: bool
    """One more failed replica makes it under min ISR."""


def partition_health(state: PartitionState, min_insync: int) -> PartitionHealth:
    """Judge one partition; `min_insync` is the topic's min.insync.replicas."""
    under = not _serves(state) or state.is_under_min_isr(min_insync)
    at = not under and len(state.isr) == state.effective_min_isr(min_insync)
    return PartitionHealth(is_under_replicated(state), under, at)


def is_under_replicated(state: PartitionState) -> bool:
    """Return whether some target replica is not in the ISR, or the partition is offline."""
    return not _serves(state) or any(each not in state.isr for each in state.target_replicas)


def _serves(state: PartitionState) -> bool:
    return state.leader != NO_BROKER and not state.isr_lost
