"""The one rule for leader and ISR, as scenarios of brokers that come and go (Architecture 'Liveness', KIP-841)."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftlog.base.errors import InvalidRequest
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.leader_and_isr import LostReplicas, update_all_partitions, update_leader_and_isr
from raftlog.controller.partition_index import PartitionIndex
from raftlog.metadata.controller_api import UNCLEAN, ElectLeaders
from raftlog.metadata.image import PartitionState
from raftlog.metadata.metadata_records import UNCHANGED_LEADER
from tests.controller.controller_cluster import ControllerCluster, started

Outcome = tuple[int, tuple[int, ...], bool]


def settled(
    isr: tuple[int, ...],
    leader: int,
    *,
    alive: str = "",
    doubtful: str = "",
    leaving: str = "",
    unclean: bool = False,
    wiped: int = -1,
    lost: bool = False,
) -> Outcome | None:
    """(leader, isr, isr_lost) of a partition on 1, 2, 3 after settling; None if no record was needed."""
    state = PartitionState((1, 2, 3), isr, leader, isr_lost=lost)
    availability = BrokerAvailability(*(frozenset(map(int, group)) for group in (alive, doubtful, leaving)))
    change = update_leader_and_isr(
        UUID(int=1), 0, state, availability=availability, unclean=unclean, lost_replicas=LostReplicas(wiped)
    )
    if change is None:
        return None
    return (
        state.leader if change.leader == UNCHANGED_LEADER else change.leader,
        state.isr if change.isr is None else change.isr,
        state.isr_lost if change.isr_lost is None else change.isr_lost,
    )


def test_settled_partition_needs_no_record() -> None:
    """All alive, or doubtful members that are unfenced: no change is needed."""
    assert settled((1, 2, 3), 1, alive="123") is None
    assert settled((1, 2, 3), 1, alive="23", doubtful="1") is None
    assert settled((1, 2), 2, alive="1", doubtful="2") is None


@pytest.mark.parametrize(
    ("isr", "leader", "alive", "expected"),
    [
        ((1, 2, 3), 1, "23", (2, (2, 3), False)),
        ((1, 2, 3), 2, "23", (2, (2, 3), False)),
        ((3, 2), 3, "12", (2, (2,), False)),
        ((1,), 1, "23", (-1, (1,), False)),
        ((1, 2), -1, "2", (2, (2,), False)),
        ((1,), -1, "123", (1, (1,), False)),
    ],
)
def test_members_that_are_gone_leave_while_one_is_alive(
    isr: tuple[int, ...], leader: int, alive: str, expected: Outcome
) -> None:
    """The leader is replaced in the replicas' order; the last member stays in the isr, leaderless."""
    assert settled(isr, leader, alive=alive) == expected


def test_isr_stands_still_while_no_member_is_alive() -> None:
    """All members have every committed record, so the first to come back may lead."""
    assert settled((1, 2, 3), 1) == (-1, (1, 2, 3), False)
    assert settled((1, 2, 3), -1) is None
    assert settled((1, 2, 3), -1, alive="3") == (3, (3,), False)


def test_doubtful_members_are_neither_trusted_nor_dropped() -> None:
    """A doubtful member leads only if no member is alive, and stays in the isr beside the living."""
    assert settled((1, 2, 3), 1, alive="3", doubtful="2") == (3, (2, 3), False)
    assert settled((1, 2), 1, alive="3", doubtful="2") == (2, (1, 2), False)
    assert settled((1, 2), 2, alive="3", doubtful="2") is None


def test_leaving_broker_leads_on_where_no_other_can() -> None:
    """Controlled shutdown hands over to live members, and keeps the partitions that it alone has (KIP-631)."""
    assert settled((1, 2, 3), 1, alive="23", leaving="1") == (2, (2, 3), False)
    assert settled((1, 2), 2, alive="23", leaving="1") == (2, (2,), False)
    assert settled((1,), 1, alive="23", leaving="1") is None
    assert settled((1,), -1, alive="23", leaving="1") is None
    assert settled((1, 2), 1, alive="3", leaving="1", doubtful="2") is None


def test_wiped_disk_is_never_taken_for_the_old_replica() -> None:
    """Another disk leaves every isr that has another member, even a dead member; alone, it loses the isr."""
    assert settled((1, 2), -1, alive="3", wiped=1) == (-1, (2,), False)
    assert settled((1, 2, 3), 1, alive="23", wiped=1) == (2, (2, 3), False)
    assert settled((1,), -1, alive="23", wiped=1) == (-1, (1,), True)
    assert settled((1,), -1, alive="123", lost=True) is None


