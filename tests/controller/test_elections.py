"""Elections that are asked for, and the periodic return to preferred leaders (KIP-183, KIP-460)."""

from __future__ import annotations

import pytest

from raftlog.base.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from raftlog.base.types import NO_BROKER
from raftlog.controller import elections
from raftlog.metadata.controller_api import (
    PREFERRED,
    UNCLEAN,
    AlterReassignments,
    ElectionResult,
    ElectLeaders,
    Reassignment,
    UnregisterBroker,
)
from raftlog.metadata.features import SUPPORTED_FEATURES
from tests.controller.controller_cluster import ControllerCluster


@pytest.fixture
def controllers() -> ControllerCluster:
    """Topic t: partition 0 prefers 1, partition 1 prefers 2; broker 1 was away, so 2 leads both."""
    made = ControllerCluster()
    made.start(1, 2, 3)
    made.assign("t", (1, 2, 3), (2, 1, 3))
    made.die(1)
    made.come_back(1)
    return made


def elect(controllers: ControllerCluster, kind: int, *partitions: tuple[str, int]) -> list[int]:
    return [each.error_code for each in controllers.ask(ElectLeaders(kind, partitions)).results]


def test_preferred_leader_takes_over_once_in_sync(controllers: ControllerCluster) -> None:
    """Not before it is in the isr; then by one election, with a new leader epoch."""
    assert elect(controllers, PREFERRED, ("t", 0)) == [PreferredLeaderNotAvailable.code]
    controllers.alter("t", (1, 2, 3))
    epoch = controllers.partition("t").leader_epoch
    assert elect(controllers, PREFERRED, ("t", 0), ("t", 1), ("x", 0), ("t", 7)) == [
        0,
        ElectionNotNeeded.code,
        UnknownTopicOrPartition.code,
        UnknownTopicOrPartition.code,
    ]
    assert (controllers.partition("t").leader, controllers.partition("t").leader_epoch) == (1, epoch + 1)


def test_a_request_for_all_returns_only_what_needed_it(controllers: ControllerCluster) -> None:
    """partitions=None leaves out partitions that had no need (KIP-460)."""
    controllers.alter("t", (1, 2, 3))
    assert controllers.ask(ElectLeaders(PREFERRED)).results == (ElectionResult("t", 0),)


