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
def controllers() -> ControllerCluster:
    """Return four brokers; all directories of broker 4 are cordoned."""
    made = ControllerCluster()
    made.start(1, 2, 3, 4)
    made.assign("t", (1, 2, 4))
    made.heartbeat(4, cordoned=True)
    return made


def move(controllers: ControllerCluster, *replicas: int) -> Any:
    return controllers.ask(AlterReassignments((Reassignment("t", 0, replicas),))).results[0]


def holders(controllers: ControllerCluster, topic: str) -> set[int]:
    return {each for state in controllers.image.topics[topic].partitions for each in state.replicas}


def test_topics_and_partitions_are_placed_on_others(controllers: ControllerCluster) -> None:
    """Though the cordoned broker carries least."""
    controllers.create("u", 12, 2)
    assert holders(controllers, "u") == {1, 2, 3}
    controllers.ask(CreatePartitions((NewPartitions("t", 4),)))
    assert all(4 not in state.replicas for state in controllers.image.topics["t"].partitions[1:])
    controllers.heartbeat(4)
    controllers.create("v", 12, 2)
    assert holders(controllers, "v") == {1, 2, 3, 4}


@pytest.mark.parametrize(("text", "closed"), [("*", True), ("/one", True), ("", False)])
def test_dynamic_config_counts_at_once_over_the_heartbeat(
    controllers: ControllerCluster, text: str, closed: bool
) -> None:
    """Also while the broker is away, and over its file."""
    ops = (ConfigOp("cordoned.log.dirs", text),)
    controllers.ask(
        AlterConfigs((ConfigAlteration("broker", "3", ops), ConfigAlteration("broker", "4", ops)))
    )
    controllers.create("u", 12, 2)
    assert holders(controllers, "u") == ({1, 2} if closed else {1, 2, 3, 4})


def test_it_is_no_broker_of_a_replication_factor(controllers: ControllerCluster) -> None:
    """As in Kafka; the message names the cordoned broker."""
    refused = controllers.create("u", 1, 4)
    assert refused.error_code == InvalidReplicationFactor.code
    assert "all log directories of broker 4 are cordoned" in refused.error_message


def test_assignments_and_reassignments_do_not_name_it_anew(controllers: ControllerCluster) -> None:
    """A partition that it holds may stay there."""
    assert controllers.assign("u", (3, 4)).error_code == InvalidReplicaAssignment.code
    assert move(controllers, 3, 4).error_code == 0
    controllers.alter("t", (1, 2, 4, 3))
    assert controllers.partition("t").replicas == (3, 4)
    assert move(controllers, 1, 2).error_code == 0
    controllers.alter("t", (1, 2, 3, 4))
    assert move(controllers, 1, 4).error_code == InvalidReplicaAssignment.code


def test_replicas_of_a_leaving_broker_do_not_move_to_it(controllers: ControllerCluster) -> None:
    """Though the others carry more."""
    controllers.assign("u", (1,), (1,), (1,))
    for number in range(5):
        controllers.assign(f"more-{number}", (2, 3))
    controllers.ask(DecommissionBroker(1))
    for _ in range(3):
        for each in (1, 2, 3):
            controllers.heartbeat(each)
        controllers.heartbeat(4, cordoned=True)
        controllers.advance(1.0, heartbeats=())
    moving = [each for each in controllers.image.topics["u"].partitions if each.is_reassigned]
    assert len(moving) == 3 and all(set(each.adding_replicas) <= {2, 3} for each in moving)


def test_its_leaderships_stay(controllers: ControllerCluster) -> None:
    """It is no drain."""
    controllers.assign("u", (2, 3))
    controllers.heartbeat(2, cordoned=True)
    assert controllers.partition("u").leader == 2