def test_unclean_election_only_where_it_is_allowed_and_needed() -> None:
    """The first live replica leads alone; a replica that was not wiped is preferred."""
    assert settled((1,), -1, alive="23") is None
    assert settled((1,), -1, alive="23", unclean=True) == (2, (2,), False)
    assert settled((1, 2), 1, alive="23", unclean=True) == (2, (2,), False)
    assert settled((1,), -1, alive="13", lost=True, unclean=True) == (3, (3,), False)
    assert settled((1,), -1, alive="1", lost=True, unclean=True) == (1, (1,), False)
    assert settled((1,), -1, unclean=True) is None


def test_last_replica_standing_stays_offline_until_it_returns() -> None:
    """ISR down to one, that broker dies, a stale replica comes: offline; the first returns: online, no record lost."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (2, 3))
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(3)
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (-1, (2,))
    controllers.come_back(2)
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (2, (2,))


def test_last_replica_with_another_disk_needs_an_unclean_election() -> None:
    """The sole isr member comes back wiped: offline, shown in the image, until an operator decides (Architecture)."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (2, 3))
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(2, wiped=True)
    controllers.come_back(3)
    state = controllers.partition("t")
    assert (state.leader, state.isr, state.isr_lost) == (-1, (2,), True)


def test_whole_cluster_killed_and_one_broker_never_returns() -> None:
    """All brokers but one restart at once: the others lead its partitions, with all that it committed."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.create("t", 6, 3)
    controllers.elect(1)
    for broker_id in (1, 2):
        controllers.register(broker_id)
    for broker_id in (1, 2):
        controllers.heartbeat(broker_id)
    controllers.active.on_probe_result(3, "refused", controllers.now)
    for state in controllers.image.topics["t"].partitions:
        assert state.leader in (1, 2)
        assert 3 not in state.isr


def test_leader_election_bumps_the_leader_epoch_and_isr_changes_do_not() -> None:
    """Followers of a partition with a staying leader go on fetching in the same epoch (KIP-497)."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (1, 2, 3), (2, 1, 3))
    controllers.die(2)
    assert (controllers.partition("t", 0).leader_epoch, controllers.partition("t", 0).partition_epoch) == (
        0,
        1,
    )
    assert (controllers.partition("t", 1).leader_epoch, controllers.partition("t", 1).partition_epoch) == (
        1,
        1,
    )


# -- damaged logs ---------------------------------------------------------------------------------------------------


def report(controllers: ControllerCluster, broker_id: int, topic: str, partition: int = 0) -> None:
    """Have a broker report in its heartbeat that one log is damaged."""
    controllers.heartbeat(broker_id, damaged=((controllers.image.topics[topic].topic_id, partition),))


def test_damaged_leader_hands_over_and_leaves_the_isr() -> None:
    """A replica that lacks acknowledged records must not count for them: mid-log damage is no torn tail."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (1, 2, 3), (1, 2, 3))
    report(controllers, 1, "t")
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (2, (2, 3))
    assert (controllers.partition("t", 1).leader, controllers.partition("t", 1).isr) == (1, (1, 2, 3))


def test_damaged_follower_leaves_the_isr() -> None:
    """It would be elected otherwise."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (1, 2, 3))
    report(controllers, 3, "t")
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (1, (1, 2))


def test_first_to_come_back_leads_for_reading_only_if_its_log_is_damaged() -> None:
    """While none was alive the ISR stood still. The other member, still dead, has everything and takes over cleanly."""
    controllers = ControllerCluster(broker_session_timeout_ms=1_000)
    controllers.start(1, 2, 3)
    controllers.assign("t", (1, 2))
    for broker_id in (1, 2):
        controllers.active.peer_lost(broker_id, controllers.now)
    controllers.advance(2.0, heartbeats=(3,))
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (-1, (1, 2))
    controllers.register(1)
    report(controllers, 1, "t")
    state = controllers.partition("t")
    assert (state.leader, state.isr, state.isr_lost, state.eligible) == (1, (1,), True, (2,))
    controllers.come_back(2)
    state = controllers.partition("t")
    assert (state.leader, state.isr, state.isr_lost, state.eligible) == (2, (2,), False, ())
    assert state.unclean_epoch == -1