def test_a_request_for_all_looks_at_no_partition_without_a_need(
    controllers: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at each of 200,000 would keep the loop for 0.1 s."""
    controllers.assign("many", *[(2, 3)] * 50)
    needs, seen = elections.needs_election, []
    monkeypatch.setattr(elections, "needs_election", lambda *about: seen.append(about) or needs(*about))
    for kind in (PREFERRED, UNCLEAN):
        controllers.ask(ElectLeaders(kind))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("kind", "code"),
    [(PREFERRED, PreferredLeaderNotAvailable.code), (UNCLEAN, 0)],
    ids=["preferred", "unclean"],
)
def test_a_request_for_all_names_partitions_without_a_leader(kind: int, code: int) -> None:
    """Both kinds of election are for them."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("led", (2, 3))
    controllers.assign("lost", (1, 2))
    controllers.alter("lost", (1,))
    controllers.die(1)
    assert controllers.partition("lost").leader == NO_BROKER
    results = controllers.ask(ElectLeaders(kind)).results
    assert [(each.topic, each.partition, each.error_code) for each in results] == [("lost", 0, code)]


def test_doubtful_broker_is_not_elected(controllers: ControllerCluster) -> None:
    """A preferred leader with a dropped connection must send a heartbeat first."""
    controllers.alter("t", (1, 2, 3))
    controllers.active.peer_lost(1, controllers.now)
    assert elect(controllers, PREFERRED, ("t", 0)) == [PreferredLeaderNotAvailable.code]


def test_unclean_elections_need_a_partition_without_a_leader(controllers: ControllerCluster) -> None:
    """By hand, where it is offline and a replica is alive; never where a leader stands."""
    controllers.assign("u", (3, 2))
    assert elect(controllers, UNCLEAN, ("u", 0)) == [ElectionNotNeeded.code]
    controllers.die(2)
    controllers.die(3)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [EligibleLeadersNotAvailable.code]
    controllers.come_back(2)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert (controllers.partition("u").leader, controllers.partition("u").isr) == (2, (2,))


def test_unclean_election_ends_a_lost_isr(controllers: ControllerCluster) -> None:
    """After the only replica came back with an empty disk an operator must decide."""
    controllers.assign("u", (3,))
    controllers.die(3)
    controllers.come_back(3, wiped=True)
    assert controllers.partition("u").isr_lost
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert (controllers.partition("u").leader, controllers.partition("u").isr_lost) == (3, False)


def test_unclean_election_waits_for_replicas_that_may_have_what_the_lost_isr_lacks(
    controllers: ControllerCluster,
) -> None:
    """An emptied disk leads only once all other replicas' brokers are unregistered."""
    controllers.assign("u", (3, 1))
    controllers.die(1)
    controllers.die(3)
    controllers.come_back(3, wiped=True)
    assert controllers.partition("u").isr_lost
    (refused,) = controllers.ask(ElectLeaders(UNCLEAN, (("u", 0),))).results
    assert refused.error_code == EligibleLeadersNotAvailable.code
    assert "[1]" in refused.error_message
    controllers.come_back(1)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert controllers.partition("u").leader == 1


def test_unclean_election_prefers_no_added_replica_to_one_that_is_away(
    controllers: ControllerCluster,
) -> None:
    """The added replica may have no record yet."""
    controllers.assign("u", (3, 1))
    controllers.die(1)
    controllers.ask(AlterReassignments((Reassignment("u", 0, (3, 1, 2)),)))
    controllers.die(3)
    controllers.come_back(3, wiped=True)
    state = controllers.partition("u")
    assert (state.isr_lost, state.adding_replicas) == (True, (2,))
    assert elect(controllers, UNCLEAN, ("u", 0)) == [EligibleLeadersNotAvailable.code]
    controllers.come_back(1)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert controllers.partition("u").leader == 1


def test_unclean_election_of_a_lost_isr_needs_no_unregistered_replica(controllers: ControllerCluster) -> None:
    """Without this a partition would stay offline after its other machines are gone for good."""
    controllers.assign("u", (3, 1))
    controllers.die(1)
    controllers.die(3)
    controllers.come_back(3, wiped=True)
    controllers.ask(UnregisterBroker(1))
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert controllers.partition("u").leader == 3


def test_unclean_election_passes_an_emptied_replica_over_while_the_isr_is_away(
    controllers: ControllerCluster,
) -> None:
    """It was not the last of its ISR. The members of the ISR have all records, and lead as soon as they are back."""
    controllers.assign("u", (3, 1, 2))
    for each in (3, 1, 2):
        controllers.die(each)
    controllers.come_back(3, wiped=True)
    assert (controllers.partition("u").isr, controllers.partition("u").isr_lost) == ((2,), False)
    (refused,) = controllers.ask(ElectLeaders(UNCLEAN, (("u", 0),))).results
    assert refused.error_code == EligibleLeadersNotAvailable.code
    assert "[1, 2]" in refused.error_message
    controllers.die(3)
    controllers.come_back(3)
    controllers.restart_from_snapshot(1)
    controllers.elect(1)
    controllers.heartbeat(3)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [EligibleLeadersNotAvailable.code], (
        "its next life has as little"
    )
    controllers.ask(UnregisterBroker(1))
    assert elect(controllers, UNCLEAN, ("u", 0)) == [EligibleLeadersNotAvailable.code]
    controllers.come_back(2)
    assert controllers.partition("u").leader == 2


def test_unclean_election_makes_an_emptied_replica_lead_once_all_others_are_unregistered(
    controllers: ControllerCluster,
) -> None:
    """Without this a partition would stay offline after its other machines are gone for good."""
    controllers.assign("u", (3, 1))
    controllers.die(1)
    controllers.die(3)
    controllers.come_back(1, wiped=True)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [EligibleLeadersNotAvailable.code]
    controllers.ask(UnregisterBroker(3))
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert controllers.partition("u").leader == 1


def test_replica_counts_as_emptied_until_all_replicas_of_its_broker_are_in_sync(
    controllers: ControllerCluster,
) -> None:
    """The record is written with the next heartbeat. A replica that lags for another reason may be elected."""
    controllers.assign("u", (2, 3), (2, 3))
    controllers.die(3)
    controllers.come_back(3, wiped=True)
    controllers.alter("u", (2, 3))
    controllers.heartbeat(3)
    assert controllers.image.brokers[3].disk_lost
    controllers.alter("u", (2, 3), partition=1)
    controllers.alter("t", controllers.partition("t").replicas)
    controllers.alter("t", controllers.partition("t", 1).replicas, partition=1)
    assert controllers.image.brokers[3].disk_lost
    controllers.heartbeat(3)
    assert not controllers.image.brokers[3].disk_lost
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(3)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [0]
    assert controllers.partition("u").leader == 3


def test_last_member_of_a_lost_isr_is_not_refilled(controllers: ControllerCluster) -> None:
    """It stays in that ISR without any records."""
    controllers.start(4)
    controllers.assign("u", (4,))
    controllers.die(4)
    controllers.come_back(4, wiped=True)
    controllers.heartbeat(4)
    assert controllers.partition("u").isr == (4,)
    assert controllers.image.brokers[4].disk_lost


def test_broker_that_was_unregistered_may_come_back_with_any_disk(controllers: ControllerCluster) -> None:
    """Its directories are unknown, so its replicas count as emptied. A new broker has no replicas."""
    controllers.assign("u", (3, 1))
    controllers.die(1)
    controllers.ask(UnregisterBroker(1))
    controllers.come_back(1)
    assert controllers.image.brokers[1].disk_lost
    controllers.die(3)
    assert elect(controllers, UNCLEAN, ("u", 0)) == [EligibleLeadersNotAvailable.code]
    controllers.start(9)
    assert not controllers.image.brokers[9].disk_lost


def test_lost_disk_is_recorded_once_the_level_allows() -> None:
    """0.3.0 would skip the field, so that nodes' images would differ."""
    older = ControllerCluster()
    for controller in older.controllers.values():
        controller.features = SUPPORTED_FEATURES[:-1]
    older.start(1, 2, 3)
    older.assign("u", (3, 1))
    older.die(1)
    older.come_back(1, wiped=True)
    assert not older.image.brokers[1].disk_lost


def test_unknown_kind_is_refused(controllers: ControllerCluster) -> None:
    """Only preferred and unclean exist."""
    assert controllers.ask(ElectLeaders(7)).error_code == InvalidRequest.code


def test_leadership_returns_by_itself(controllers: ControllerCluster) -> None:
    """After leader.imbalance.check.interval.seconds preferred leaders lead again, in one batch."""
    controllers.alter("t", (1, 2, 3))
    assert controllers.partition("t").leader == 2
    controllers.advance(299, heartbeats=(1, 2, 3))
    assert controllers.partition("t").leader == 2
    controllers.advance(2, heartbeats=(1, 2, 3))
    assert controllers.partition("t").leader == 1


def test_rebalancing_can_be_switched_off() -> None:
    """auto.leader.rebalance.enable=false leaves leaders where they are."""
    controllers = ControllerCluster(auto_leader_rebalance_enable=False)
    controllers.start(1, 2)
    controllers.assign("t", (1, 2))
    controllers.die(1)
    controllers.come_back(1)
    controllers.alter("t", (1, 2))
    controllers.advance(301, heartbeats=(1, 2))
    assert controllers.partition("t").leader == 2
