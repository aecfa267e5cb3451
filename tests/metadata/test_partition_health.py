"""Claims about what is too few in sync: one rule for the leader, health, metrics and the command line."""

from __future__ import annotations

import pytest

from raftlog.metadata.image import PartitionState
from raftlog.metadata.partition_health import PartitionHealth, partition_health

FINE = PartitionHealth(False, False, False)


@pytest.mark.parametrize(
    ("state", "min_insync", "health"),
    [
        (PartitionState((1, 2, 3), (1, 2, 3), 1), 2, FINE),
        (PartitionState((1, 2, 3), (1, 2), 1), 2, FINE._replace(under_replicated=True, at_min_isr=True)),
        (PartitionState((1, 2, 3), (1,), 1), 2, FINE._replace(under_replicated=True, under_min_isr=True)),
        (PartitionState((1, 2, 3), (1, 2, 3), -1), 2, PartitionHealth(True, True, False)),
        (PartitionState((1, 2), (1, 2), 1, isr_lost=True), 1, PartitionHealth(True, True, False)),
        # one replica cannot be two, and its leader takes acks=all
        (PartitionState((1,), (1,), 1), 2, FINE._replace(at_min_isr=True)),
        # from one replica to three: what was enough before stays enough while the others catch up
        (
            PartitionState((1, 2, 3), (1,), 1, adding_replicas=(2, 3)),
            2,
            FINE._replace(under_replicated=True, at_min_isr=True),
        ),
        (
            PartitionState((1, 2, 3), (1, 2), 1, adding_replicas=(2, 3)),
            2,
            FINE._replace(under_replicated=True),
        ),
        # from three to 1: the two leaving replicas still count until they are gone
        (
            PartitionState((1, 2, 3), (1,), 1, removing_replicas=(2, 3)),
            2,
            FINE._replace(under_min_isr=True),
        ),
    ],
)
def test_a_partition_stands_as_its_leader_takes_it(
    state: PartitionState, min_insync: int, health: PartitionHealth
) -> None:
    """acks=all is refused below min.insync.replicas, or below what a partition had when its reassignment began."""
    assert partition_health(state, min_insync) == health
    if state.leader >= 0:
        assert state.is_under_min_isr(min_insync) == health.under_min_isr


def test_a_leader_may_know_a_newer_isr_than_the_metadata_shows() -> None:
    """The controller's answer comes before the image."""
    state = PartitionState((1, 2, 3), (1, 2, 3), 1)
    assert not state.is_under_min_isr(2)
    assert state.is_under_min_isr(2, (1,))
