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


def replicas(controllers: ControllerCluster, topic: str = "t") -> list[tuple[int, ...]]:
    return [state.replicas for state in controllers.image.topics[topic].partitions]


def moving(controllers: ControllerCluster) -> dict[tuple[str, int], tuple[int, ...]]:
    """The partitions under reassignment, and the brokers that they come to."""
    return {
        (topic.name, number): state.adding_replicas
        for topic in controllers.image.topics.values()
        for number, state in enumerate(topic.partitions)
        if state.is_reassigned
    }


def catch_up(controllers: ControllerCluster) -> None:
    """Every new replica of a running reassignment gets in sync, which completes it."""
    for topic, number in moving(controllers):
        state = controllers.partition(topic, number)
        alive = [each for each in state.replicas if not controllers.image.brokers[each].fenced]
        controllers.alter(topic, tuple(alive), partition=number)


def run(controllers: ControllerCluster, *alive: int) -> None:
    """Let time pass until the controller has looked for moves again."""
    for _ in range(11):
        controllers.advance(
            0.1, heartbeats=tuple(each for each in alive if each in controllers.image.brokers)
        )


def decommission(controllers: ControllerCluster, broker_id: int, replace_with: int = NO_BROKER) -> Any:
    return controllers.ask(DecommissionBroker(broker_id, replace_with))


def test_all_replicas_leave_and_then_the_broker_is_unregistered(controllers: ControllerCluster) -> None:
    """Each moves to a broker that has no copy; the broker stays registered until the last has moved."""
    assert decommission(controllers, 1) == Done()
    run(controllers, 1, 2, 3, 4)
    assert moving(controllers) == {("t", 0): (4,), ("t", 1): (4,), ("t", 2): (2,)}
    assert 1 in controllers.image.brokers
    catch_up(controllers)
    run(controllers, 2, 3, 4)
    assert 1 not in controllers.image.brokers
    assert replicas(controllers) == [(4, 2, 3), (2, 3, 4), (3, 2, 4)]
    assert controllers.image.decommissions == {}


def test_leaderships_leave_at_once_and_new_topics_stay_away(controllers: ControllerCluster) -> None:
    """It counts no more as a broker for replication factors."""
    decommission(controllers, 1)
    assert [state.leader for state in controllers.image.topics["t"].partitions] == [2, 2, 3]
    assert controllers.create("u", 9, 3).error_code == 0
    assert all(1 not in each for each in replicas(controllers, "u"))
    assert controllers.create("v", 1, 4).error_code == InvalidReplicationFactor.code


def test_replacement_gets_the_replicas(controllers: ControllerCluster) -> None:
    """A partition that it has already goes to another broker."""
    controllers.start(5, 6)
    controllers.assign("u", (1, 5, 2))
    decommission(controllers, 1, replace_with=5)
    run(controllers, 1, 2, 3, 4, 5, 6)
    found = moving(controllers)
    assert found.pop(("u", 0)) == (6,)
    assert found == {("t", 0): (5,), ("t", 1): (5,), ("t", 2): (5,)}


def test_no_more_partitions_move_at_a_time_than_the_limits_allow() -> None:
    """Neither in all, nor to one broker, so that replication of other partitions goes on."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", *([(1, 2)] * 60))
    decommission(controllers, 1)
    run(controllers, 1, 2, 3)
    assert len(moving(controllers)) == MAX_MOVES_TO_BROKER
    controllers.start(*range(4, 10))
    run(controllers, *range(1, 10))
    receiving = Counter(each for added in moving(controllers).values() for each in added)
    assert len(moving(controllers)) == MAX_MOVES
    assert max(receiving.values()) <= MAX_MOVES_TO_BROKER


def test_racks_stay_spread() -> None:
    """The receiver is of the rack that lost the replica, though a broker of another has as few."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3, 4, 5, racks={1: "a", 2: "b", 3: "c", 4: "b", 5: "a"})
    controllers.assign("t", (1, 2, 3))
    decommission(controllers, 1)
    run(controllers, 1, 2, 3, 4, 5)
    assert moving(controllers) == {("t", 0): (5,)}


def test_dead_broker_is_decommissioned_as_well(controllers: ControllerCluster) -> None:
    """The others have its records; only a partition of which it alone has a copy stays, and so does the broker."""
    controllers.start(5)
    controllers.assign("alone", (1,))
    controllers.die(1)
    decommission(controllers, 1)
    for _ in range(3):
        run(controllers, 2, 3, 4, 5)
        catch_up(controllers)
    assert all(1 not in each for each in replicas(controllers))
    assert replicas(controllers, "alone") == [(1,)]
    assert controllers.image.brokers[1].fenced
    assert 1 in controllers.image.decommissions


