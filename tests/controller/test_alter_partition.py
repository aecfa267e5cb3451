"""AlterPartition: who may change an ISR, and to what (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog.metadata.controller_api import AlterPartition, ErrorReply, IsrChange, IsrMember
from tests.controller.controller_cluster import ControllerCluster


@pytest.fixture
def world() -> ControllerCluster:
    """Topic t with leader 1 and isr 1, 2, 3."""
    made = ControllerCluster()
    made.start(1, 2, 3, 4)
    made.assign("t", (1, 2, 3), (2, 1, 3))
    return made


def test_shrink_and_expand(world: ControllerCluster) -> None:
    """The answer carries the new ISR and partition epoch; the leader epoch stays."""
    topic_id = world.image.topics["t"].topic_id
    shrunk = world.alter("t", (1, 2))
    assert (shrunk.topic_id, shrunk.error_code, shrunk.isr) == (topic_id, 0, (1, 2))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (1, 0, 1)
    assert world.alter("t", (3, 2, 1)).isr == (1, 2, 3)
    assert world.partition("t").partition_epoch == 2


def test_unchanged_isr_writes_nothing(world: ControllerCluster) -> None:
    """Asking for what is there is answered with the state as it is."""
    batches = len(world.journal)
    assert world.alter("t", (3, 1, 2)).partition_epoch == 0
    assert len(world.journal) == batches


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"partition_epoch": 0}, InvalidUpdateVersion),
        ({"partition_epoch": 9}, NotController),
        ({"leader_epoch": 9}, NotController),
        ({"leader_epoch": 0}, FencedLeaderEpoch),
        ({"sender": 2}, InvalidRequest),
        ({"isr": (2, 3)}, InvalidRequest),
        ({"isr": (1, 1)}, InvalidRequest),
        ({"isr": (1, 4)}, InvalidRequest),
        ({"isr": ()}, InvalidRequest),
        ({"isr": (1, 2, 3), "member_epochs": {3: 0}}, IneligibleReplica),
    ],
)
def test_change_is_fenced_by_every_epoch(
    world: ControllerCluster, overrides: dict[str, Any], error: type[KafkaError]
) -> None:
    """Stale or foreign changes are refused and change nothing."""
    world.die(1)
    world.come_back(1)
    state = world.partition("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
    rename = {1: 2, 2: 1, 3: 3, 4: 4}
    members = tuple(rename[each] for each in overrides.pop("isr", (1, 3)))
    if "sender" in overrides:
        overrides["sender"] = 1
    result = world.alter("t", members, **overrides)
    assert result.error_code == error.code
    assert world.partition("t") == state


def test_broker_out_of_service_does_not_come_in(world: ControllerCluster) -> None:
    """A fenced or leaving broker is ineligible; who is in already does not block others (KIP-841)."""
    world.die(3)
    assert world.alter("t", (1, 2, 3)).error_code == IneligibleReplica.code
    world.come_back(3)
    assert world.alter("t", (1, 2, 3)).error_code == 0
    world.heartbeat(3, want_shutdown=True)
    assert world.alter("t", (1, 2, 3)).error_code == IneligibleReplica.code


def test_replica_of_an_earlier_incarnation_does_not_come_in(world: ControllerCluster) -> None:
    """The broker epoch that the leader saw fetch must be the current one (KIP-903, H7)."""
    seen = world.image.brokers[3].broker_epoch
    world.die(3)
    world.come_back(3, wiped=True)
    assert world.alter("t", (1, 2, 3), member_epochs={3: seen}).error_code == IneligibleReplica.code
    assert world.alter("t", (1, 2, 3), member_epochs={3: -1}).error_code == 0


def test_unknown_partitions_are_told_apart(world: ControllerCluster) -> None:
    """Unknown id, unknown number, each on its own; the others of the request succeed."""
    broker = world.image.brokers[1]
    topic_id = world.image.topics["t"].topic_id
    members = (IsrMember(1, broker.broker_epoch),)
    changes = (
        IsrChange(UUID(int=9), 0, 0, 0, members),
        IsrChange(topic_id, 7, 0, 0, members),
        IsrChange(topic_id, 0, 0, 0, members),
        IsrChange(topic_id, 0, 0, 0, members),
    )
    results = world.ask(AlterPartition(1, broker.broker_epoch, changes)).results
    assert [each.error_code for each in results] == [
        UnknownTopicId.code,
        UnknownTopicOrPartition.code,
        0,
        InvalidRequest.code,
    ]


def test_old_incarnation_changes_nothing(world: ControllerCluster) -> None:
    """The whole request is fenced by the broker's own epoch (H5)."""
    assert world.ask(AlterPartition(1, 0, ())).error_code == StaleBrokerEpoch.code
    assert world.ask(AlterPartition(9, 0, ())).error_code == BrokerIdNotRegistered.code
    assert isinstance(world.ask(AlterPartition(9, 0, ())), ErrorReply)


def test_a_replica_that_joins_takes_over_from_a_leader_that_is_leaving(world: ControllerCluster) -> None:
    """Controlled shutdown (KIP-631): the only member in sync goes on leading until another one caught up."""
    world.alter("t", (1,))
    world.heartbeat(1, want_shutdown=True)
    assert world.partition("t").leader == 1
    assert world.alter("t", (1, 2)).error_code == 0
    world.advance(0.1, heartbeats=(2, 3, 4))
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
