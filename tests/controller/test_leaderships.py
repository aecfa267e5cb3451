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


@pytest.fixture
def world() -> ControllerCluster:
    world = ControllerCluster(controllers=2)
    world.start(1, 2, 3)
    world.assign("t", (1, 2, 3), (2, 3, 1), (1, 3, 2))
    return world


def leaders(world: ControllerCluster, topic: str = "t") -> list[int]:
    return [state.leader for state in world.image.topics[topic].partitions]


def transfer(world: ControllerCluster, partition: int, leader: int, topic: str = "t") -> int:
    wanted = LeadershipTransfer(topic, partition, leader)
    return int(world.ask(TransferLeaderships((wanted,))).results[0].error_code)


def test_leadership_goes_to_the_named_replica(world: ControllerCluster) -> None:
    """If it is in sync and in service; asked again, it is done already."""
    epoch = world.partition("t").leader_epoch
    assert transfer(world, 0, 3) == 0
    assert transfer(world, 0, 3) == 0
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (3, epoch + 1)


def test_nobody_else_is_made_leader(world: ControllerCluster) -> None:
    """Not one that has no replica, is behind, or is not there."""
    world.start(4)
    world.alter("t", (1, 2))
    assert transfer(world, 0, 4) == InvalidReplicaAssignment.code
    assert transfer(world, 0, 3) == EligibleLeadersNotAvailable.code
    world.active.peer_lost(2, world.now)
    assert transfer(world, 0, 2) == EligibleLeadersNotAvailable.code
    assert transfer(world, 7, 1) == UnknownTopicOrPartition.code
    assert transfer(world, 0, 1, "x") == UnknownTopicOrPartition.code
    assert leaders(world) == [1, 2, 1]


def test_drained_broker_leads_nothing(world: ControllerCluster) -> None:
    """Its leaderships go in one batch, and neither elections nor new topics give it others; it stays in sync."""
    assert world.ask(DrainBroker(1)) == BrokerDrain(1, True, 0)
    assert leaders(world) == [2, 2, 3]
    assert world.partition("t").isr == (1, 2, 3)
    assert world.ask(ElectLeaders(PREFERRED, (("t", 0),))).results[0].error_code == (
        PreferredLeaderNotAvailable.code
    )
    assert transfer(world, 0, 1) == EligibleLeadersNotAvailable.code
    world.create("u", 9, 3)
    assert 1 not in leaders(world, "u")
    world.assign("v", (1, 2))
    assert leaders(world, "v") == [2]
    world.advance(301, heartbeats=(1, 2, 3))
    assert leaders(world) == [2, 2, 3]


def test_drained_broker_leads_what_nobody_else_can_and_hands_over(world: ControllerCluster) -> None:
    """Drain is a wish: availability comes first."""
    world.alter("t", (1,))
    assert world.ask(DrainBroker(1)) == BrokerDrain(1, True, 1)
    assert leaders(world) == [1, 2, 3]
    world.alter("t", (1, 3))
    assert leaders(world) == [3, 2, 3]
    world.die(2)
    world.die(3)
    assert leaders(world) == [1, 1, 1]
    world.come_back(3)
    world.alter("t", (1, 3))
    assert leaders(world) == [3, 1, 1]


def test_drain_outlives_controller_and_restart(world: ControllerCluster) -> None:
    """Most drains are there for a restart; it ends when somebody ends it."""
    world.ask(DrainBroker(1))
    world.die(1)
    world.restart_from_snapshot(2)
    world.elect(2)
    world.come_back(1)
    assert world.image.brokers[1].draining
    for broker_id in (2, 3):
        world.heartbeat(broker_id)
    for partition in range(3):
        world.alter("t", (1, 2, 3), partition=partition)
    assert 1 not in leaders(world)
    assert world.ask(DrainBroker(1, False)) == BrokerDrain(1, False, 0)
    world.ask(ElectLeaders(PREFERRED))
    assert leaders(world) == [1, 2, 1]


def test_drain_of_nobody_is_refused(world: ControllerCluster) -> None:
    """It would be forgotten."""
    assert world.ask(DrainBroker(9)).error_code == BrokerIdNotRegistered.code


def test_another_broker_may_carry_the_request(world: ControllerCluster) -> None:
    """The node that an operator talks to forwards it."""
    assert world.ask(DrainBroker(1), peer=2) == BrokerDrain(1, True, 0)