def test_another_broker_is_chosen_when_the_receiver_dies(controllers: ControllerCluster) -> None:
    """The move to the dead broker is given up, unless it had got in sync."""
    controllers.start(5, 6)
    controllers.assign("u", (1, 2))
    decommission(controllers, 1, replace_with=6)
    run(controllers, 1, 2, 3, 4, 5, 6)
    assert moving(controllers)["u", 0] == (6,)
    controllers.die(6)
    run(controllers, 1, 2, 3, 4, 5)
    assert controllers.partition("u").target_replicas == (4, 2)
    for _ in range(2):
        catch_up(controllers)
        run(controllers, *range(1, 6))
    assert 1 not in controllers.image.brokers


def test_users_reassignment_is_waited_for(controllers: ControllerCluster) -> None:
    """It completes first, and what it left on the broker moves then."""
    controllers.start(5)
    controllers.assign("u", (1, 2))
    controllers.ask(AlterReassignments((Reassignment("u", 0, (1, 3)),)))
    decommission(controllers, 1, replace_with=5)
    run(controllers, 1, 2, 3, 4, 5)
    assert controllers.partition("u").adding_replicas == (3,)
    controllers.alter("u", (1, 2, 3))
    run(controllers, 1, 2, 3, 4, 5)
    assert controllers.partition("u").adding_replicas == (5,)


def test_new_controller_goes_on(controllers: ControllerCluster) -> None:
    """What it needs is in the metadata, also when that came from a snapshot."""
    controllers.start(5)
    decommission(controllers, 1)
    controllers.restart_from_snapshot(2)
    controllers.elect(2)
    assert controllers.image.decommissions == {1: NO_BROKER}
    for _ in range(4):
        run(controllers, *range(1, 7))
        catch_up(controllers)
    assert 1 not in controllers.image.brokers


def test_recommissioned_broker_keeps_what_has_not_moved(controllers: ControllerCluster) -> None:
    """Moves that run complete; none begins."""
    controllers.assign("u", (1, 2), (1, 2), (1, 2), (1, 2), (1, 2), (1, 2))
    decommission(controllers, 1, replace_with=4)
    run(controllers, 1, 2, 3, 4)
    begun = moving(controllers)
    assert Counter(begun.values()) == {(4,): MAX_MOVES_TO_BROKER, (2,): 1}
    assert controllers.ask(DecommissionBroker(1, ended=True)) == Done()
    catch_up(controllers)
    run(controllers, 1, 2, 3, 4)
    assert moving(controllers) == {}
    assert sum(1 in each for topic in ("t", "u") for each in replicas(controllers, topic)) == 9 - len(begun)
    controllers.create("v", 8, 4)
    assert all(1 in each for each in replicas(controllers, "v"))
    assert controllers.ask(DecommissionBroker(1, ended=True)).error_code == NoReassignmentInProgress.code


def test_wrong_wishes_are_refused(controllers: ControllerCluster) -> None:
    """Brokers and topics are named, and the metadata stays."""
    controllers.assign("wide", (1, 2, 3, 4))
    before = controllers.image
    assert decommission(controllers, 9).error_code == BrokerIdNotRegistered.code
    assert decommission(controllers, 1, replace_with=1).error_code == InvalidRequest.code
    assert decommission(controllers, 1, replace_with=9).error_code == InvalidRequest.code
    refused = decommission(controllers, 4)
    assert refused.error_code == InvalidReplicationFactor.code
    assert "topic wide has replication factor 4" in refused.message
    assert controllers.image.decommissions == before.decommissions == {}


def test_two_brokers_leave_together(controllers: ControllerCluster) -> None:
    """A partition on both moves off both at once, and neither receives the other's replicas."""
    controllers.start(5, 6)
    controllers.assign("u", (1, 2))
    decommission(controllers, 1)
    decommission(controllers, 3)
    run(controllers, *range(1, 7))
    assert controllers.partition("t", 0).target_replicas == (5, 2, 6)
    assert 3 not in controllers.partition("u").replicas, "not even for a moment"
    for _ in range(4):
        catch_up(controllers)
        run(controllers, *range(1, 7))
    assert sorted(controllers.image.brokers) == [2, 4, 5, 6]


def test_unregistered_broker_is_decommissioned_no_more(controllers: ControllerCluster) -> None:
    """If it registers again, it gets replicas again."""
    decommission(controllers, 4)
    controllers.ask(UnregisterBroker(4))
    assert controllers.image.decommissions == {}
    controllers.come_back(4)
    controllers.create("u", 1, 4)
    assert 4 in replicas(controllers, "u")[0]


