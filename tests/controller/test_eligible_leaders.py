"""Replicas that left an ISR below min.insync.replicas may lead when no ISR member is in service (KIP-966)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftlog.base.config import NodeConfig
from raftlog.base.errors import InvalidReplicaAssignment
from raftlog.controller.broker_availability import BrokerAvailability
from raftlog.controller.eligible_leaders import ELIGIBLE_SINCE, min_insync_rule, with_eligible_leaders
from raftlog.controller.leader_and_isr import update_leader_and_isr
from raftlog.controller.reassignment_completion import complete_reassignment
from raftlog.metadata.controller_api import (
    AlterConfigs,
    AlterReassignments,
    ConfigAlteration,
    ConfigOp,
    Reassignment,
    UnregisterBroker,
)
from raftlog.metadata.image import PartitionState
from raftlog.metadata.metadata_records import PartitionChanged
from raftlog.metadata.record_replay import changed
from tests.controller.controller_cluster import ControllerCluster
from tests.metadata.test_record_levels import at_level

TOPIC = "t"


def made(**config: Any) -> ControllerCluster:
    """Return three brokers with one partition that needs two replicas in sync; broker 1 leads."""
    controllers = ControllerCluster(min_insync_replicas=2, **config)
    controllers.start(1, 2, 3)
    controllers.assign(TOPIC, (1, 2, 3))
    return controllers


@pytest.fixture
def controllers() -> ControllerCluster:
    return made()


def state(controllers: ControllerCluster) -> PartitionState:
    return controllers.image.topics[TOPIC].partitions[0]


def seen(controllers: ControllerCluster) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the leader, the ISR and the eligible leaders."""
    now = state(controllers)
    return now.leader, now.isr, now.eligible


def set_min_insync(controllers: ControllerCluster, value: str) -> None:
    controllers.ask(
        AlterConfigs((ConfigAlteration("topic", TOPIC, (ConfigOp("min.insync.replicas", value),)),))
    )


def test_who_leaves_while_enough_are_in_sync_is_not_eligible(controllers: ControllerCluster) -> None:
    """More is committed without it."""
    controllers.die(3)
    assert seen(controllers) == (1, (1, 2), ())


def test_who_leaves_an_isr_that_is_too_small_is_eligible_until_it_grows(
    controllers: ControllerCluster,
) -> None:
    """The high watermark stands meanwhile."""
    controllers.die(3)
    controllers.die(2)
    assert seen(controllers) == (1, (1,), (2,))
    controllers.come_back(3)
    controllers.alter(TOPIC, (1, 3))
    assert seen(controllers) == (1, (1, 3), ())


@pytest.mark.parametrize("back", [1, 2])
def test_whichever_of_the_last_two_comes_back_first_leads(controllers: ControllerCluster, back: int) -> None:
    """The other is eligible then; the third, which left before them, waits."""
    for each in (3, 2, 1):
        controllers.die(each)
    assert seen(controllers) == (-1, (1, 2), ())
    controllers.come_back(3)
    assert seen(controllers) == (-1, (1, 2), ())
    controllers.come_back(back)
    assert seen(controllers) == (back, (back,), (3 - back,))
    assert state(controllers).unclean_epoch == -1, "it was a clean election"


def test_eligible_leader_that_runs_takes_over_at_once(controllers: ControllerCluster) -> None:
    """It is back, and not in sync yet, when the leader dies."""
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(2)
    assert seen(controllers) == (1, (1,), (2,))
    controllers.die(1)
    assert seen(controllers) == (2, (2,), (1,))


def test_lost_disk_ends_the_eligibility(controllers: ControllerCluster) -> None:
    """Also where the replica is the only eligible leader: the partition waits for its last leader then."""
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(2, wiped=True)
    assert seen(controllers) == (1, (1,), ())
    controllers.die(1)
    assert seen(controllers) == (-1, (1,), ())
    assert not state(controllers).isr_lost


def test_damage_ends_the_eligibility(controllers: ControllerCluster) -> None:
    """The broker reports it with a heartbeat, whether it follows or starts."""
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(2)
    controllers.heartbeat(2, damaged=((controllers.image.topics[TOPIC].topic_id, 0),))
    assert seen(controllers) == (1, (1,), ())


