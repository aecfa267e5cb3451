"""Leaderships that an operator moves: to a replica by name, or away from a broker."""

from __future__ import annotations

import pytest

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from raftlog.metadata.controller_api import (
    PREFERRED,
    BrokerDrain,
    DrainBroker,
    ElectLeaders,
    LeadershipTransfer,
    TransferLeaderships,
)
from tests.controller.controller_cluster import ControllerCluster

pytestmark = pytest.mark.brokers(1, 2, 3, controllers=2, t=((1, 2, 3), (2, 3, 1), (1, 3, 2)))


def leaders(cluster: ControllerCluster, topic: str = "t") -> list[int]:
    return [state.leader for state in cluster.image.topics[topic].partitions]


def transfer(cluster: ControllerCluster, partition: int, leader: int, topic: str = "t") -> int:
    wanted = LeadershipTransfer(topic, partition, leader)
    return int(cluster.ask(TransferLeaderships((wanted,))).results[0].error_code)


def test_leadership_goes_to_the_named_replica(cluster: ControllerCluster) -> None:
    """If it is in sync and in service; asked again, it is done already."""
    epoch = cluster.partition("t").leader_epoch
    assert transfer(cluster, 0, 3) == 0
    assert transfer(cluster, 0, 3) == 0
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (3, epoch + 1)


def test_only_an_in_sync_replica_is_made_leader(cluster: ControllerCluster) -> None:
    """Not a broker that has no replica, is behind, or is away."""
    cluster.start(4)
    cluster.alter("t", (1, 2))
    assert transfer(cluster, 0, 4) == InvalidReplicaAssignment.code
    assert transfer(cluster, 0, 3) == EligibleLeadersNotAvailable.code
    cluster.active.peer_lost(2, cluster.now)
    assert transfer(cluster, 0, 2) == EligibleLeadersNotAvailable.code
    assert transfer(cluster, 7, 1) == UnknownTopicOrPartition.code
    assert transfer(cluster, 0, 1, "x") == UnknownTopicOrPartition.code
    assert leaders(cluster) == [1, 2, 1]


def test_drained_broker_leads_nothing(cluster: ControllerCluster) -> None:
    """Its leaderships go in one batch, and neither elections nor new topics give it others; it stays in sync."""
    assert cluster.ask(DrainBroker(1)) == BrokerDrain(1, True, 0)
    assert leaders(cluster) == [2, 2, 3]
    assert cluster.partition("t").isr == (1, 2, 3)
    assert cluster.ask(ElectLeaders(PREFERRED, (("t", 0),))).results[0].error_code == (
        PreferredLeaderNotAvailable.code
    )
    assert transfer(cluster, 0, 1) == EligibleLeadersNotAvailable.code
    cluster.create("u", 9, 3)
    assert 1 not in leaders(cluster, "u")
    cluster.assign("v", (1, 2))
    assert leaders(cluster, "v") == [2]
    cluster.advance(301, heartbeats=(1, 2, 3))
    assert leaders(cluster) == [2, 2, 3]


def test_drained_broker_leads_what_no_other_can_and_hands_over(cluster: ControllerCluster) -> None:
    """Drain is a wish: availability comes first."""
    cluster.alter("t", (1,))
    assert cluster.ask(DrainBroker(1)) == BrokerDrain(1, True, 1)
    assert leaders(cluster) == [1, 2, 3]
    cluster.alter("t", (1, 3))
    assert leaders(cluster) == [3, 2, 3]
    cluster.die(2)
    cluster.die(3)
    assert leaders(cluster) == [1, 1, 1]
    cluster.come_back(3)
    cluster.alter("t", (1, 3))
    assert leaders(cluster) == [3, 1, 1]


def test_drain_outlives_controller_and_restart(cluster: ControllerCluster) -> None:
    """Most drains are for a restart; a drain lasts until it is ended explicitly."""
    cluster.ask(DrainBroker(1))
    cluster.die(1)
    cluster.restart_from_snapshot(2)
    cluster.elect(2)
    cluster.come_back(1)
    assert cluster.image.brokers[1].draining
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)
    for partition in range(3):
        cluster.alter("t", (1, 2, 3), partition=partition)
    assert 1 not in leaders(cluster)
    assert cluster.ask(DrainBroker(1, False)) == BrokerDrain(1, False, 0)
    cluster.ask(ElectLeaders(PREFERRED))
    assert leaders(cluster) == [1, 2, 1]


def test_drain_of_an_unknown_broker_is_refused(cluster: ControllerCluster) -> None:
    """It would be forgotten."""
    assert cluster.ask(DrainBroker(9)).error_code == BrokerIdNotRegistered.code


def test_another_broker_may_carry_the_request(cluster: ControllerCluster) -> None:
    """The node that an operator talks to forwards it."""
    assert cluster.ask(DrainBroker(1), peer=2) == BrokerDrain(1, True, 0)
