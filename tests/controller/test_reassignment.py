"""Reassignments: how they begin, end, give way to others and are cancelled (KIP-455)."""

from __future__ import annotations

import pytest

from raftlog.base.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidUpdateVersion,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from raftlog.metadata.controller_api import (
    AlterReassignments,
    ListReassignments,
    OngoingReassignment,
    Reassignment,
)
from tests.controller.controller_cluster import ControllerCluster

BROKERS = (1, 2, 3, 4, 5, 6)


pytestmark = pytest.mark.brokers(*BROKERS, t=((1, 2, 3),))


def move(controllers: ControllerCluster, *replicas: int, partition: int = 0, topic: str = "t") -> int:
    """Reassign a partition; returns the code."""
    wanted = Reassignment(topic, partition, replicas)
    return int(controllers.ask(AlterReassignments((wanted,))).results[0].error_code)


def cancel(controllers: ControllerCluster) -> int:
    wanted = Reassignment("t", 0, None)
    return int(controllers.ask(AlterReassignments((wanted,))).results[0].error_code)


def shape(controllers: ControllerCluster) -> tuple[tuple[int, ...], ...]:
    state = controllers.partition("t")
    return state.replicas, state.adding_replicas, state.removing_replicas


def test_replicas_are_target_and_leaving_ones_until_the_end(controllers: ControllerCluster) -> None:
    """All replicas go on holding the partition; the target replicas come first."""
    assert move(controllers, 4, 5) == 0
    assert shape(controllers) == ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3))
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (1, (1, 2, 3))


def test_it_ends_when_all_that_stay_are_in_sync_in_one_batch(controllers: ControllerCluster) -> None:
    """Replicas, ISR and leader change together, and the leader's response says to wait for the metadata."""
    move(controllers, 4, 5)
    assert controllers.alter("t", (4, 1, 2, 3)).error_code == 0
    assert shape(controllers) == ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3))
    batches = len(controllers.journal)
    assert controllers.alter("t", (4, 5, 1, 2, 3)).error_code == InvalidUpdateVersion.code
    assert len(controllers.journal) == batches + 1
    assert shape(controllers) == ((4, 5), (), ())
    state = controllers.partition("t")
    assert (state.leader, state.isr) == (4, (4, 5))
    assert state.unclean_epoch == -1


def test_leader_that_stays_goes_on_in_its_epoch(controllers: ControllerCluster) -> None:
    """A move without the leader causes no election."""
    epoch = controllers.partition("t").leader_epoch
    move(controllers, 1, 2, 4)
    controllers.alter("t", (1, 2, 3, 4))
    state = controllers.partition("t")
    assert (state.replicas, state.leader, state.leader_epoch) == ((1, 2, 4), 1, epoch)


def test_fewer_replicas_or_another_order_end_at_once(controllers: ControllerCluster) -> None:
    """No replica has to catch up for it."""
    assert move(controllers, 2, 1) == 0
    assert shape(controllers) == ((2, 1), (), ())
    assert move(controllers, 1, 2) == 0
    assert shape(controllers) == ((1, 2), (), ())
    assert controllers.partition("t").leader == 1


def test_replicas_are_removed_only_after_the_remaining_ones_are_in_sync(
    controllers: ControllerCluster,
) -> None:
    """A replica in sync is not given up for a replica out of sync."""
    controllers.alter("t", (1, 3))
    assert move(controllers, 1, 2) == 0
    assert shape(controllers) == ((1, 2, 3), (), (3,))
    controllers.alter("t", (1, 2, 3))
    assert shape(controllers) == ((1, 2), (), ())


def test_end_waits_while_no_one_that_stays_is_known_to_be_alive(controllers: ControllerCluster) -> None:
    """Taking the leader away must not take the partition offline; a sweep ends it later."""
    move(controllers, 4)
    controllers.active.peer_lost(4, controllers.now)
    assert controllers.alter("t", (1, 2, 3, 4)).error_code == 0
    assert shape(controllers) == ((4, 1, 2, 3), (4,), (1, 2, 3))
    controllers.heartbeat(4)
    assert shape(controllers) == ((4,), (), ())
    assert controllers.partition("t").leader == 4


def test_cancelled_it_is_as_before(controllers: ControllerCluster) -> None:
    """The added replica is no replica any more, in sync or not."""
    move(controllers, 4, 5)
    controllers.alter("t", (4, 1, 2, 3))
    assert cancel(controllers) == 0
    assert shape(controllers) == ((1, 2, 3), (), ())
    assert controllers.partition("t").isr == (1, 2, 3)
    assert cancel(controllers) == NoReassignmentInProgress.code


def test_cancelling_moves_the_leadership_back(controllers: ControllerCluster) -> None:
    """A replica that was added may lead meanwhile."""
    move(controllers, 4, 5)
    controllers.alter("t", (4, 1, 2, 3))
    for broker_id in (1, 2, 3):
        controllers.die(broker_id)
    assert controllers.partition("t").leader == 4
    assert cancel(controllers) == InvalidReplicaAssignment.code
    controllers.come_back(1)
    controllers.alter("t", (4, 1))
    assert cancel(controllers) == 0
    assert (shape(controllers)[0], controllers.partition("t").leader) == ((1, 2, 3), 1)


