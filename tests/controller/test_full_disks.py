"""A broker with a full disk leads only partitions that no other can lead, until it has room again."""

from __future__ import annotations

import pytest

from raftlog.metadata.controller_api import CreatePartitions, DecommissionBroker, DrainBroker, NewPartitions
from tests.controller.controller_cluster import ControllerCluster

pytestmark = pytest.mark.brokers(1, 2, 3, controllers=2, t=((1, 2, 3),))


def test_leaderships_go_where_there_is_room(controllers: ControllerCluster) -> None:
    """With the heartbeat that says so; the ISR stays, since its log has everything."""
    controllers.heartbeat(1, lacks_room=True)
    state = controllers.partition("t")
    assert (state.leader, state.isr) == (2, (1, 2, 3))
    assert not controllers.image.brokers[1].draining, "it is no operator's drain, and outlives no controller"


def test_it_is_said_once(controllers: ControllerCluster) -> None:
    """Further heartbeats write no record."""
    controllers.heartbeat(1, lacks_room=True)
    batches = len(controllers.journal)
    controllers.heartbeat(1, lacks_room=True)
    assert len(controllers.journal) == batches


def test_the_leader_stays_if_every_disk_is_full(controllers: ControllerCluster) -> None:
    """As with a drain: a refused record is better than none that can be read."""
    for broker_id in (2, 3, 1):
        controllers.heartbeat(broker_id, lacks_room=True)
    assert controllers.partition("t").leader == 1


def test_preferred_leaders_are_not_elected_before_they_have_room(controllers: ControllerCluster) -> None:
    """Leaderships do not go to and fro with each rebalance."""
    controllers.heartbeat(1, lacks_room=True)
    for _ in range(310):
        controllers.advance(1.0, heartbeats=(2, 3))
        controllers.heartbeat(1, lacks_room=True)
    assert controllers.partition("t").leader == 2
    controllers.heartbeat(1)
    controllers.advance(350.0, heartbeats=(1, 2, 3))
    assert controllers.partition("t").leader == 1


def test_a_new_controller_hears_of_it_with_the_next_heartbeat(controllers: ControllerCluster) -> None:
    """The state is soft: it is not in the metadata."""
    controllers.heartbeat(1, lacks_room=True)
    controllers.elect(2)
    for broker_id in (2, 3):
        controllers.heartbeat(broker_id)
    controllers.die(2)
    assert controllers.partition("t").leader in (1, 3)
    controllers.heartbeat(1, lacks_room=True)
    assert controllers.partition("t").leader == 3


def test_it_leads_when_the_last_other_is_gone(controllers: ControllerCluster) -> None:
    """Its records can be read."""
    controllers.heartbeat(1, lacks_room=True)
    for broker_id in (2, 3):
        controllers.die(broker_id)
    assert controllers.partition("t").leader == 1


def test_it_leads_no_new_partition(controllers: ControllerCluster) -> None:
    """Neither one that is placed nor one that is assigned; it is in sync, as its log has everything."""
    controllers.heartbeat(1, lacks_room=True)
    controllers.create("placed", 6, 3)
    for each in controllers.image.topics["placed"].partitions:
        assert each.leader == each.replicas[0] != 1, "nor does it come to lead it by an election later"
    controllers.assign("assigned", (1, 2, 3))
    grown = NewPartitions("assigned", 2, ((1, 3, 2),))
    controllers.ask(CreatePartitions((grown,)))
    first, second = controllers.image.topics["assigned"].partitions
    assert (first.leader, first.isr, second.leader, second.isr) == (2, (1, 2, 3), 3, (1, 3, 2))


def test_it_leads_a_new_partition_that_no_other_can(controllers: ControllerCluster) -> None:
    """A refused record is better than none that can be read."""
    controllers.heartbeat(1, lacks_room=True)
    controllers.assign("alone", (1,))
    assert controllers.partition("alone").leader == 1


def test_the_end_of_a_drain_leads_nothing_back_to_a_full_disk(controllers: ControllerCluster) -> None:
    """Though every replica counts as drained then, the leader stays."""
    controllers.heartbeat(1, lacks_room=True)
    for broker_id in (1, 3, 2):
        controllers.ask(DrainBroker(broker_id, True))
    assert controllers.partition("t").leader == 2
    controllers.ask(DrainBroker(1, False))
    assert controllers.partition("t").leader == 2


@pytest.mark.brokers(1, 2, 3, 4, controllers=2, t=((1, 2, 3),))
def test_the_end_of_a_drain_leads_nothing_back_to_a_broker_that_leaves(
    controllers: ControllerCluster,
) -> None:
    """A decommission drains as well, and goes on."""
    controllers.ask(DecommissionBroker(1))
    for broker_id in (1, 3, 2):
        controllers.ask(DrainBroker(broker_id, True))
    assert controllers.partition("t").leader == 2
    controllers.ask(DrainBroker(1, False))
    assert controllers.partition("t").leader == 2
