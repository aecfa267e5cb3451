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
    cluster = ControllerCluster(commit_at_once=False)
    cluster.elect(1)
    assert not cluster.active.active
    assert cluster.ask(CreateTopics(())) == ErrorReply(
        NotController.code, "this node is not the active controller"
    )
    cluster.commit(1)
    assert cluster.active.active


def test_first_controller_names_the_cluster() -> None:
    """By config or by chance (22 characters of Base64, as Kafka's), once for ever."""
    cluster = ControllerCluster(2)
    cluster.elect(1)
    name = cluster.image.cluster_id
    assert len(name) == 22
    cluster.elect(2)
    assert cluster.image.cluster_id == name
    named = ControllerCluster(cluster_id="mine")
    named.elect(1)
    assert named.image.cluster_id == "mine"


def test_refused_election_is_appended_again() -> None:
    """A quorum that takes no entry at that moment is asked again at the next tick."""
    cluster = ControllerCluster()
    cluster.refusals = 1
    cluster.elect(1)
    assert not cluster.active.active
    cluster.advance(0.1)
    assert cluster.active.active


def test_lost_tail_is_answered_with_not_controller() -> None:
    """A decision that is not committed is void, and its sender gets NOT_CONTROLLER."""
    cluster = ControllerCluster(2, commit_at_once=False)
    cluster.elect(1)
    cluster.commit()
    cluster.register(1)
    cluster.commit()
    cluster.heartbeat(1)
    cluster.commit()
    replies = cluster.submit(CreateTopics((NewTopic("t", 1, 1),)))
    assert replies == []
    cluster.elect(2, keep=0)
    cluster.commit()
    assert [each.error_code for each in replies] == [NotController.code]
    assert "t" not in cluster.image.topics


def test_kept_tail_is_neither_lost_nor_done_twice() -> None:
    """A new controller's election comes after its predecessor's tail, and decides on top of it."""
    cluster = ControllerCluster(2, commit_at_once=False)
    cluster.elect(1)
    cluster.commit()
    cluster.register(1)
    cluster.commit()
    cluster.heartbeat(1)
    cluster.commit()
    replies = cluster.submit(CreateTopics((NewTopic("t", 1, 1),)))
    cluster.elect(2, keep=1)
    again = cluster.submit(CreateTopics((NewTopic("t", 1, 1),)))
    assert [type(each) for each in again] == [ErrorReply]
    cluster.commit()
    assert "t" in cluster.image.topics
    assert [each.error_code for each in replies] == [NotController.code]
    (result,) = [
        each for reply in cluster.submit(CreateTopics((NewTopic("t", 1, 1),))) for each in reply.results
    ]
    assert result.error_code == 36


def test_later_epoch_ends_a_controller_without_notice() -> None:
    """Seeing another's election committed is enough: later requests are not for this controller to decide."""
    cluster = ControllerCluster()
    cluster.start(1)
    cluster.journal.append(encode_batch(Batch(9, 0, (ControllerElected(2, 9),))))
    cluster.commit()
    assert not cluster.active.active
    assert cluster.active.next_deadline is None


def test_leading_the_same_term_twice_changes_nothing(cluster: ControllerCluster) -> None:
    """The quorum may say it again."""
    batches = len(cluster.journal)
    cluster.active.on_elected(cluster.term, cluster.image, cluster.now)
    assert cluster.active.active
    assert len(cluster.journal) == batches


def test_reads_wait_for_the_tail_they_saw() -> None:
    """The response to a heartbeat without changes waits until the state that it rests on is committed."""
    cluster = ControllerCluster(commit_at_once=False)
    cluster.elect(1)
    cluster.commit()
    cluster.register(1)
    cluster.commit()
    unfenced, steady = cluster.heartbeat(1), cluster.heartbeat(1)
    assert (unfenced, steady) == ([], [])
    cluster.commit()
    assert [each.is_fenced for each in (*unfenced, *steady)] == [False, False]