def test_eligible_leaders_take_the_place_of_a_last_member_without_its_disk(
    controllers: ControllerCluster,
) -> None:
    """They have all that is committed, so no record is lost."""
    controllers.die(3)
    controllers.die(2)
    controllers.die(1)
    controllers.come_back(1, wiped=True)
    assert seen(controllers) == (-1, (2,), ())
    assert not state(controllers).isr_lost
    controllers.come_back(2)
    assert seen(controllers) == (2, (2,), ())


def test_controlled_shutdown_waits_for_an_eligible_leader_in_service(controllers: ControllerCluster) -> None:
    """It is in sync soon, and takes over with all records, also of acks=1. Kafka elects it at once."""
    controllers.die(3)
    controllers.die(2)
    assert controllers.heartbeat(1, want_shutdown=True).should_shutdown, "no other broker can lead"
    controllers.come_back(2)
    assert not controllers.heartbeat(1, want_shutdown=True).should_shutdown
    assert seen(controllers) == (1, (1,), (2,))
    controllers.alter(TOPIC, (1, 2))
    assert seen(controllers) == (2, (2,), (1,))
    assert controllers.heartbeat(1, want_shutdown=True).should_shutdown


def test_eligible_leader_takes_over_from_a_broker_that_stops_before(controllers: ControllerCluster) -> None:
    """The broker gave up waiting."""
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(2)
    controllers.heartbeat(1, want_shutdown=True)
    controllers.die(1)
    assert seen(controllers) == (2, (2,), (1,))


def only_the_added_is_in_sync(controllers: ControllerCluster) -> None:
    """Broker 4 comes for brokers 1 to 3, and is the last in sync; 1 and 2 are eligible."""
    controllers.come_back(4)
    controllers.ask(AlterReassignments((Reassignment(TOPIC, 0, (4, 5)),)))
    controllers.alter(TOPIC, (1, 2, 3, 4))
    controllers.die(3)
    controllers.die(1)
    controllers.die(2)
    assert seen(controllers) == (4, (4,), (2,))


def cancelled(controllers: ControllerCluster) -> int:
    reply = controllers.ask(AlterReassignments((Reassignment(TOPIC, 0, None),)))
    return int(reply.results[0].error_code)


def test_cancelled_reassignment_goes_back_to_an_eligible_leader() -> None:
    """It has all that is committed, so Kafka's refusal would keep the operator for no reason."""
    controllers = made()
    controllers.start(5)
    only_the_added_is_in_sync(controllers)
    assert cancelled(controllers) == InvalidReplicaAssignment.code
    controllers.come_back(1)
    assert cancelled(controllers) == InvalidReplicaAssignment.code, "it left while enough were in sync"
    controllers.come_back(2)
    assert cancelled(controllers) == 0
    assert seen(controllers) == (2, (2,), ())
    assert (state(controllers).replicas, state(controllers).unclean_epoch) == ((1, 2, 3), -1)


def damaged_last(controllers: ControllerCluster) -> None:
    """Have broker 1, the last in sync, report damage; broker 2 is eligible, and fenced."""
    controllers.die(3)
    controllers.die(2)
    report_damage(controllers, 1)


def report_damage(controllers: ControllerCluster, broker_id: int) -> None:
    controllers.heartbeat(broker_id, damaged=((controllers.image.topics[TOPIC].topic_id, 0),))


def test_damaged_last_member_leads_for_reading_until_an_eligible_leader_comes_back(
    controllers: ControllerCluster,
) -> None:
    """The election is clean: the eligible leader has all that is committed. The damaged replica has not."""
    damaged_last(controllers)
    assert seen(controllers) == (1, (1,), (2,))
    assert state(controllers).isr_lost and state(controllers).trusted == (2,)
    controllers.come_back(3)
    assert seen(controllers) == (1, (1,), (2,))
    controllers.come_back(2)
    assert seen(controllers) == (2, (2,), ())
    assert (state(controllers).isr_lost, state(controllers).unclean_epoch) == (False, -1)


