"""A broker with a full disk leads only partitions that no other can lead, until it has room again."""

from __future__ import annotations

import pytest

from tests.controller.controller_cluster import ControllerCluster

pytestmark = pytest.mark.brokers(1, 2, 3, controllers=2, t=((1, 2, 3),))


def test_leaderships_go_where_there_is_room(cluster: ControllerCluster) -> None:
    """With the heartbeat that says so; the ISR stays, since its log has everything."""
    cluster.heartbeat(1, lacks_room=True)
    state = cluster.partition("t")
    assert (state.leader, state.isr) == (2, (1, 2, 3))
    assert not cluster.image.brokers[1].draining, "it is no operator's drain, and outlives no controller"


def test_it_is_said_once(cluster: ControllerCluster) -> None:
    """Further heartbeats write no record."""
    cluster.heartbeat(1, lacks_room=True)
    batches = len(cluster.journal)
    cluster.heartbeat(1, lacks_room=True)
    assert len(cluster.journal) == batches


def test_the_leader_stays_if_every_disk_is_full(cluster: ControllerCluster) -> None:
    """As with a drain: a refused record is better than none that can be read."""
    for broker_id in (2, 3, 1):
        cluster.heartbeat(broker_id, lacks_room=True)
    assert cluster.partition("t").leader == 1


def test_preferred_leaders_are_not_elected_before_they_have_room(cluster: ControllerCluster) -> None:
    """Leaderships do not go to and fro with each rebalance."""
    cluster.heartbeat(1, lacks_room=True)
    for _ in range(310):
        cluster.advance(1.0, heartbeats=(2, 3))
        cluster.heartbeat(1, lacks_room=True)
    assert cluster.partition("t").leader == 2
    cluster.heartbeat(1)
    cluster.advance(350.0, heartbeats=(1, 2, 3))
    assert cluster.partition("t").leader == 1


def test_a_new_controller_hears_of_it_with_the_next_heartbeat(cluster: ControllerCluster) -> None:
    """The state is soft: it is not in the metadata."""
    cluster.heartbeat(1, lacks_room=True)
    cluster.elect(2)
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)
    cluster.die(2)
    assert cluster.partition("t").leader in (1, 3)
    cluster.heartbeat(1, lacks_room=True)
    assert cluster.partition("t").leader == 3


def test_it_leads_when_the_last_other_is_gone(cluster: ControllerCluster) -> None:
    """Its records can be read."""
    cluster.heartbeat(1, lacks_room=True)
    for broker_id in (2, 3):
        cluster.die(broker_id)
    assert cluster.partition("t").leader == 1
