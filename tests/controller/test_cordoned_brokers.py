"""A broker with all its log directories cordoned gets no new replicas, and keeps those it has (KIP-1066)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from raftlog.metadata.controller_api import (
    AlterConfigs,
    AlterReassignments,
    ConfigAlteration,
    ConfigOp,
    CreatePartitions,
    DecommissionBroker,
    NewPartitions,
    Reassignment,
)
from tests.controller.controller_cluster import ControllerCluster


@pytest.fixture
def cluster() -> ControllerCluster:
    """Return four brokers; all directories of broker 4 are cordoned."""
    made = ControllerCluster()
    made.start(1, 2, 3, 4)
    made.assign("t", (1, 2, 4))
    made.heartbeat(4, cordoned=True)
    return made


def move(cluster: ControllerCluster, *replicas: int) -> Any:
    return cluster.ask(AlterReassignments((Reassignment("t", 0, replicas),))).results[0]


def holders(cluster: ControllerCluster, topic: str) -> set[int]:
    return {each for state in cluster.image.topics[topic].partitions for each in state.replicas}


def test_topics_and_partitions_are_placed_on_others(cluster: ControllerCluster) -> None:
    """Though the cordoned broker carries least."""
    cluster.create("u", 12, 2)
    assert holders(cluster, "u") == {1, 2, 3}
    cluster.ask(CreatePartitions((NewPartitions("t", 4),)))
    assert all(4 not in state.replicas for state in cluster.image.topics["t"].partitions[1:])
    cluster.heartbeat(4)
    cluster.create("v", 12, 2)
    assert holders(cluster, "v") == {1, 2, 3, 4}


@pytest.mark.parametrize(("text", "closed"), [("*", True), ("/one", True), ("", False)])
def test_dynamic_config_counts_at_once_over_the_heartbeat(
    cluster: ControllerCluster, text: str, closed: bool
) -> None:
    """Also while the broker is away, and over its file."""
    ops = (ConfigOp("cordoned.log.dirs", text),)
    cluster.ask(AlterConfigs((ConfigAlteration("broker", "3", ops), ConfigAlteration("broker", "4", ops))))
    cluster.create("u", 12, 2)
    assert holders(cluster, "u") == ({1, 2} if closed else {1, 2, 3, 4})


def test_it_is_no_broker_of_a_replication_factor(cluster: ControllerCluster) -> None:
    """As in Kafka; the message names the cordoned broker."""
    refused = cluster.create("u", 1, 4)
    assert refused.error_code == InvalidReplicationFactor.code
    assert "all log directories of broker 4 are cordoned" in refused.error_message


def test_assignments_and_reassignments_do_not_name_it_anew(cluster: ControllerCluster) -> None:
    """A partition that it holds may stay there."""
    assert cluster.assign("u", (3, 4)).error_code == InvalidReplicaAssignment.code
    assert move(cluster, 3, 4).error_code == 0
    cluster.alter("t", (1, 2, 4, 3))
    assert cluster.partition("t").replicas == (3, 4)
    assert move(cluster, 1, 2).error_code == 0
    cluster.alter("t", (1, 2, 3, 4))
    assert move(cluster, 1, 4).error_code == InvalidReplicaAssignment.code


def test_replicas_of_a_leaving_broker_do_not_move_to_it(cluster: ControllerCluster) -> None:
    """Though the others carry more."""
    cluster.assign("u", (1,), (1,), (1,))
    for number in range(5):
        cluster.assign(f"more-{number}", (2, 3))
    cluster.ask(DecommissionBroker(1))
    for _ in range(3):
        for each in (1, 2, 3):
            cluster.heartbeat(each)
        cluster.heartbeat(4, cordoned=True)
        cluster.advance(1.0, heartbeats=())
    moving = [each for each in cluster.image.topics["u"].partitions if each.is_reassigned]
    assert len(moving) == 3 and all(set(each.adding_replicas) <= {2, 3} for each in moving)


def test_its_leaderships_stay(cluster: ControllerCluster) -> None:
    """It is no drain."""
    cluster.assign("u", (2, 3))
    cluster.heartbeat(2, cordoned=True)
    assert cluster.partition("u").leader == 2