@pytest.mark.parametrize("dies", [False, True])
def test_damaged_last_member_leads_for_reading_after_its_restart(
    controllers: ControllerCluster, dies: bool
) -> None:
    """Whether its damage was known before, or is found by its start."""
    if dies:
        damaged_last(controllers)
    else:
        controllers.die(3)
        controllers.die(2)
    controllers.die(1)
    controllers.register(1)
    report_damage(controllers, 1)
    assert seen(controllers) == (1, (1,), (2,))
    controllers.come_back(2)
    assert seen(controllers) == (2, (2,), ())


def test_lower_min_insync_replicas_keep_the_eligible_leaders_of_a_lost_isr(
    controllers: ControllerCluster,
) -> None:
    """The leader commits no record, so they still have all of them; without them only an unclean election is left."""
    damaged_last(controllers)
    set_min_insync(controllers, "1")
    controllers.advance(1.0, heartbeats=(1,))
    assert seen(controllers) == (1, (1,), (2,))
    controllers.come_back(2)
    assert seen(controllers) == (2, (2,), ())


@pytest.mark.parametrize("wiped", [False, True])
def test_no_eligible_leader_is_left_of_a_lost_isr_if_its_records_are_gone_too(
    controllers: ControllerCluster, wiped: bool
) -> None:
    """It comes back with another disk, or damaged as well: an operator must decide."""
    damaged_last(controllers)
    controllers.register(2, wiped=wiped)
    report_damage(controllers, 2)
    assert seen(controllers) == (1, (1,), ())
    assert state(controllers).isr_lost


def test_damaged_eligible_leader_of_a_lost_isr_is_elected_as_unclean(controllers: ControllerCluster) -> None:
    """Its former eligibility would make the election look clean, and no replica may truncate committed records then."""
    damaged_last(controllers)
    controllers.die(1)
    allowed = ConfigOp("unclean.leader.election.enable", "true")
    controllers.ask(AlterConfigs((ConfigAlteration("topic", TOPIC, (allowed,)),)))
    assert seen(controllers) == (-1, (1,), (2,))
    controllers.register(2)
    report_damage(controllers, 2)
    assert seen(controllers) == (2, (2,), ())
    assert state(controllers).unclean_epoch == state(controllers).leader_epoch


def test_only_eligible_leader_of_a_lost_isr_may_be_unregistered_and_come_back(
    controllers: ControllerCluster,
) -> None:
    """No other replica has all that is committed. With another disk it has nothing."""
    damaged_last(controllers)
    controllers.ask(UnregisterBroker(2))
    assert seen(controllers) == (1, (1,), (2,))
    assert controllers.image.unregistered[2].directory_ids == (controllers.disks[2],)
    controllers.come_back(2)
    assert seen(controllers) == (2, (2,), ())
    assert state(controllers).unclean_epoch == -1


def test_unregistered_eligible_leader_of_a_lost_isr_is_not_trusted_with_another_disk(
    controllers: ControllerCluster,
) -> None:
    """Its registration is known, so another disk is noticed."""
    damaged_last(controllers)
    controllers.ask(UnregisterBroker(2))
    controllers.come_back(2, wiped=True)
    assert seen(controllers) == (1, (1,), ())


def test_one_of_two_eligible_leaders_of_a_lost_isr_is_not_eligible_once_it_is_unregistered(
    controllers: ControllerCluster,
) -> None:
    """The other has what it has."""
    set_min_insync(controllers, "3")
    damaged_last(controllers)
    assert seen(controllers) == (1, (1,), (2, 3))
    controllers.ask(UnregisterBroker(2))
    assert seen(controllers) == (1, (1,), (3,))
    assert controllers.image.unregistered == {}


def test_reassignment_is_not_cancelled_while_only_added_replicas_are_eligible_in_a_lost_isr() -> None:
    """The original replica that leads for reading lacks records."""
    controllers = made()
    controllers.start(4, 5)
    controllers.ask(AlterReassignments((Reassignment(TOPIC, 0, (4, 5)),)))
    controllers.alter(TOPIC, (1, 2, 3, 4))
    controllers.alter(TOPIC, (1, 4))
    controllers.die(4)
    report_damage(controllers, 1)
    assert state(controllers).isr_lost and seen(controllers) == (1, (1,), (4,))
    assert cancelled(controllers) == InvalidReplicaAssignment.code
    assert seen(controllers) == (1, (1,), (4,))
    controllers.come_back(4)
    assert seen(controllers) == (4, (4,), ())


