"""The controller as a whole: which is active, which replies wait for commit, and when brokers are fenced."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidRequest, NotController, StaleBrokerEpoch
from raftlog.controller import leader_and_isr
from raftlog.controller.controller import MIN_TICK_S, TICK_S
from raftlog.metadata.broker_requests import AllocateProducerIds, ProducerIdBlock
from raftlog.metadata.controller_api import CreateTopics, ErrorReply, NewTopic, UnregisterBroker
from raftlog.metadata.metadata_records import (
    Batch,
    BrokerChanged,
    ControllerElected,
    PartitionChanged,
    decode_batch,
    encode_batch,
)
from raftlog.metadata.quorum_description import DescribeQuorum
from tests.controller.controller_cluster import ControllerCluster
from tests.kit.calls import calls_of

# --- the active controller


def test_controller_is_active_once_its_election_is_committed() -> None:
    """Before that it decides no request: its image may lack changes that its predecessor committed."""
    controllers = ControllerCluster(commit_at_once=False)
    controllers.elect(1)
    assert not controllers.active.active
    assert controllers.ask(CreateTopics(())) == ErrorReply(
        NotController.code, "this node is not the active controller"
    )
    controllers.commit(1)
    assert controllers.active.active


def test_first_controller_names_the_cluster() -> None:
    """By config or by chance (22 characters of Base64, as Kafka's), once for ever."""
    controllers = ControllerCluster(2)
    controllers.elect(1)
    name = controllers.image.cluster_id
    assert len(name) == 22
    controllers.elect(2)
    assert controllers.image.cluster_id == name
    named = ControllerCluster(cluster_id="mine")
    named.elect(1)
    assert named.image.cluster_id == "mine"


def test_refused_election_is_appended_again() -> None:
    """A quorum that takes no entry at that moment is asked again at the next tick."""
    controllers = ControllerCluster()
    controllers.refusals = 1
    controllers.elect(1)
    assert not controllers.active.active
    controllers.advance(0.1)
    assert controllers.active.active


def test_lost_tail_is_answered_with_not_controller() -> None:
    """A decision that is not committed is void, and its sender gets NOT_CONTROLLER."""
    controllers = ControllerCluster(2, commit_at_once=False)
    controllers.elect(1)
    controllers.commit()
    controllers.register(1)
    controllers.commit()
    controllers.heartbeat(1)
    controllers.commit()
    replies = controllers.submit(CreateTopics((NewTopic("t", 1, 1),)))
    assert replies == []
    controllers.elect(2, keep=0)
    controllers.commit()
    assert [each.error_code for each in replies] == [NotController.code]
    assert "t" not in controllers.image.topics


def test_kept_tail_is_neither_lost_nor_done_twice() -> None:
    """A new controller's election comes after its predecessor's tail, and decides on top of it."""
    controllers = ControllerCluster(2, commit_at_once=False)
    controllers.elect(1)
    controllers.commit()
    controllers.register(1)
    controllers.commit()
    controllers.heartbeat(1)
    controllers.commit()
    replies = controllers.submit(CreateTopics((NewTopic("t", 1, 1),)))
    controllers.elect(2, keep=1)
    again = controllers.submit(CreateTopics((NewTopic("t", 1, 1),)))
    assert [type(each) for each in again] == [ErrorReply]
    controllers.commit()
    assert "t" in controllers.image.topics
    assert [each.error_code for each in replies] == [NotController.code]
    (result,) = [
        each for reply in controllers.submit(CreateTopics((NewTopic("t", 1, 1),))) for each in reply.results
    ]
    assert result.error_code == 36


def test_later_epoch_ends_a_controller_without_notice() -> None:
    """Seeing another's election committed is enough: later requests are not for this controller to decide."""
    controllers = ControllerCluster()
    controllers.start(1)
    controllers.journal.append(encode_batch(Batch(9, 0, (ControllerElected(2, 9),))))
    controllers.commit()
    assert not controllers.active.active
    assert controllers.active.next_deadline is None


def test_leading_the_same_term_twice_changes_nothing(controllers: ControllerCluster) -> None:
    """The quorum may say it again."""
    batches = len(controllers.journal)
    controllers.active.on_elected(controllers.term, controllers.image, controllers.now)
    assert controllers.active.active
    assert len(controllers.journal) == batches


def test_reads_wait_for_the_tail_they_saw() -> None:
    """The response to a heartbeat without changes waits until the state that it rests on is committed."""
    controllers = ControllerCluster(commit_at_once=False)
    controllers.elect(1)
    controllers.commit()
    controllers.register(1)
    controllers.commit()
    unfenced, steady = controllers.heartbeat(1), controllers.heartbeat(1)
    assert (unfenced, steady) == ([], [])
    controllers.commit()
    assert [each.is_fenced for each in (*unfenced, *steady)] == [False, False]


def test_quorum_describes_itself(controllers: ControllerCluster) -> None:
    """DescribeQuorum is not the controller's to answer."""
    assert controllers.ask(DescribeQuorum()).error_code == InvalidRequest.code


def test_producer_ids_never_overlap(controllers: ControllerCluster) -> None:
    """Blocks follow one another over controllers and brokers; an old incarnation gets none (KIP-730)."""
    epochs = {each: controllers.image.brokers[each].broker_epoch for each in (1, 2)}
    assert controllers.ask(AllocateProducerIds(1, epochs[1])) == ProducerIdBlock(0, 1000)
    controllers.elect(1)
    assert controllers.ask(AllocateProducerIds(2, epochs[2])) == ProducerIdBlock(1000, 1000)
    assert controllers.ask(AllocateProducerIds(2, 0)).error_code == StaleBrokerEpoch.code


# --- liveness


def test_refused_probe_after_a_lost_connection_fences_in_one_batch(controllers: ControllerCluster) -> None:
    """kill -9: the connection drops, the port refuses, all of the broker's partitions move at once."""
    controllers.create("orders", 6, 3)
    batches = len(controllers.journal)
    controllers.active.peer_lost(2, controllers.now)
    assert controllers.probes == [2]
    controllers.active.on_probe_result(2, "refused", controllers.now)
    assert len(controllers.journal) == batches + 1
    assert controllers.image.brokers[2].fenced
    for state in controllers.image.topics["orders"].partitions:
        assert 2 not in state.isr
        assert state.leader in (1, 3)


def test_silence_after_a_lost_connection_is_death(controllers: ControllerCluster) -> None:
    """A FIN or RST, then no answer within the probe's 300 ms (Architecture)."""
    controllers.active.peer_lost(2, controllers.now)
    controllers.active.on_probe_result(2, "silent", controllers.now)
    assert controllers.image.brokers[2].fenced


def test_answering_broker_keeps_its_session(controllers: ControllerCluster) -> None:
    """Alive after a lost connection: it is probed once, and the session timeout decides."""
    controllers.active.peer_lost(2, controllers.now)
    controllers.active.on_probe_result(2, "alive", controllers.now)
    controllers.advance(2.9, heartbeats=(1, 3))
    assert not controllers.image.brokers[2].fenced
    assert controllers.probes == [2]
    controllers.advance(0.3, heartbeats=(1, 3))
    assert controllers.image.brokers[2].fenced


def test_heartbeat_overtakes_a_probe(controllers: ControllerCluster) -> None:
    """A verdict that comes after the broker's heartbeat is ignored."""
    controllers.active.peer_lost(2, controllers.now)
    controllers.heartbeat(2)
    controllers.active.on_probe_result(2, "refused", controllers.now)
    assert not controllers.image.brokers[2].fenced


def test_paused_broker_is_fenced_once_it_does_not_answer(controllers: ControllerCluster) -> None:
    """No connection drops, but its machine accepts another connection, without an answer."""
    controllers.advance(0.8, heartbeats=(1, 3))
    assert controllers.probes == []
    controllers.advance(0.3, heartbeats=(1, 3))
    assert controllers.probes == [2]
    controllers.active.on_probe_result(2, "accepted", controllers.now)
    assert controllers.image.brokers[2].fenced


def test_silent_broker_is_fenced_by_the_session_timeout(controllers: ControllerCluster) -> None:
    """Without a result of the probe broker.session.timeout.ms decides, no earlier and not much later."""
    controllers.advance(2.9, heartbeats=(1, 3))
    assert not controllers.image.brokers[2].fenced
    controllers.advance(0.2, heartbeats=(1, 3))
    assert controllers.image.brokers[2].fenced
    assert controllers.probes == [2]
    controllers.heartbeat(2)
    assert not controllers.image.brokers[2].fenced


def test_new_controller_probes_brokers_that_have_not_come_within_200_ms() -> None:
    """A dead broker is found at once, an absent broker by its session; a dead broker's partitions go to present
    brokers.
    """
    controllers = ControllerCluster(2)
    controllers.start(1, 2, 3)
    controllers.assign("t", (3, 2, 1))
    controllers.controllers[2].peer_connected(1, controllers.now)
    controllers.elect(2)
    controllers.advance(0.1)
    assert controllers.probes == []
    controllers.advance(0.2)
    assert controllers.probes == [3]
    controllers.heartbeat(1)
    controllers.heartbeat(2)
    controllers.active.on_probe_result(3, "silent", controllers.now)
    assert not controllers.image.brokers[3].fenced
    controllers.active.on_probe_result(3, "refused", controllers.now)
    assert controllers.image.brokers[3].fenced
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (2, (2, 1))


def test_predecessors_node_is_probed_at_once() -> None:
    """A controller that was killed with its broker is the likeliest to be dead; 200 ms are saved."""
    controllers = ControllerCluster(2)
    controllers.start(1, 2, 3)
    controllers.elect(2)
    assert controllers.probes == [1]
    controllers.active.on_probe_result(1, "refused", controllers.now)
    assert controllers.image.brokers[1].fenced


def test_member_in_doubt_is_dropped_or_kept_when_the_doubt_ends() -> None:
    """The isr stands still while its living are in doubt, and is settled by the first heartbeat."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (2, 3))
    controllers.elect(1)
    controllers.active.peer_lost(2, controllers.now)
    controllers.active.on_probe_result(2, "refused", controllers.now)
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (3, (2, 3))
    controllers.heartbeat(3)
    assert (controllers.partition("t").leader, controllers.partition("t").isr) == (3, (3,))


def test_own_stall_fences_no_broker(controllers: ControllerCluster) -> None:
    """A pause of the controller's own loop shifts all deadlines by its length (Architecture)."""
    controllers.advance(1.0, heartbeats=(1, 2, 3))
    controllers.now += 10
    with capture_logs() as logs:
        controllers.active.tick(controllers.now)
    assert [each["event"] for each in logs] == ["controller_stalled"]
    assert not any(broker.fenced for broker in controllers.image.brokers.values())
    controllers.advance(2.0, heartbeats=(1, 3))
    assert not controllers.image.brokers[2].fenced
    controllers.advance(1.5, heartbeats=(1, 3))
    assert controllers.image.brokers[2].fenced


def test_heartbeats_before_the_late_tick_do_not_hide_a_stall(controllers: ControllerCluster) -> None:
    """After a pause, what was in the sockets is handled first; it must not cost the others their session."""
    controllers.now += 10
    controllers.heartbeat(1)
    controllers.active.tick(controllers.now)
    assert not controllers.image.brokers[2].fenced


def test_next_deadline_is_the_next_thing_to_do(controllers: ControllerCluster) -> None:
    """A tick at least every TICK_S, sooner for a probe or a session, never in a busy loop."""
    controller = controllers.active
    controller.tick(controllers.now)
    assert controller.next_deadline == pytest.approx(controllers.now + TICK_S)
    controllers.advance(2.9)
    assert controller.next_deadline == pytest.approx(controllers.now + 0.1)
    controllers.refusals = 10**6
    controllers.advance(0.2)
    assert not controllers.image.brokers[2].fenced
    assert controller.next_deadline == pytest.approx(controllers.now + MIN_TICK_S)


def test_fencing_that_the_quorum_refused_is_tried_again(controllers: ControllerCluster) -> None:
    """A broker does not stay unfenced because one append failed."""
    controllers.refusals = 1
    controllers.die(2)
    assert not controllers.image.brokers[2].fenced
    controllers.advance(0.1)
    assert controllers.image.brokers[2].fenced


def test_settling_that_the_quorum_refused_is_tried_again() -> None:
    """An isr that stood still because of a doubt does not stay so because one append failed."""
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", (2, 3))
    controllers.elect(1)
    controllers.die(2)
    controllers.refusals = 1
    controllers.heartbeat(3)
    assert controllers.partition("t").isr == (2, 3)
    controllers.advance(0.1)
    assert controllers.partition("t").isr == (3,)


def test_fencing_under_way_is_not_begun_again() -> None:
    """While a fencing of several batches waits for commit, ticks and probes append no more."""
    controllers = ControllerCluster(commit_at_once=False)
    controllers.elect(1)
    controllers.commit()
    for broker_id in (1, 2):
        controllers.register(broker_id)
        controllers.commit()
        controllers.heartbeat(broker_id)
        controllers.commit()
    controllers.submit(CreateTopics((NewTopic("t", 10, 2),)))
    controllers.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
        controllers.die(2)
        batches = len(controllers.journal)
        controllers.active.on_probe_result(2, "refused", controllers.now)
        controllers.advance(0.2)
        assert len(controllers.journal) == batches
        controllers.commit()
    assert controllers.image.brokers[2].fenced


def test_fenced_brokers_are_not_probed(controllers: ControllerCluster) -> None:
    """A broker that leads no partition need not be found out about."""
    controllers.die(2)
    controllers.probes.clear()
    controllers.active.peer_lost(2, controllers.now)
    assert controllers.probes == []


# --- what an operator reads


def events(logs: list[Any]) -> list[str]:
    return [each["event"] for each in logs]


def test_events_are_written_at_commit() -> None:
    """A line on the timeline reports facts, not intentions."""
    controllers = ControllerCluster(2, commit_at_once=False)
    controllers.elect(1)
    controllers.commit()
    with capture_logs() as logs:
        controllers.register(1)
        assert "controller_registered_broker" not in events(logs)
        controllers.commit()
    assert "controller_registered_broker" in events(logs)
    with capture_logs() as logs:
        controllers.heartbeat(1)
        controllers.elect(2, keep=0)
        controllers.commit()
    assert "controller_unfenced_broker" not in events(logs)


@pytest.mark.parametrize(
    ("unclean", "wiped", "event", "level"),
    [
        ("false", False, "partition_went_offline", "warning"),
        ("false", True, "isr_lost", "error"),
        ("true", False, "unclean_leader_elected", "error"),
    ],
)
def test_danger_to_data_is_loud(
    unclean: str, wiped: bool, event: str, level: str, controllers: ControllerCluster
) -> None:
    """Offline is a warning; a lost isr and an unclean election need a person."""
    controllers.create("t", 1, 3, unclean_leader_election_enable=unclean)
    leader = controllers.partition("t").leader
    controllers.alter("t", (leader,))
    with capture_logs() as logs:
        controllers.die(leader)
        if wiped:
            controllers.come_back(leader, wiped=True)
    found = [each for each in logs if each["event"] == event]
    assert [(each["log_level"], each["partitions"]) for each in found] == [(level, ["t-0"])]


# --- size


FENCE_CALLS, CREATE_CALLS = 30, 30
"""Python calls per partition, of deciding, applying and encoding together."""


def test_the_tail_shares_its_parts_with_the_committed_image() -> None:
    """Once there is no uncommitted change: each change of a leadership would otherwise be kept twice, and compared for
    ever.
    """
    controllers = ControllerCluster(3, commit_at_once=False)
    controllers.elect(1)
    controllers.commit()
    for broker_id in (1, 2, 3):
        controllers.register(broker_id)
        controllers.commit()
        controllers.heartbeat(broker_id)
        controllers.commit()
    controllers.submit(CreateTopics((NewTopic("t", 3, 3),)))
    assert controllers.active._runner.tail is not controllers.images[1]
    controllers.commit()
    assert controllers.active._runner.tail is controllers.images[1]
    assert controllers.images[1].topics


def test_broker_with_2000_partitions_is_fenced_in_one_batch(controllers: ControllerCluster) -> None:
    """Decide, apply, encode: one entry well below 4 MiB, and few enough calls for 50 ms on a slow machine."""
    batches = len(controllers.journal)
    assert calls_of(lambda: controllers.create("big", 2_000, 3)) < 2_000 * CREATE_CALLS
    assert len(controllers.journal) == batches + 1
    batches = len(controllers.journal)
    assert calls_of(lambda: controllers.die(2)) < 2_000 * FENCE_CALLS
    assert len(controllers.journal) == batches + 1
    records = decode_batch(controllers.journal[-1]).records
    assert sum(isinstance(each, PartitionChanged) for each in records) == 2_000
    assert isinstance(records[-1], BrokerChanged)
    assert len(controllers.journal[-1]) < 200_000


def test_what_one_batch_cannot_hold_takes_several(
    controllers: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions move first, batch by batch, and the broker is fenced with the last: no leader is ever fenced."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    controllers.create("t", 10, 3)
    batches = len(controllers.journal)
    controllers.die(2)
    sizes = [len(decode_batch(each).records) for each in controllers.journal[batches:]]
    assert sizes == [4, 4, 3]
    assert controllers.image.brokers[2].fenced
    batches = len(controllers.journal)
    controllers.register(2)
    controllers.die(1)
    controllers.die(3)
    controllers.come_back(3)
    assert all(each.leader == 3 for each in controllers.image.topics["t"].partitions)
    assert all(len(decode_batch(each).records) <= 5 for each in controllers.journal[batches:])


@pytest.mark.parametrize("registers", [True, False])
def test_broker_leaves_while_another_with_many_partitions_is_fenced(
    monkeypatch: pytest.MonkeyPatch, registers: bool
) -> None:
    """It registers anew, or is unregistered: the other decision does not elect it again and again."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", *((1, 2)[:: 1 if number % 2 else -1] for number in range(30)))
    controllers.commit_at_once = False
    if registers:
        controllers.active.peer_lost(1, controllers.now)
        controllers.register(1)
    else:
        controllers.submit(UnregisterBroker(1))
    controllers.die(2)
    controllers.commit(80)
    assert controllers.image.brokers[2].fenced and len(controllers.journal) == controllers.commit_index
    assert registers == (1 in controllers.image.brokers)
    assert {each.leader for each in controllers.image.topics["t"].partitions} == {-1}


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_two_brokers_with_many_partitions_are_fenced_at_once(
    monkeypatch: pytest.MonkeyPatch, replicas: tuple[int, ...]
) -> None:
    """Neither decision, nor an update of all partitions, elects what another has taken its partitions off."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    controllers = ControllerCluster()
    controllers.start(1, 2, 3)
    controllers.assign("t", *(replicas[:: 1 if number % 2 else -1] for number in range(30)))
    controllers.commit_at_once = False
    for broker_id in (1, 2):
        controllers.die(broker_id)
    controllers.active._sweep()
    controllers.commit(50)
    assert controllers.image.brokers[1].fenced and controllers.image.brokers[2].fenced
    assert len(controllers.journal) == controllers.commit_index, "it has ended"
    assert {each.leader for each in controllers.image.topics["t"].partitions} == {-1}


def test_broker_that_comes_back_while_it_is_fenced_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as fenced until that decision ends, and then as what it is."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    controllers = ControllerCluster()
    controllers.start(1, 2)
    controllers.assign("t", *[(1,)] * 10)
    controllers.commit_at_once = False
    controllers.die(1)
    controllers.active.peer_connected(1, controllers.now)
    controllers.register(1)
    controllers.commit()
    controllers.heartbeat(1)
    controllers.commit()
    assert not controllers.image.brokers[1].fenced
    assert {each.leader for each in controllers.image.topics["t"].partitions} == {1}


def test_new_controller_settles_what_its_predecessor_left_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail lost between two batches of one change leaves leaderless partitions until the next controller."""
    controllers = ControllerCluster(2)
    controllers.start(1)
    controllers.create("t", 10, 1)
    controllers.die(1)
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    controllers.register(1)
    controllers.commit_at_once = False
    controllers.heartbeat(1)
    controllers.commit(1)
    assert sorted(each.leader for each in controllers.image.topics["t"].partitions) == [-1] * 6 + [1] * 4
    controllers.elect(2, keep=0)
    controllers.commit()
    assert [each.leader for each in controllers.image.topics["t"].partitions] == [1] * 10


def test_idle_controller_writes_nothing(controllers: ControllerCluster) -> None:
    """Ticks and heartbeats of a healthy cluster leave no trace in the journal."""
    controllers.create("t", 6, 3)
    batches = len(controllers.journal)
    controllers.advance(30, heartbeats=(1, 2, 3))
    assert len(controllers.journal) == batches