def test_no_reassignment_gives_a_leaving_broker_replicas(controllers: ControllerCluster) -> None:
    """A replica that it has already may stay for now, so that the order of replicas can change."""
    controllers.start(5)
    controllers.assign("u", (1, 2))
    decommission(controllers, 4)

    def code(*replicas: int) -> int:
        reply = controllers.ask(AlterReassignments((Reassignment("u", 0, replicas),)))
        return int(reply.results[0].error_code)

    assert code(1, 4) == InvalidReplicaAssignment.code
    decommission(controllers, 1)
    assert code(2, 1) == 0


def test_dead_broker_that_is_decommissioned_second_holds_up_no_move(controllers: ControllerCluster) -> None:
    """A move whose target it was to stay in takes another broker in its place."""
    controllers.start(5)
    decommission(controllers, 1, replace_with=4)
    run(controllers, 1, 2, 3, 4, 5)
    controllers.die(3)
    run(controllers, 1, 2, 4, 5)
    decommission(controllers, 3)
    for _ in range(4):
        run(controllers, 1, 2, 4, 5)
        catch_up(controllers)
    run(controllers, 2, 4, 5)
    assert sorted(controllers.image.brokers) == [2, 4, 5]


def test_partitions_that_cannot_complete_their_move_hold_up_no_others() -> None:
    """A staying replica is on a dead broker, so such a partition waits. Others go, however many wait before them."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3, 4, 5)
    controllers.assign("before", *([(1, 2, 3)] * 600))
    controllers.assign("free", *([(1, 2)] * 5))
    controllers.die(3)
    decommission(controllers, 1)
    for _ in range(3):
        run(controllers, 1, 2, 4, 5)
        catch_up(controllers)
    assert all(1 not in each for each in replicas(controllers, "free"))
    assert all(1 in each for each in replicas(controllers, "before"))
    controllers.come_back(3)
    run(controllers, 1, 2, 3, 4, 5)
    assert {topic for topic, _ in moving(controllers)} == {"before"}


def test_receiver_that_was_replaced_may_receive_again(controllers: ControllerCluster) -> None:
    """It was away for a moment, and the broker that took its place dies."""
    controllers.start(5)
    controllers.assign("u", (1, 2, 3))
    decommission(controllers, 1)
    run(controllers, 1, 2, 3, 4, 5)
    (first,) = moving(controllers)["u", 0]
    controllers.die(first)
    run(controllers, *(each for each in range(1, 6) if each != first))
    second = controllers.partition("u").target_replicas[0]
    assert second not in (1, first)
    controllers.come_back(first)
    controllers.die(second)
    run(controllers, *(each for each in range(1, 6) if each != second))
    assert controllers.partition("u").target_replicas[0] == first


def test_full_disk_and_busy_receivers_are_passed_over() -> None:
    """The broker with the fewest replicas has no room, and others have."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3, 4, 5)
    controllers.assign("t", *([(1, 2)] * 30), *([(3, 5)] * 30))
    decommission(controllers, 1)
    controllers.heartbeat(4, lacks_room=True)
    run(controllers, 1, 2, 3, 5)
    receiving = Counter(each for added in moving(controllers).values() for each in added)
    assert receiving == {3: MAX_MOVES_TO_BROKER, 5: MAX_MOVES_TO_BROKER}


def test_named_replacement_is_waited_for_while_it_is_only_late(controllers: ControllerCluster) -> None:
    """It is suspected, not fenced; and a repeated request without a name leaves the name as it is."""
    controllers.start(5)
    controllers.active.peer_lost(5, controllers.now)
    decommission(controllers, 1, replace_with=5)
    decommission(controllers, 1)
    assert controllers.image.decommissions == {1: 5}
    controllers.active.tick(controllers.now + 0.6)
    assert moving(controllers) == {}


def test_room_is_kept_for_partitions_of_all_brokers_that_leave(controllers: ControllerCluster) -> None:
    """An empty broker may be the last that could take over a replica."""
    controllers.start(5)
    controllers.assign("wide", (1, 2, 3, 5))
    assert decommission(controllers, 5) == Done()
    assert decommission(controllers, 4).error_code == InvalidReplicationFactor.code


def test_leaving_broker_leads_no_new_topic_and_is_assigned_none(controllers: ControllerCluster) -> None:
    """Neither by an assignment nor when another replica comes into sync."""
    controllers.alter("t", (1,))
    decommission(controllers, 1)
    assert controllers.partition("t").leader == 1
    controllers.alter("t", (1, 2))
    assert controllers.partition("t").leader == 2
    assert controllers.assign("u", (1, 2)).error_code == InvalidReplicaAssignment.code