def test_another_one_takes_its_place(controllers: ControllerCluster) -> None:
    """The original replicas hold the partition until the end of the new move, and cancelling leads back to the
    beginning.
    """
    move(controllers, 4, 5, 1)
    assert move(controllers, 5, 6) == 0
    assert shape(controllers) == ((5, 6, 4, 1, 2, 3), (5, 6, 4), (4, 1, 2, 3))
    assert cancel(controllers) == 0
    assert sorted(shape(controllers)[0]) == [1, 2, 3]
    move(controllers, 4, 5, 1)
    move(controllers, 5, 6)
    controllers.alter("t", (1, 2, 3, 5, 6))
    assert shape(controllers) == ((5, 6), (), ())


def test_asked_twice_it_is_done_once(controllers: ControllerCluster) -> None:
    """An answer may be lost on its way."""
    move(controllers, 4, 5)
    batches = len(controllers.journal)
    assert move(controllers, 4, 5) == 0
    assert len(controllers.journal) == batches


def test_a_replica_that_is_being_added_is_the_last_choice_of_an_unclean_election(
    controllers: ControllerCluster,
) -> None:
    """It may have hardly any records."""
    controllers.create("u", 1, 2, unclean_leader_election_enable="true")
    leader, behind = controllers.partition("u").replicas
    added = next(each for each in BROKERS if each not in (leader, behind))
    controllers.alter("u", (leader,))
    move(controllers, added, topic="u")
    controllers.die(leader)
    state = controllers.partition("u")
    assert (state.leader, state.isr) == (behind, (behind,))


def test_death_of_the_leader_elects_another_in_sync(controllers: ControllerCluster) -> None:
    """Election rules are as usual: target replicas come first, if they are in sync."""
    move(controllers, 4, 5)
    controllers.die(1)
    assert controllers.partition("t").leader == 2
    controllers.alter("t", (2, 3, 5))
    controllers.die(2)
    assert controllers.partition("t").leader == 5


def test_bad_replicas_are_refused_with_a_reason(controllers: ControllerCluster) -> None:
    """Each partition on its own: what is good in the request is done."""
    asked = (
        Reassignment("t", 0, ()),
        Reassignment("t", 7, (1,)),
        Reassignment("x", 0, (1,)),
        Reassignment("u", 0, (1, 1)),
        Reassignment("u", 1, (1, 99)),
        Reassignment("u", 2, (-1,)),
        Reassignment("u", 3, (2, 3)),
        Reassignment("u", 4, (2, 3)),
        Reassignment("u", 4, (3, 2)),
    )
    controllers.assign("u", *[(1, 2)] * 5)
    results = controllers.ask(AlterReassignments(asked)).results
    assert [each.error_code for each in results] == [
        InvalidReplicaAssignment.code,
        UnknownTopicOrPartition.code,
        UnknownTopicOrPartition.code,
        InvalidReplicaAssignment.code,
        InvalidReplicaAssignment.code,
        InvalidReplicaAssignment.code,
        0,
        InvalidRequest.code,
        InvalidRequest.code,
    ]
    assert all(each.error_message for each in results if each.error_code)
    assert controllers.partition("u", 3).adding_replicas == (3,)


def test_another_replication_factor_only_if_it_may_change(controllers: ControllerCluster) -> None:
    """KIP-860, compared with what is under way."""
    move(controllers, 4, 5)

    def refused(*replicas: int) -> int:
        wanted = (Reassignment("t", 0, replicas),)
        return int(controllers.ask(AlterReassignments(wanted, False)).results[0].error_code)

    assert refused(1, 2, 3) == InvalidReplicationFactor.code
    assert refused(5, 6) == 0


def test_list_returns_reassignments_under_way(controllers: ControllerCluster) -> None:
    """All of it, or of the partitions asked about; what is not there is passed over."""
    controllers.assign("u", (1, 2), (2, 1))
    move(controllers, 3, 1, topic="u", partition=1)
    ongoing = (OngoingReassignment("u", 1, (3, 1, 2), (3,), (2,)),)
    assert controllers.ask(ListReassignments()).reassignments == ongoing
    some = (("u", 0), ("u", 1), ("u", 9), ("x", 0))
    assert controllers.ask(ListReassignments(some)).reassignments == ongoing
    assert controllers.ask(ListReassignments(())).reassignments == ()


def test_it_survives_a_new_controller_and_a_snapshot() -> None:
    """It is hard state: any later active controller ends it."""
    controllers = ControllerCluster(controllers=2)
    controllers.start(*BROKERS)
    controllers.assign("t", (1, 2, 3))
    move(controllers, 4, 5)
    controllers.restart_from_snapshot(2)
    controllers.elect(2)
    for broker_id in BROKERS:
        controllers.heartbeat(broker_id)
    controllers.alter("t", (1, 2, 3, 4, 5))
    assert shape(controllers) == ((4, 5), (), ())
