"""Decisions that take several batches: what the next batch must not undo, and what needs no further request."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from raftlog.controller import leader_and_isr
from tests.controller.controller_cluster import ControllerCluster


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> ControllerCluster:
    """Two partition records fill a batch."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 2)
    controllers = ControllerCluster(min_insync_replicas=2)
    controllers.start(1, 2, 3)
    return controllers


def test_a_controlled_shutdown_of_many_partitions_needs_one_heartbeat(controllers: ControllerCluster) -> None:
    """The leaderships move batch by batch; the next heartbeat says that the broker may stop."""
    controllers.assign("t", *[(1, 2)] * 7)
    reply = controllers.heartbeat(1, want_shutdown=True)
    assert not reply.should_shutdown, "the first batch has moved two"
    assert {(each.leader, each.isr) for each in controllers.image.topics["t"].partitions} == {(2, (2,))}
    assert controllers.heartbeat(1, want_shutdown=True).should_shutdown


@pytest.mark.parametrize("damaged", [(6,), range(7)])
def test_a_broker_is_unfenced_with_no_damaged_replica_in_sync(
    controllers: ControllerCluster, damaged: Sequence[int]
) -> None:
    """However many partitions wait for it, or are damaged: the batch after it would elect those replicas."""
    controllers.assign("t", *[(1, 2)] * 7)
    controllers.die(2)
    controllers.die(1)
    last = controllers.image.topics["t"]
    assert {each.leader for each in last.partitions} == {-1}
    controllers.active.peer_connected(1, controllers.now)
    controllers.register(1)
    controllers.commit_at_once = False
    controllers.heartbeat(1, damaged=tuple((last.topic_id, each) for each in damaged))
    while controllers.commit_index < len(controllers.journal):
        controllers.commit(1)
        for each in damaged:
            state = controllers.image.topics["t"].partitions[each]
            assert state.isr_lost or state.leader != 1
            assert controllers.image.brokers[1].fenced or state.isr_lost or 1 not in state.isr
    assert not controllers.image.brokers[1].fenced


def test_a_broker_is_unfenced_with_its_damaged_replicas_that_have_room(
    controllers: ControllerCluster,
) -> None:
    """In one batch, so that no client waits for a second one."""
    controllers.assign("t", (1, 2))
    controllers.die(2)
    controllers.die(1)
    controllers.active.peer_connected(1, controllers.now)
    controllers.register(1)
    before = len(controllers.journal)
    controllers.heartbeat(1, damaged=((controllers.image.topics["t"].topic_id, 0),))
    assert len(controllers.journal) == before + 1
    assert not controllers.image.brokers[1].fenced


def test_a_sound_broker_is_unfenced_before_the_partitions_of_another(controllers: ControllerCluster) -> None:
    """The leaderships of the broker that has died fill several batches."""
    controllers.assign("t", *[(2, 3)] * 7)
    controllers.die(1)
    controllers.active.peer_connected(1, controllers.now)
    controllers.register(1)
    controllers.commit_at_once = False
    controllers.die(2)
    controllers.heartbeat(1)
    controllers.commit(3)
    assert {each.leader for each in controllers.image.topics["t"].partitions} == {2, 3}
    assert not controllers.image.brokers[1].fenced


def test_a_replica_of_a_lost_isr_leads_for_reading_with_the_batch_that_unfences_it(
    controllers: ControllerCluster,
) -> None:
    """Only the heartbeat names its damage: the batches after it would leave it without a leader."""
    controllers.assign("early", *[(1,)] * 7)
    controllers.assign("late", (1,))
    damaged = ((controllers.image.topics["late"].topic_id, 0),)
    controllers.heartbeat(1, damaged=damaged)
    controllers.die(1)
    assert (controllers.partition("late").leader, controllers.partition("late").isr_lost) == (-1, True)
    controllers.active.peer_connected(1, controllers.now)
    controllers.register(1)
    controllers.heartbeat(1, damaged=damaged)
    assert (controllers.partition("late").leader, controllers.partition("late").isr_lost) == (1, True)
    assert {each.leader for each in controllers.image.topics["early"].partitions} == {1}


def test_a_broker_asks_to_be_fenced_while_another_dies(controllers: ControllerCluster) -> None:
    """As with a failed disk: neither decision elects again what the other has taken offline."""
    controllers.assign("t", *((1, 2)[:: 1 if number % 2 else -1] for number in range(20)))
    controllers.commit_at_once = False
    controllers.heartbeat(1, want_fence=True)
    controllers.die(2)
    controllers.commit(60)
    assert controllers.image.brokers[1].fenced and controllers.image.brokers[2].fenced
    assert len(controllers.journal) == controllers.commit_index, "it comes to rest"