def test_damaged_last_isr_member_leads_for_reading_until_an_unclean_election() -> None:
    """No other replica has the records: the sound part stays readable, and an operator must decide (KIP-460)."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (1, 2))
    controllers.alter("t", (1,))
    report(controllers, 1, "t")
    lost = controllers.partition("t")
    assert (lost.leader, lost.isr, lost.isr_lost, lost.leader_epoch) == (1, (1,), True, 0)
    controllers.die(1)
    controllers.come_back(1)
    assert controllers.partition("t").leader == -1
    report(controllers, 1, "t")
    assert (controllers.partition("t").leader, controllers.partition("t").isr_lost) == (1, True)
    controllers.die(2)
    controllers.ask(ElectLeaders(UNCLEAN, (("t", 0),)))
    chosen = controllers.partition("t")
    assert (chosen.leader, chosen.isr, chosen.isr_lost) == (1, (1,), False)
    assert chosen.unclean_epoch == chosen.leader_epoch == 3


def test_damaged_last_isr_member_is_elected_anew_where_unclean_elections_are_allowed() -> None:
    """unclean.leader.election.enable: availability over records, in an epoch of its own that says so."""
    controllers = ControllerCluster()
    controllers.start(1)
    controllers.create("t", unclean_leader_election_enable="true")
    report(controllers, 1, "t")
    state = controllers.partition("t")
    assert (state.leader, state.isr, state.isr_lost) == (1, (1,), False)
    assert state.unclean_epoch == state.leader_epoch == 1


def test_damaged_isr_member_that_comes_back_alone_is_elected_as_unclean() -> None:
    """The complete member is still away: a replica that lacks records must not be elected as if it had them."""
    controllers = ControllerCluster(broker_session_timeout_ms=1_000)
    controllers.start(1, 2)
    controllers.create("t", 1, 2, unclean_leader_election_enable="true")
    for broker_id in (1, 2):
        controllers.active.peer_lost(broker_id, controllers.now)
    controllers.advance(2.0)
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (
        -1,
        controllers.partition("t").replicas,
    )
    controllers.register(1)
    report(controllers, 1, "t")
    state = controllers.partition("t")
    assert (state.leader, state.isr, state.isr_lost) == (1, (1,), False)
    assert state.unclean_epoch == state.leader_epoch


def test_clean_election_is_not_marked_as_unclean() -> None:
    """A replica takes a damaged log as it is only where the mark names its own epoch."""
    controllers = ControllerCluster()
    controllers.start(1, 2)
    controllers.assign("t", (1, 2))
    controllers.die(1)
    assert (controllers.partition("t").leader, controllers.partition("t").unclean_epoch) == (2, -1)


def test_no_broker_joins_an_isr_whose_records_are_lost() -> None:
    """In sync with a leader that lacks records is not in sync: such a member would be elected as if it were."""
    controllers = ControllerCluster()
    controllers.start(1, 2)
    controllers.assign("t", (1, 2))
    controllers.alter("t", (1,))
    report(controllers, 1, "t")
    assert controllers.alter("t", (1, 2)).error_code == InvalidRequest.code
    assert controllers.partition("t").isr == (1,)


def test_partitions_are_updated_in_order_and_damaged_replicas_first() -> None:
    """A batch may not hold all of them; the order of a set would differ between controllers."""
    image = started(1, 2, **dict.fromkeys("cab", ((1, 2),) * 4)).image
    ids = {topic.topic_id: name for name, topic in image.topics.items()}
    damaged = frozenset(
        (image.topics[name].topic_id, number) for name, number in (("c", 0), ("b", 2), ("b", 1))
    )
    updates = update_all_partitions(
        image,
        BrokerAvailability(frozenset({1}), frozenset(), frozenset()),
        lambda _topic: False,
        index=PartitionIndex(),
        lost_replicas=LostReplicas(1, damaged),
    )
    first, rest = [("b", 1), ("b", 2), ("c", 0)], [(name, number) for name in "abc" for number in range(4)]
    found = [(ids[each.topic_id], each.partition) for each in updates.records]
    assert found == [*first, *(each for each in rest if each not in first)]


@pytest.mark.parametrize(
    ("state", "alive", "disk_lost", "leader"),
    [
        (PartitionState((1, 2, 3), (1,)), {2, 3}, {2}, 3),
        (PartitionState((1, 2, 3), (1,)), {2, 3}, {3}, 2),
        (PartitionState((1, 2, 3), (1,)), {2}, {2}, 2),
        (PartitionState((1, 2, 3), (1,), isr_lost=True), {1, 2, 3}, {1, 2}, 3),
        (PartitionState((1, 2, 3), (1,), isr_lost=True), {1, 2}, {1, 2}, 2),
        (PartitionState((1, 2, 3), (1,), adding_replicas=(3,)), {2, 3}, {2}, 3),
    ],
)
def test_unclean_election_prefers_a_replica_with_records(
    state: PartitionState, alive: set[int], disk_lost: set[int], leader: int
) -> None:
    """An emptied replica leads only if no other replica is alive: availability has precedence, as in Apache Kafka."""
    availability = BrokerAvailability(
        frozenset(alive), frozenset(), frozenset(), disk_lost=frozenset(disk_lost)
    )
    change = update_leader_and_isr(UUID(int=1), 0, state, availability=availability, unclean=True)
    assert change is not None
    assert (change.leader, change.isr or state.isr) == (leader, (leader,))