def test_quorum_describes_itself(cluster: ControllerCluster) -> None:
    """DescribeQuorum is not the controller's to answer."""
    assert cluster.ask(DescribeQuorum()).error_code == InvalidRequest.code


def test_producer_ids_never_overlap(cluster: ControllerCluster) -> None:
    """Blocks follow one another over controllers and brokers; an old incarnation gets none (KIP-730)."""
    epochs = {each: cluster.image.brokers[each].broker_epoch for each in (1, 2)}
    assert cluster.ask(AllocateProducerIds(1, epochs[1])) == ProducerIdBlock(0, 1000)
    cluster.elect(1)
    assert cluster.ask(AllocateProducerIds(2, epochs[2])) == ProducerIdBlock(1000, 1000)
    assert cluster.ask(AllocateProducerIds(2, 0)).error_code == StaleBrokerEpoch.code


# --- liveness


def test_refused_probe_after_a_lost_connection_fences_in_one_batch(cluster: ControllerCluster) -> None:
    """kill -9: the connection drops, the port refuses, all of the broker's partitions move at once."""
    cluster.create("orders", 6, 3)
    batches = len(cluster.journal)
    cluster.active.peer_lost(2, cluster.now)
    assert cluster.probes == [2]
    cluster.active.on_probe_result(2, "refused", cluster.now)
    assert len(cluster.journal) == batches + 1
    assert cluster.image.brokers[2].fenced
    for state in cluster.image.topics["orders"].partitions:
        assert 2 not in state.isr
        assert state.leader in (1, 3)


def test_silence_after_a_lost_connection_is_death(cluster: ControllerCluster) -> None:
    """A FIN or RST, then no answer within the probe's 300 ms (Architecture)."""
    cluster.active.peer_lost(2, cluster.now)
    cluster.active.on_probe_result(2, "silent", cluster.now)
    assert cluster.image.brokers[2].fenced


def test_answering_broker_keeps_its_session(cluster: ControllerCluster) -> None:
    """Alive after a lost connection: it is probed once, and the session timeout decides."""
    cluster.active.peer_lost(2, cluster.now)
    cluster.active.on_probe_result(2, "alive", cluster.now)
    cluster.advance(2.9, heartbeats=(1, 3))
    assert not cluster.image.brokers[2].fenced
    assert cluster.probes == [2]
    cluster.advance(0.3, heartbeats=(1, 3))
    assert cluster.image.brokers[2].fenced


def test_heartbeat_overtakes_a_probe(cluster: ControllerCluster) -> None:
    """A verdict that comes after the broker's heartbeat is ignored."""
    cluster.active.peer_lost(2, cluster.now)
    cluster.heartbeat(2)
    cluster.active.on_probe_result(2, "refused", cluster.now)
    assert not cluster.image.brokers[2].fenced


def test_paused_broker_is_fenced_once_it_does_not_answer(cluster: ControllerCluster) -> None:
    """No connection drops, but its machine accepts another connection, without an answer."""
    cluster.advance(0.8, heartbeats=(1, 3))
    assert cluster.probes == []
    cluster.advance(0.3, heartbeats=(1, 3))
    assert cluster.probes == [2]
    cluster.active.on_probe_result(2, "accepted", cluster.now)
    assert cluster.image.brokers[2].fenced


def test_silent_broker_is_fenced_by_the_session_timeout(cluster: ControllerCluster) -> None:
    """Without a result of the probe broker.session.timeout.ms decides, no earlier and not much later."""
    cluster.advance(2.9, heartbeats=(1, 3))
    assert not cluster.image.brokers[2].fenced
    cluster.advance(0.2, heartbeats=(1, 3))
    assert cluster.image.brokers[2].fenced
    assert cluster.probes == [2]
    cluster.heartbeat(2)
    assert not cluster.image.brokers[2].fenced


