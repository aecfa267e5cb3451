"""AlterPartition: which brokers may change an ISR, and to what (KIP-497, KIP-841, KIP-903)."""

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
from raftlog.metadata.broker_requests import AlterPartition, IsrChange, IsrMember
from raftlog.metadata.controller_api import ErrorReply
from tests.controller.controller_cluster import ControllerCluster

pytestmark = pytest.mark.brokers(1, 2, 3, 4, t=((1, 2, 3), (2, 1, 3)))


def test_an_isr_shrinks_and_expands_within_a_leader_epoch(controllers: ControllerCluster) -> None:
    """The answer carries the new ISR and partition epoch; the leader epoch stays."""
    topic_id = controllers.image.topics["t"].topic_id
    shrunk = controllers.alter("t", (1, 2))
    assert (shrunk.topic_id, shrunk.error_code, shrunk.isr) == (topic_id, 0, (1, 2))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (1, 0, 1)
    assert controllers.alter("t", (3, 2, 1)).isr == (1, 2, 3)
    assert controllers.partition("t").partition_epoch == 2


def test_unchanged_isr_writes_nothing(controllers: ControllerCluster) -> None:
    """Asking for what is there is answered with the state as it is."""
    batches = len(controllers.journal)
    assert controllers.alter("t", (3, 1, 2)).partition_epoch == 0
    assert len(controllers.journal) == batches


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
    controllers: ControllerCluster, overrides: dict[str, Any], error: type[KafkaError]
) -> None:
    """Stale or foreign changes are refused without effect."""
    controllers.die(1)
    controllers.come_back(1)
    state = controllers.partition("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
    rename = {1: 2, 2: 1, 3: 3, 4: 4}
    members = tuple(rename[each] for each in overrides.pop("isr", (1, 3)))
    if "sender" in overrides:
        overrides["sender"] = 1
    result = controllers.alter("t", members, **overrides)
    assert result.error_code == error.code
    assert controllers.partition("t") == state


def test_broker_out_of_service_does_not_come_in(controllers: ControllerCluster) -> None:
    """A fenced or leaving broker is ineligible; a present member does not block others (KIP-841)."""
    controllers.die(3)
    assert controllers.alter("t", (1, 2, 3)).error_code == IneligibleReplica.code
    controllers.come_back(3)
    assert controllers.alter("t", (1, 2, 3)).error_code == 0
    controllers.heartbeat(3, want_shutdown=True)
    assert controllers.alter("t", (1, 2, 3)).error_code == IneligibleReplica.code


def test_replica_of_an_earlier_incarnation_does_not_come_in(controllers: ControllerCluster) -> None:
    """The broker epoch that the leader saw fetch must be current (KIP-903)."""
    seen = controllers.image.brokers[3].broker_epoch
    controllers.die(3)
    controllers.come_back(3, wiped=True)
    assert controllers.alter("t", (1, 2, 3), member_epochs={3: seen}).error_code == IneligibleReplica.code
    assert controllers.alter("t", (1, 2, 3), member_epochs={3: -1}).error_code == 0


def test_unknown_partitions_have_their_own_errors(controllers: ControllerCluster) -> None:
    """Unknown id, unknown number, each on its own; the others of the request succeed."""
    broker = controllers.image.brokers[1]
    topic_id = controllers.image.topics["t"].topic_id
    members = (IsrMember(1, broker.broker_epoch),)
    changes = (
        IsrChange(UUID(int=9), 0, 0, 0, members),
        IsrChange(topic_id, 7, 0, 0, members),
        IsrChange(topic_id, 0, 0, 0, members),
        IsrChange(topic_id, 0, 0, 0, members),
    )
    results = controllers.ask(AlterPartition(1, broker.broker_epoch, changes)).results
    assert [each.error_code for each in results] == [
        UnknownTopicId.code,
        UnknownTopicOrPartition.code,
        0,
        InvalidRequest.code,
    ]


def test_old_incarnation_changes_nothing(controllers: ControllerCluster) -> None:
    """The whole request is fenced by the broker's own epoch."""
    assert controllers.ask(AlterPartition(1, 0, ())).error_code == StaleBrokerEpoch.code
    assert controllers.ask(AlterPartition(9, 0, ())).error_code == BrokerIdNotRegistered.code
    assert isinstance(controllers.ask(AlterPartition(9, 0, ())), ErrorReply)


def test_a_replica_that_joins_takes_over_from_a_leader_that_is_leaving(
    controllers: ControllerCluster,
) -> None:
    """Controlled shutdown (KIP-631): the only member in sync goes on leading until another one caught up."""
    controllers.alter("t", (1,))
    controllers.heartbeat(1, want_shutdown=True)
    assert controllers.partition("t").leader == 1
    assert controllers.alter("t", (1, 2)).error_code == 0
    controllers.advance(0.1, heartbeats=(2, 3, 4))
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (2, (2,))
