"""A decommissioned broker hands all its replicas to others, and is unregistered then."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    NoReassignmentInProgress,
)
from raftlog.base.types import NO_BROKER
from raftlog.controller.decommissions import MAX_MOVES, MAX_MOVES_TO_BROKER
from raftlog.metadata.controller_api import (
    AlterReassignments,
    DecommissionBroker,
    Done,
    Reassignment,
    UnregisterBroker,
)
from tests.controller.controller_cluster import ControllerCluster

pytestmark = pytest.mark.brokers(1, 2, 3, 4, controllers=2, t=((1, 2, 3), (2, 3, 1), (3, 1, 4)))


def replicas(cluster: ControllerCluster, topic: str = "t") -> list[tuple[int, ...]]:
    return [state.replicas for state in cluster.image.topics[topic].partitions]


def moving(cluster: ControllerCluster) -> dict[tuple[str, int], tuple[int, ...]]:
    """The partitions under reassignment, and the brokers that they come to."""
    return {
        (topic.name, number): state.adding_replicas
        for topic in cluster.image.topics.values()
        for number, state in enumerate(topic.partitions)
        if state.is_reassigned
    }


def catch_up(cluster: ControllerCluster) -> None:
    """Every new replica of a running reassignment gets in sync, which completes it."""
    for topic, number in moving(cluster):
        state = cluster.partition(topic, number)
        alive = [each for each in state.replicas if not cluster.image.brokers[each].fenced]
        cluster.alter(topic, tuple(alive), partition=number)


def run(cluster: ControllerCluster, *alive: int) -> None:
    """Let time pass until the controller has looked for moves again."""
    for _ in range(11):
        cluster.advance(0.1, heartbeats=tuple(each for each in alive if each in cluster.image.brokers))


def decommission(cluster: ControllerCluster, broker_id: int, replace_with: int = NO_BROKER) -> Any:
    return cluster.ask(DecommissionBroker(broker_id, replace_with))


def test_all_replicas_leave_and_then_the_broker_is_unregistered(cluster: ControllerCluster) -> None:
    """Each moves to a broker that has no copy; the broker stays registered until the last has moved."""
    assert decommission(cluster, 1) == Done()
    run(cluster, 1, 2, 3, 4)
    assert moving(cluster) == {("t", 0): (4,), ("t", 1): (4,), ("t", 2): (2,)}
    assert 1 in cluster.image.brokers
    catch_up(cluster)
    run(cluster, 2, 3, 4)
    assert 1 not in cluster.image.brokers
    assert replicas(cluster) == [(4, 2, 3), (2, 3, 4), (3, 2, 4)]
    assert cluster.image.decommissions == {}


def test_leaderships_leave_at_once_and_new_topics_stay_away(cluster: ControllerCluster) -> None:
    """It counts no more as a broker for replication factors."""
    decommission(cluster, 1)
    assert [state.leader for state in cluster.image.topics["t"].partitions] == [2, 2, 3]
    assert cluster.create("u", 9, 3).error_code == 0
    assert all(1 not in each for each in replicas(cluster, "u"))
    assert cluster.create("v", 1, 4).error_code == InvalidReplicationFactor.code


def test_replacement_gets_the_replicas(cluster: ControllerCluster) -> None:
    """A partition that it has already goes to another broker."""
    cluster.start(5, 6)
    cluster.assign("u", (1, 5, 2))
    decommission(cluster, 1, replace_with=5)
    run(cluster, 1, 2, 3, 4, 5, 6)
    found = moving(cluster)
    assert found.pop(("u", 0)) == (6,)
    assert found == {("t", 0): (5,), ("t", 1): (5,), ("t", 2): (5,)}


def test_no_more_partitions_move_at_a_time_than_the_limits_allow() -> None:
    """Neither in all, nor to one broker, so that replication of other partitions goes on."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", *([(1, 2)] * 60))
    decommission(cluster, 1)
    run(cluster, 1, 2, 3)
    assert len(moving(cluster)) == MAX_MOVES_TO_BROKER
    cluster.start(*range(4, 10))
    run(cluster, *range(1, 10))
    receiving = Counter(each for added in moving(cluster).values() for each in added)
    assert len(moving(cluster)) == MAX_MOVES
    assert max(receiving.values()) <= MAX_MOVES_TO_BROKER