def test_new_controller_probes_brokers_that_have_not_come_within_200_ms() -> None:
    """A dead broker is found at once, an absent broker by its session; a dead broker's partitions go to present
    brokers.
    """
    cluster = ControllerCluster(2)
    cluster.start(1, 2, 3)
    cluster.assign("t", (3, 2, 1))
    cluster.controllers[2].peer_connected(1, cluster.now)
    cluster.elect(2)
    cluster.advance(0.1)
    assert cluster.probes == []
    cluster.advance(0.2)
    assert cluster.probes == [3]
    cluster.heartbeat(1)
    cluster.heartbeat(2)
    cluster.active.on_probe_result(3, "silent", cluster.now)
    assert not cluster.image.brokers[3].fenced
    cluster.active.on_probe_result(3, "refused", cluster.now)
    assert cluster.image.brokers[3].fenced
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2, 1))


def test_predecessors_node_is_probed_at_once() -> None:
    """A controller that was killed with its broker is the likeliest to be dead; 200 ms are saved."""
    cluster = ControllerCluster(2)
    cluster.start(1, 2, 3)
    cluster.elect(2)
    assert cluster.probes == [1]
    cluster.active.on_probe_result(1, "refused", cluster.now)
    assert cluster.image.brokers[1].fenced


def test_member_in_doubt_is_dropped_or_kept_when_the_doubt_ends() -> None:
    """The isr stands still while its living are in doubt, and is settled by the first heartbeat."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", (2, 3))
    cluster.elect(1)
    cluster.active.peer_lost(2, cluster.now)
    cluster.active.on_probe_result(2, "refused", cluster.now)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (3, (2, 3))
    cluster.heartbeat(3)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (3, (3,))


def test_own_stall_fences_no_broker(cluster: ControllerCluster) -> None:
    """A pause of the controller's own loop shifts all deadlines by its length (Architecture)."""
    cluster.advance(1.0, heartbeats=(1, 2, 3))
    cluster.now += 10
    with capture_logs() as logs:
        cluster.active.tick(cluster.now)
    assert [each["event"] for each in logs] == ["controller_stalled"]
    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    cluster.advance(2.0, heartbeats=(1, 3))
    assert not cluster.image.brokers[2].fenced
    cluster.advance(1.5, heartbeats=(1, 3))
    assert cluster.image.brokers[2].fenced


def test_heartbeats_before_the_late_tick_do_not_hide_a_stall(cluster: ControllerCluster) -> None:
    """After a pause, what was in the sockets is handled first; it must not cost the others their session."""
    cluster.now += 10
    cluster.heartbeat(1)
    cluster.active.tick(cluster.now)
    assert not cluster.image.brokers[2].fenced


def test_next_deadline_is_the_next_thing_to_do(cluster: ControllerCluster) -> None:
    """A tick at least every TICK_S, sooner for a probe or a session, never in a busy loop."""
    controller = cluster.active
    controller.tick(cluster.now)
    assert controller.next_deadline == pytest.approx(cluster.now + TICK_S)
    cluster.advance(2.9)
    assert controller.next_deadline == pytest.approx(cluster.now + 0.1)
    cluster.refusals = 10**6
    cluster.advance(0.2)
    assert not cluster.image.brokers[2].fenced
    assert controller.next_deadline == pytest.approx(cluster.now + MIN_TICK_S)


def test_fencing_that_the_quorum_refused_is_tried_again(cluster: ControllerCluster) -> None:
    """A broker does not stay unfenced because one append failed."""
    cluster.refusals = 1
    cluster.die(2)
    assert not cluster.image.brokers[2].fenced
    cluster.advance(0.1)
    assert cluster.image.brokers[2].fenced


def test_settling_that_the_quorum_refused_is_tried_again() -> None:
    """An isr that stood still because of a doubt does not stay so because one append failed."""
    cluster = ControllerCluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", (2, 3))
    cluster.elect(1)
    cluster.die(2)
    cluster.refusals = 1
    cluster.heartbeat(3)
    assert cluster.partition("t").isr == (2, 3)
    cluster.advance(0.1)
    assert cluster.partition("t").isr == (3,)