def test_unregistration_survives_an_unclean_election_that_ends_a_reassignment(
    controllers: ControllerCluster,
) -> None:
    """It applies the records of its updates, and eligible leaders are no replicas any more."""
    controllers.start(4)
    damaged_last(controllers)
    controllers.die(1)
    allowed = ConfigOp("unclean.leader.election.enable", "true")
    controllers.ask(AlterConfigs((ConfigAlteration("topic", TOPIC, (allowed,)),)))
    controllers.ask(AlterReassignments((Reassignment(TOPIC, 0, (4,)),)))
    controllers.ask(UnregisterBroker(3))
    assert seen(controllers) == (4, (4,), ()) and state(controllers).replicas == (4,)
    assert controllers.image.unregistered == {}


def test_end_of_a_reassignment_leaves_no_eligible_leader_that_is_no_replica() -> None:
    """Its record can be applied as it is."""
    before = PartitionState((2, 3, 1), (2, 3), 2, removing_replicas=(1,), eligible=(1,))
    end = complete_reassignment(
        UUID(int=1), 0, before, BrokerAvailability(frozenset((2, 3)), frozenset(), frozenset())
    )
    assert end is not None
    assert changed(before, end).eligible == ()


def test_eligible_leaders_take_the_place_of_a_reader_that_gets_another_disk(
    controllers: ControllerCluster,
) -> None:
    """There is nothing to read any more, and the ISR is not lost."""
    damaged_last(controllers)
    controllers.die(1)
    assert seen(controllers) == (-1, (1,), (2,))
    controllers.come_back(1, wiped=True)
    assert seen(controllers) == (-1, (2,), ())
    assert not state(controllers).isr_lost


def test_damaged_last_member_does_not_lead_where_no_replica_may_be_eligible() -> None:
    """log.flush.policy=os, or an older level: only the ISR says which replica has all records."""
    controllers = made(log_flush_policy="os")
    controllers.die(3)
    for each in (2, 1):
        controllers.active.peer_lost(each, controllers.now)
    controllers.advance(30.0, heartbeats=())
    assert seen(controllers) == (-1, (1, 2), ())
    controllers.register(1)
    report_damage(controllers, 1)
    assert seen(controllers) == (-1, (2,), ())


def test_answer_to_the_leader_names_the_eligible_leaders(controllers: ControllerCluster) -> None:
    """So it commits no record between the answer and the metadata."""
    controllers.alter(TOPIC, (1, 2))
    answer = controllers.alter(TOPIC, (1,))
    assert (answer.isr, answer.eligible) == ((1,), (2,))


def test_lower_min_insync_replicas_end_the_eligibility(controllers: ControllerCluster) -> None:
    """Within a tick: the leader is enough then, and commits alone."""
    controllers.die(3)
    controllers.die(2)
    set_min_insync(controllers, "1")
    assert seen(controllers) == (1, (1,), (2,))
    controllers.advance(1.0, heartbeats=(1,))
    assert seen(controllers) == (1, (1,), ())


def test_min_insync_replicas_of_the_leaders_broker_count(controllers: ControllerCluster) -> None:
    """A broker's dynamic config is over the cluster's: the leader refuses acks=all by its own."""
    own = ConfigAlteration("broker", "1", (ConfigOp("min.insync.replicas", "1"),))
    controllers.die(3)
    controllers.die(2)
    controllers.ask(AlterConfigs((own,)))
    controllers.advance(1.0, heartbeats=(1,))
    assert seen(controllers) == (1, (1,), ())


def test_removed_replica_is_not_eligible(controllers: ControllerCluster) -> None:
    """A reassignment takes it away."""
    controllers.die(3)
    controllers.die(2)
    controllers.ask(AlterReassignments((Reassignment(TOPIC, 0, (1, 3)),)))
    assert 2 not in state(controllers).target_replicas
    controllers.come_back(3)
    controllers.alter(TOPIC, (1, 3))
    assert state(controllers).replicas == (1, 3)
    assert seen(controllers) == (1, (1, 3), ())