def test_racks_stay_spread() -> None:
    """The receiver is of the rack that lost the replica, though a broker of another has as few."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3, 4, 5, racks={1: "a", 2: "b", 3: "c", 4: "b", 5: "a"})
    cluster.assign("t", (1, 2, 3))
    decommission(cluster, 1)
    run(cluster, 1, 2, 3, 4, 5)
    assert moving(cluster) == {("t", 0): (5,)}


def test_dead_broker_is_decommissioned_as_well(cluster: ControllerCluster) -> None:
    """The others have its records; only a partition of which it alone has a copy stays, and so does the broker."""
    cluster.start(5)
    cluster.assign("alone", (1,))
    cluster.die(1)
    decommission(cluster, 1)
    for _ in range(3):
        run(cluster, 2, 3, 4, 5)
        catch_up(cluster)
    assert all(1 not in each for each in replicas(cluster))
    assert replicas(cluster, "alone") == [(1,)]
    assert cluster.image.brokers[1].fenced
    assert 1 in cluster.image.decommissions


def test_another_broker_is_chosen_when_the_receiver_dies(cluster: ControllerCluster) -> None:
    """The move to the dead broker is given up, unless it had got in sync."""
    cluster.start(5, 6)
    cluster.assign("u", (1, 2))
    decommission(cluster, 1, replace_with=6)
    run(cluster, 1, 2, 3, 4, 5, 6)
    assert moving(cluster)["u", 0] == (6,)
    cluster.die(6)
    run(cluster, 1, 2, 3, 4, 5)
    assert cluster.partition("u").target_replicas == (4, 2)
    for _ in range(2):
        catch_up(cluster)
        run(cluster, *range(1, 6))
    assert 1 not in cluster.image.brokers


def test_users_reassignment_is_waited_for(cluster: ControllerCluster) -> None:
    """It completes first, and what it left on the broker moves then."""
    cluster.start(5)
    cluster.assign("u", (1, 2))
    cluster.ask(AlterReassignments((Reassignment("u", 0, (1, 3)),)))
    decommission(cluster, 1, replace_with=5)
    run(cluster, 1, 2, 3, 4, 5)
    assert cluster.partition("u").adding_replicas == (3,)
    cluster.alter("u", (1, 2, 3))
    run(cluster, 1, 2, 3, 4, 5)
    assert cluster.partition("u").adding_replicas == (5,)


def test_new_controller_goes_on(cluster: ControllerCluster) -> None:
    """What it needs is in the metadata, also when that came from a snapshot."""
    cluster.start(5)
    decommission(cluster, 1)
    cluster.restart_from_snapshot(2)
    cluster.elect(2)
    assert cluster.image.decommissions == {1: NO_BROKER}
    for _ in range(4):
        run(cluster, *range(1, 7))
        catch_up(cluster)
    assert 1 not in cluster.image.brokers


def test_recommissioned_broker_keeps_what_has_not_moved(cluster: ControllerCluster) -> None:
    """Moves that run complete; none begins."""
    cluster.assign("u", (1, 2), (1, 2), (1, 2), (1, 2), (1, 2), (1, 2))
    decommission(cluster, 1, replace_with=4)
    run(cluster, 1, 2, 3, 4)
    begun = moving(cluster)
    assert Counter(begun.values()) == {(4,): MAX_MOVES_TO_BROKER, (2,): 1}
    assert cluster.ask(DecommissionBroker(1, ended=True)) == Done()
    catch_up(cluster)
    run(cluster, 1, 2, 3, 4)
    assert moving(cluster) == {}
    assert sum(1 in each for topic in ("t", "u") for each in replicas(cluster, topic)) == 9 - len(begun)
    cluster.create("v", 8, 4)
    assert all(1 in each for each in replicas(cluster, "v"))
    assert cluster.ask(DecommissionBroker(1, ended=True)).error_code == NoReassignmentInProgress.code


def test_wrong_wishes_are_refused(cluster: ControllerCluster) -> None:
    """Brokers and topics are named, and the metadata stays."""
    cluster.assign("wide", (1, 2, 3, 4))
    before = cluster.image
    assert decommission(cluster, 9).error_code == BrokerIdNotRegistered.code
    assert decommission(cluster, 1, replace_with=1).error_code == InvalidRequest.code
    assert decommission(cluster, 1, replace_with=9).error_code == InvalidRequest.code
    refused = decommission(cluster, 4)
    assert refused.error_code == InvalidReplicationFactor.code
    assert "topic wide has replication factor 4" in refused.message
    assert cluster.image.decommissions == before.decommissions == {}


def test_two_brokers_leave_together(cluster: ControllerCluster) -> None:
    """A partition on both moves off both at once, and neither receives the other's replicas."""
    cluster.start(5, 6)
    cluster.assign("u", (1, 2))
    decommission(cluster, 1)
    decommission(cluster, 3)
    run(cluster, *range(1, 7))
    assert cluster.partition("t", 0).target_replicas == (5, 2, 6)
    assert 3 not in cluster.partition("u").replicas, "not even for a moment"
    for _ in range(4):
        catch_up(cluster)
        run(cluster, *range(1, 7))
    assert sorted(cluster.image.brokers) == [2, 4, 5, 6]