def test_fencing_under_way_is_not_begun_again() -> None:
    """While a fencing of several batches waits for commit, ticks and probes append no more."""
    cluster = ControllerCluster(commit_at_once=False)
    cluster.elect(1)
    cluster.commit()
    for broker_id in (1, 2):
        cluster.register(broker_id)
        cluster.commit()
        cluster.heartbeat(broker_id)
        cluster.commit()
    cluster.submit(CreateTopics((NewTopic("t", 10, 2),)))
    cluster.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
        cluster.die(2)
        batches = len(cluster.journal)
        cluster.active.on_probe_result(2, "refused", cluster.now)
        cluster.advance(0.2)
        assert len(cluster.journal) == batches
        cluster.commit()
    assert cluster.image.brokers[2].fenced


def test_fenced_brokers_are_not_probed(cluster: ControllerCluster) -> None:
    """A broker that leads no partition need not be found out about."""
    cluster.die(2)
    cluster.probes.clear()
    cluster.active.peer_lost(2, cluster.now)
    assert cluster.probes == []


# --- what an operator reads


def events(logs: list[Any]) -> list[str]:
    return [each["event"] for each in logs]


def test_events_are_written_at_commit() -> None:
    """A line on the timeline reports facts, not intentions."""
    cluster = ControllerCluster(2, commit_at_once=False)
    cluster.elect(1)
    cluster.commit()
    with capture_logs() as logs:
        cluster.register(1)
        assert "controller_registered_broker" not in events(logs)
        cluster.commit()
    assert "controller_registered_broker" in events(logs)
    with capture_logs() as logs:
        cluster.heartbeat(1)
        cluster.elect(2, keep=0)
        cluster.commit()
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
    unclean: str, wiped: bool, event: str, level: str, cluster: ControllerCluster
) -> None:
    """Offline is a warning; a lost isr and an unclean election need a person."""
    cluster.create("t", 1, 3, unclean_leader_election_enable=unclean)
    leader = cluster.partition("t").leader
    cluster.alter("t", (leader,))
    with capture_logs() as logs:
        cluster.die(leader)
        if wiped:
            cluster.come_back(leader, wiped=True)
    found = [each for each in logs if each["event"] == event]
    assert [(each["log_level"], each["partitions"]) for each in found] == [(level, ["t-0"])]


# --- size


FENCE_CALLS, CREATE_CALLS = 30, 30
"""Python calls per partition, of deciding, applying and encoding together."""


def test_the_tail_shares_its_parts_with_the_committed_image() -> None:
    """Once there is no uncommitted change: each change of a leadership would otherwise be kept twice, and compared for
    ever.
    """
    cluster = ControllerCluster(3, commit_at_once=False)
    cluster.elect(1)
    cluster.commit()
    for broker_id in (1, 2, 3):
        cluster.register(broker_id)
        cluster.commit()
        cluster.heartbeat(broker_id)
        cluster.commit()
    cluster.submit(CreateTopics((NewTopic("t", 3, 3),)))
    assert cluster.active._runner.tail is not cluster.images[1]
    cluster.commit()
    assert cluster.active._runner.tail is cluster.images[1]
    assert cluster.images[1].topics


def test_broker_with_2000_partitions_is_fenced_in_one_batch(cluster: ControllerCluster) -> None:
    """Decide, apply, encode: one entry well below 4 MiB, and few enough calls for 50 ms on a slow machine."""
    batches = len(cluster.journal)
    assert calls_of(lambda: cluster.create("big", 2_000, 3)) < 2_000 * CREATE_CALLS
    assert len(cluster.journal) == batches + 1
    batches = len(cluster.journal)
    assert calls_of(lambda: cluster.die(2)) < 2_000 * FENCE_CALLS
    assert len(cluster.journal) == batches + 1
    records = decode_batch(cluster.journal[-1]).records
    assert sum(isinstance(each, PartitionChanged) for each in records) == 2_000
    assert isinstance(records[-1], BrokerChanged)
    assert len(cluster.journal[-1]) < 200_000


