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


def test_an_isr_shrinks_and_expands_within_a_leader_epoch(cluster: ControllerCluster) -> None:
    """The answer carries the new ISR and partition epoch; the leader epoch stays."""
    topic_id = cluster.image.topics["t"].topic_id
    shrunk = cluster.alter("t", (1, 2))
    assert (shrunk.topic_id, shrunk.error_code, shrunk.isr) == (topic_id, 0, (1, 2))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (1, 0, 1)
    assert cluster.alter("t", (3, 2, 1)).isr == (1, 2, 3)
    assert cluster.partition("t").partition_epoch == 2


def test_unchanged_isr_writes_nothing(cluster: ControllerCluster) -> None:
    """Asking for what is there is answered with the state as it is."""
    batches = len(cluster.journal)
    assert cluster.alter("t", (3, 1, 2)).partition_epoch == 0
    assert len(cluster.journal) == batches


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
    cluster: ControllerCluster, overrides: dict[str, Any], error: type[KafkaError]
) -> None:
    """Stale or foreign changes are refused without effect."""
    cluster.die(1)
    cluster.come_back(1)
    state = cluster.partition("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
    rename = {1: 2, 2: 1, 3: 3, 4: 4}
    members = tuple(rename[each] for each in overrides.pop("isr", (1, 3)))
    if "sender" in overrides:
        overrides["sender"] = 1
    result = cluster.alter("t", members, **overrides)
    assert result.error_code == error.code
    assert cluster.partition("t") == state


def test_broker_out_of_service_does_not_come_in(cluster: ControllerCluster) -> None:
    """A fenced or leaving broker is ineligible; a present member does not block others (KIP-841)."""
    cluster.die(3)
    assert cluster.alter("t", (1, 2, 3)).error_code == IneligibleReplica.code
    cluster.come_back(3)
    assert cluster.alter("t", (1, 2, 3)).error_code == 0
    cluster.heartbeat(3, want_shutdown=True)
    assert cluster.alter("t", (1, 2, 3)).error_code == IneligibleReplica.code


def test_replica_of_an_earlier_incarnation_does_not_come_in(cluster: ControllerCluster) -> None:
    """The broker epoch that the leader saw fetch must be current (KIP-903)."""
    seen = cluster.image.brokers[3].broker_epoch
    cluster.die(3)
    cluster.come_back(3, wiped=True)
    assert cluster.alter("t", (1, 2, 3), member_epochs={3: seen}).error_code == IneligibleReplica.code
    assert cluster.alter("t", (1, 2, 3), member_epochs={3: -1}).error_code == 0


def test_unknown_partitions_have_their_own_errors(cluster: ControllerCluster) -> None:
    """Unknown id, unknown number, each on its own; the others of the request succeed."""
    broker = cluster.image.brokers[1]
    topic_id = cluster.image.topics["t"].topic_id
    members = (IsrMember(1, broker.broker_epoch),)
    changes = (
        IsrChange(UUID(int=9), 0, 0, 0, members),
        IsrChange(topic_id, 7, 0, 0, members),
        IsrChange(topic_id, 0, 0, 0, members),
        IsrChange(topic_id, 0, 0, 0, members),
    )
    results = cluster.ask(AlterPartition(1, broker.broker_epoch, changes)).results
    assert [each.error_code for each in results] == [
        UnknownTopicId.code,
        UnknownTopicOrPartition.code,
        0,
        InvalidRequest.code,
    ]


def test_old_incarnation_changes_nothing(cluster: ControllerCluster) -> None:
    """The whole request is fenced by the broker's own epoch."""
    assert cluster.ask(AlterPartition(1, 0, ())).error_code == StaleBrokerEpoch.code
    assert cluster.ask(AlterPartition(9, 0, ())).error_code == BrokerIdNotRegistered.code
    assert isinstance(cluster.ask(AlterPartition(9, 0, ())), ErrorReply)


def test_a_replica_that_joins_takes_over_from_a_leader_that_is_leaving(cluster: ControllerCluster) -> None:
    """Controlled shutdown (KIP-631): the only member in sync goes on leading until another one caught up."""
    cluster.alter("t", (1,))
    cluster.heartbeat(1, want_shutdown=True)
    assert cluster.partition("t").leader == 1
    assert cluster.alter("t", (1, 2)).error_code == 0
    cluster.advance(0.1, heartbeats=(2, 3, 4))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