def test_unregistered_broker_is_decommissioned_no_more(cluster: ControllerCluster) -> None:
    """If it registers again, it gets replicas again."""
    decommission(cluster, 4)
    cluster.ask(UnregisterBroker(4))
    assert cluster.image.decommissions == {}
    cluster.come_back(4)
    cluster.create("u", 1, 4)
    assert 4 in replicas(cluster, "u")[0]


def test_no_reassignment_gives_a_leaving_broker_replicas(cluster: ControllerCluster) -> None:
    """A replica that it has already may stay for now, so that the order of replicas can change."""
    cluster.start(5)
    cluster.assign("u", (1, 2))
    decommission(cluster, 4)

    def code(*replicas: int) -> int:
        reply = cluster.ask(AlterReassignments((Reassignment("u", 0, replicas),)))
        return int(reply.results[0].error_code)

    assert code(1, 4) == InvalidReplicaAssignment.code
    decommission(cluster, 1)
    assert code(2, 1) == 0


def test_dead_broker_that_is_decommissioned_second_holds_up_no_move(cluster: ControllerCluster) -> None:
    """A move whose target it was to stay in takes another broker in its place."""
    cluster.start(5)
    decommission(cluster, 1, replace_with=4)
    run(cluster, 1, 2, 3, 4, 5)
    cluster.die(3)
    run(cluster, 1, 2, 4, 5)
    decommission(cluster, 3)
    for _ in range(4):
        run(cluster, 1, 2, 4, 5)
        catch_up(cluster)
    run(cluster, 2, 4, 5)
    assert sorted(cluster.image.brokers) == [2, 4, 5]


def test_partitions_that_cannot_complete_their_move_hold_up_no_others() -> None:
    """A staying replica is on a dead broker, so such a partition waits. Others go, however many wait before them."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3, 4, 5)
    cluster.assign("before", *([(1, 2, 3)] * 600))
    cluster.assign("free", *([(1, 2)] * 5))
    cluster.die(3)
    decommission(cluster, 1)
    for _ in range(3):
        run(cluster, 1, 2, 4, 5)
        catch_up(cluster)
    assert all(1 not in each for each in replicas(cluster, "free"))
    assert all(1 in each for each in replicas(cluster, "before"))
    cluster.come_back(3)
    run(cluster, 1, 2, 3, 4, 5)
    assert {topic for topic, _ in moving(cluster)} == {"before"}


def test_receiver_that_was_replaced_may_receive_again(cluster: ControllerCluster) -> None:
    """It was away for a moment, and the broker that took its place dies."""
    cluster.start(5)
    cluster.assign("u", (1, 2, 3))
    decommission(cluster, 1)
    run(cluster, 1, 2, 3, 4, 5)
    (first,) = moving(cluster)["u", 0]
    cluster.die(first)
    run(cluster, *(each for each in range(1, 6) if each != first))
    second = cluster.partition("u").target_replicas[0]
    assert second not in (1, first)
    cluster.come_back(first)
    cluster.die(second)
    run(cluster, *(each for each in range(1, 6) if each != second))
    assert cluster.partition("u").target_replicas[0] == first


def test_full_disk_and_busy_receivers_are_passed_over() -> None:
    """The broker with the fewest replicas has no room, and others have."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3, 4, 5)
    cluster.assign("t", *([(1, 2)] * 30), *([(3, 5)] * 30))
    decommission(cluster, 1)
    cluster.heartbeat(4, lacks_room=True)
    run(cluster, 1, 2, 3, 5)
    receiving = Counter(each for added in moving(cluster).values() for each in added)
    assert receiving == {3: MAX_MOVES_TO_BROKER, 5: MAX_MOVES_TO_BROKER}


def test_named_replacement_is_waited_for_while_it_is_only_late(cluster: ControllerCluster) -> None:
    """It is suspected, not fenced; and a repeated request without a name leaves the name as it is."""
    cluster.start(5)
    cluster.active.peer_lost(5, cluster.now)
    decommission(cluster, 1, replace_with=5)
    decommission(cluster, 1)
    assert cluster.image.decommissions == {1: 5}
    cluster.active.tick(cluster.now + 0.6)
    assert moving(cluster) == {}


def test_room_is_kept_for_partitions_of_all_brokers_that_leave(cluster: ControllerCluster) -> None:
    """An empty broker may be the last that could take over a replica."""
    cluster.start(5)
    cluster.assign("wide", (1, 2, 3, 5))
    assert decommission(cluster, 5) == Done()
    assert decommission(cluster, 4).error_code == InvalidReplicationFactor.code


def test_leaving_broker_leads_no_new_topic_and_is_assigned_none(cluster: ControllerCluster) -> None:
    """Neither by an assignment nor when another replica comes into sync."""
    cluster.alter("t", (1,))
    decommission(cluster, 1)
    assert cluster.partition("t").leader == 1
    cluster.alter("t", (1, 2))
    assert cluster.partition("t").leader == 2
    assert cluster.assign("u", (1, 2)).error_code == InvalidReplicaAssignment.code