def test_what_one_batch_cannot_hold_takes_several(
    cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions move first, batch by batch, and the broker is fenced with the last: no leader is ever fenced."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    cluster.create("t", 10, 3)
    batches = len(cluster.journal)
    cluster.die(2)
    sizes = [len(decode_batch(each).records) for each in cluster.journal[batches:]]
    assert sizes == [4, 4, 3]
    assert cluster.image.brokers[2].fenced
    batches = len(cluster.journal)
    cluster.register(2)
    cluster.die(1)
    cluster.die(3)
    cluster.come_back(3)
    assert all(each.leader == 3 for each in cluster.image.topics["t"].partitions)
    assert all(len(decode_batch(each).records) <= 5 for each in cluster.journal[batches:])


@pytest.mark.parametrize("registers", [True, False])
def test_broker_leaves_while_another_with_many_partitions_is_fenced(
    monkeypatch: pytest.MonkeyPatch, registers: bool
) -> None:
    """It registers anew, or is unregistered: the other decision does not elect it again and again."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    cluster = ControllerCluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", *((1, 2)[:: 1 if number % 2 else -1] for number in range(30)))
    cluster.commit_at_once = False
    if registers:
        cluster.active.peer_lost(1, cluster.now)
        cluster.register(1)
    else:
        cluster.submit(UnregisterBroker(1))
    cluster.die(2)
    cluster.commit(80)
    assert cluster.image.brokers[2].fenced and len(cluster.journal) == cluster.commit_index
    assert registers == (1 in cluster.image.brokers)
    assert {each.leader for each in cluster.image.topics["t"].partitions} == {-1}


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_two_brokers_with_many_partitions_are_fenced_at_once(
    monkeypatch: pytest.MonkeyPatch, replicas: tuple[int, ...]
) -> None:
    """Neither decision, nor an update of all partitions, elects what another has taken its partitions off."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    cluster = ControllerCluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", *(replicas[:: 1 if number % 2 else -1] for number in range(30)))
    cluster.commit_at_once = False
    for broker_id in (1, 2):
        cluster.die(broker_id)
    cluster.active._sweep()
    cluster.commit(50)
    assert cluster.image.brokers[1].fenced and cluster.image.brokers[2].fenced
    assert len(cluster.journal) == cluster.commit_index, "it has ended"
    assert {each.leader for each in cluster.image.topics["t"].partitions} == {-1}


def test_broker_that_comes_back_while_it_is_fenced_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as fenced until that decision ends, and then as what it is."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    cluster = ControllerCluster()
    cluster.start(1, 2)
    cluster.assign("t", *[(1,)] * 10)
    cluster.commit_at_once = False
    cluster.die(1)
    cluster.active.peer_connected(1, cluster.now)
    cluster.register(1)
    cluster.commit()
    cluster.heartbeat(1)
    cluster.commit()
    assert not cluster.image.brokers[1].fenced
    assert {each.leader for each in cluster.image.topics["t"].partitions} == {1}


def test_new_controller_settles_what_its_predecessor_left_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail lost between two batches of one change leaves leaderless partitions until the next controller."""
    cluster = ControllerCluster(2)
    cluster.start(1)
    cluster.create("t", 10, 1)
    cluster.die(1)
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    cluster.register(1)
    cluster.commit_at_once = False
    cluster.heartbeat(1)
    cluster.commit(1)
    assert sorted(each.leader for each in cluster.image.topics["t"].partitions) == [-1] * 6 + [1] * 4
    cluster.elect(2, keep=0)
    cluster.commit()
    assert [each.leader for each in cluster.image.topics["t"].partitions] == [1] * 10


def test_idle_controller_writes_nothing(cluster: ControllerCluster) -> None:
    """Ticks and heartbeats of a healthy cluster leave no trace in the journal."""
    cluster.create("t", 6, 3)
    batches = len(cluster.journal)
    cluster.advance(30, heartbeats=(1, 2, 3))
    assert len(cluster.journal) == batches
