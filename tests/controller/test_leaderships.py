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


def leaders(controllers: ControllerCluster, topic: str = "t") -> list[int]:
    return [state.leader for state in controllers.image.topics[topic].partitions]


def transfer(controllers: ControllerCluster, partition: int, leader: int, topic: str = "t") -> int:
    wanted = LeadershipTransfer(topic, partition, leader)
    return int(controllers.ask(TransferLeaderships((wanted,))).results[0].error_code)


def test_leadership_goes_to_the_named_replica(controllers: ControllerCluster) -> None:
    """If it is in sync and in service; asked again, it is done already."""
    epoch = controllers.partition("t").leader_epoch
    assert transfer(controllers, 0, 3) == 0
    assert transfer(controllers, 0, 3) == 0
    assert (controllers.partition("t").leader, controllers.partition("t").leader_epoch) == (3, epoch + 1)


def test_only_an_in_sync_replica_is_made_leader(controllers: ControllerCluster) -> None:
    """Not a broker that has no replica, is behind, or is away."""
    controllers.start(4)
    controllers.alter("t", (1, 2))
    assert transfer(controllers, 0, 4) == InvalidReplicaAssignment.code
    assert transfer(controllers, 0, 3) == EligibleLeadersNotAvailable.code
    controllers.active.peer_lost(2, controllers.now)
    assert transfer(controllers, 0, 2) == EligibleLeadersNotAvailable.code
    assert transfer(controllers, 7, 1) == UnknownTopicOrPartition.code
    assert transfer(controllers, 0, 1, "x") == UnknownTopicOrPartition.code
    assert leaders(controllers) == [1, 2, 1]


def test_drained_broker_leads_nothing(controllers: ControllerCluster) -> None:
    """Its leaderships go in one batch, and neither elections nor new topics give it others; it stays in sync."""
    assert controllers.ask(DrainBroker(1)) == BrokerDrain(1, True, 0)
    assert leaders(controllers) == [2, 2, 3]
    assert controllers.partition("t").isr == (1, 2, 3)
    assert controllers.ask(ElectLeaders(PREFERRED, (("t", 0),))).results[0].error_code == (
        PreferredLeaderNotAvailable.code
    )
    assert transfer(controllers, 0, 1) == EligibleLeadersNotAvailable.code
    controllers.create("u", 9, 3)
    assert 1 not in leaders(controllers, "u")
    controllers.assign("v", (1, 2))
    assert leaders(controllers, "v") == [2]
    controllers.advance(301, heartbeats=(1, 2, 3))
    assert leaders(controllers) == [2, 2, 3]


def test_drained_broker_leads_what_no_other_can_and_hands_over(controllers: ControllerCluster) -> None:
    """Drain is a wish: availability comes first."""
    controllers.alter("t", (1,))
    assert controllers.ask(DrainBroker(1)) == BrokerDrain(1, True, 1)
    assert leaders(controllers) == [1, 2, 3]
    controllers.alter("t", (1, 3))
    assert leaders(controllers) == [3, 2, 3]
    controllers.die(2)
    controllers.die(3)
    assert leaders(controllers) == [1, 1, 1]
    controllers.come_back(3)
    controllers.alter("t", (1, 3))
    assert leaders(controllers) == [3, 1, 1]


def test_drain_outlives_controller_and_restart(controllers: ControllerCluster) -> None:
    """Most drains are for a restart; a drain lasts until it is ended explicitly."""
    controllers.ask(DrainBroker(1))
    controllers.die(1)
    controllers.restart_from_snapshot(2)
    controllers.elect(2)
    controllers.come_back(1)
    assert controllers.image.brokers[1].draining
    for broker_id in (2, 3):
        controllers.heartbeat(broker_id)
    for partition in range(3):
        controllers.alter("t", (1, 2, 3), partition=partition)
    assert 1 not in leaders(controllers)
    assert controllers.ask(DrainBroker(1, False)) == BrokerDrain(1, False, 0)
    controllers.ask(ElectLeaders(PREFERRED))
    assert leaders(controllers) == [1, 2, 1]


def test_drain_of_an_unknown_broker_is_refused(controllers: ControllerCluster) -> None:
    """It would be forgotten."""
    assert controllers.ask(DrainBroker(9)).error_code == BrokerIdNotRegistered.code


def test_another_broker_may_carry_the_request(controllers: ControllerCluster) -> None:
    """The node that an operator talks to forwards it."""
    assert controllers.ask(DrainBroker(1), peer=2) == BrokerDrain(1, True, 0)