def test_unclean_election_ends_the_eligibility_of_the_others() -> None:
    """What the elected replica has is what is committed from now on."""
    controllers = made(unclean_leader_election_enable=True)
    for each in (3, 2, 1):
        controllers.die(each)
    controllers.come_back(3)
    assert seen(controllers) == (3, (3,), ())
    assert state(controllers).unclean_epoch == state(controllers).leader_epoch


def test_no_replica_is_eligible_where_a_power_loss_may_take_what_counts() -> None:
    """log.flush.policy=os."""
    controllers = made(log_flush_policy="os")
    controllers.die(3)
    controllers.die(2)
    assert seen(controllers) == (1, (1,), ())


def test_no_replica_is_eligible_before_the_level_allows_it() -> None:
    """An older release reads over the field, so that it would commit beside eligible leaders."""
    config = NodeConfig(node_id=1)
    assert min_insync_rule(at_level(ELIGIBLE_SINCE - 1), config) is None
    rule = min_insync_rule(at_level(ELIGIBLE_SINCE), config)
    assert rule is not None and rule(TOPIC, 1) == 1
    leaves = PartitionChanged(UUID(int=1), 0, isr=(1,), eligible=(2,))
    before = PartitionState((1, 2), (1, 2), 1)
    assert with_eligible_leaders(before, leaves, TOPIC, None).eligible is None


@pytest.mark.parametrize("is_eligible_before", [True, False])
def test_unregistered_broker_is_not_eligible(
    controllers: ControllerCluster, is_eligible_before: bool
) -> None:
    """The metadata forgets its incarnation, so a new disk or an older copy would look like its own."""
    controllers.die(3)
    if is_eligible_before:
        controllers.die(2)
    controllers.ask(UnregisterBroker(2))
    assert seen(controllers) == (1, (1,), ())
    controllers.come_back(2, wiped=True)
    controllers.die(1)
    assert seen(controllers) == (-1, (1,), ())


def test_unregistered_leader_hands_over_to_an_eligible_leader(controllers: ControllerCluster) -> None:
    """It is not eligible itself, wherever it comes back from."""
    controllers.die(3)
    controllers.die(2)
    controllers.come_back(2)
    controllers.ask(UnregisterBroker(1))
    assert seen(controllers) == (2, (2,), ())


def test_record_that_has_eligible_leaders_join_can_be_applied_as_it_is() -> None:
    """A decision looks at the outcome before the eligible leaders are added to its records."""
    state = PartitionState((1, 2, 3), (1,), 1, eligible=(2,))
    for alive, isr in ((), (1, 2)), ((2,), (2,)):
        availability = BrokerAvailability(frozenset(alive), frozenset(), frozenset())
        change = update_leader_and_isr(UUID(int=1), 0, state, availability=availability, unclean=False)
        assert change is not None
        after = changed(state, change)
        assert after.isr == isr
        assert set(after.eligible).isdisjoint(after.isr)


def test_end_of_the_eligibility_is_tried_again(controllers: ControllerCluster) -> None:
    """The quorum may be full when the controller looks at the changed configs."""
    controllers.die(3)
    controllers.die(2)
    set_min_insync(controllers, "1")
    controllers.refusals = 1
    controllers.advance(1.0, heartbeats=(1,))
    assert controllers.refusals == 0
    assert seen(controllers) == (1, (1,), ())


def test_end_of_the_eligibility_that_is_lost_with_its_leader_is_decided_again(
    controllers: ControllerCluster,
) -> None:
    """The same node leads again, with the configs that it has judged by already."""
    controllers.die(3)
    controllers.die(2)
    controllers.commit_at_once = False
    controllers.submit(
        AlterConfigs((ConfigAlteration("topic", TOPIC, (ConfigOp("min.insync.replicas", "1"),)),))
    )
    controllers.commit()
    controllers.now += 0.3
    controllers.active.tick(controllers.now)
    assert controllers.commit_index == len(controllers.journal) - 1
    controllers.elect(1, keep=0)
    controllers.commit_at_once = True
    controllers.commit()
    controllers.advance(1.0, heartbeats=(1,))
    assert seen(controllers) == (1, (1,), ())
