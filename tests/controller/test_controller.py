"""The controller as a whole: who is active, what waits for commit, and who is fenced when."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidRequest, NotController, StaleBrokerEpoch
from raftlog.controller import leader_and_isr
from raftlog.controller.controller import MIN_TICK_S, TICK_S
from raftlog.metadata.controller_api import (
    AllocateProducerIds,
    CreateTopics,
    DescribeQuorum,
    ErrorReply,
    NewTopic,
    ProducerIdBlock,
)
from raftlog.metadata.metadata_records import (
    Batch,
    BrokerChanged,
    ControllerElected,
    PartitionChanged,
    decode_batch,
    encode_batch,
)
from tests.controller.controller_cluster import ControllerCluster


@pytest.fixture
def world() -> ControllerCluster:
    made = ControllerCluster()
    made.start(1, 2, 3)
    return made


# --- who is active


def test_controller_is_active_once_its_election_is_committed() -> None:
    """Before that it decides nothing: its image may lack what its predecessor committed."""
    world = ControllerCluster(commit_at_once=False)
    world.elect(1)
    assert not world.active.active
    assert world.ask(CreateTopics(())) == ErrorReply(
        NotController.code, "this node is not the active controller"
    )
    world.commit(1)
    assert world.active.active


def test_first_controller_names_the_cluster() -> None:
    """By config or by chance (22 characters of Base64, as Kafka's), once for ever."""
    world = ControllerCluster(2)
    world.elect(1)
    name = world.image.cluster_id
    assert len(name) == 22
    world.elect(2)
    assert world.image.cluster_id == name
    named = ControllerCluster(cluster_id="mine")
    named.elect(1)
    assert named.image.cluster_id == "mine"


def test_refused_election_is_appended_again() -> None:
    """A quorum that takes no entry at that moment is asked again at the next tick."""
    world = ControllerCluster()
    world.refusals = 1
    world.elect(1)
    assert not world.active.active
    world.advance(0.1)
    assert world.active.active


def test_lost_tail_is_answered_with_not_controller() -> None:
    """A decision that is not committed is void, and its sender is told to ask the new controller."""
    world = ControllerCluster(2, commit_at_once=False)
    world.elect(1)
    world.commit()
    world.register(1)
    world.commit()
    world.heartbeat(1)
    world.commit()
    replies = world.submit(CreateTopics((NewTopic("t", 1, 1),)))
    assert replies == []
    world.elect(2, keep=0)
    world.commit()
    assert [each.error_code for each in replies] == [NotController.code]
    assert "t" not in world.image.topics


def test_kept_tail_is_neither_lost_nor_done_twice() -> None:
    """A new controller's election comes after its predecessor's tail, and decides on top of it."""
    world = ControllerCluster(2, commit_at_once=False)
    world.elect(1)
    world.commit()
    world.register(1)
    world.commit()
    world.heartbeat(1)
    world.commit()
    replies = world.submit(CreateTopics((NewTopic("t", 1, 1),)))
    world.elect(2, keep=1)
    again = world.submit(CreateTopics((NewTopic("t", 1, 1),)))
    assert [type(each) for each in again] == [ErrorReply]
    world.commit()
    assert "t" in world.image.topics
    assert [each.error_code for each in replies] == [NotController.code]
    (result,) = [
        each for reply in world.submit(CreateTopics((NewTopic("t", 1, 1),))) for each in reply.results
    ]
    assert result.error_code == 36


def test_later_epoch_ends_a_controller_that_was_not_told() -> None:
    """Seeing another's election committed is enough: what comes after is not for this one to decide."""
    world = ControllerCluster()
    world.start(1)
    world.journal.append(encode_batch(Batch(9, 0, (ControllerElected(2, 9),))))
    world.commit()
    assert not world.active.active
    assert world.active.next_deadline is None


def test_leading_the_same_term_twice_changes_nothing(world: ControllerCluster) -> None:
    """The quorum may say it again."""
    batches = len(world.journal)
    world.active.on_elected(world.term, world.image, world.now)
    assert world.active.active
    assert len(world.journal) == batches


def test_reads_wait_for_the_tail_they_saw() -> None:
    """A heartbeat that changes nothing is answered only when what it rests on is committed."""
    world = ControllerCluster(commit_at_once=False)
    world.elect(1)
    world.commit()
    world.register(1)
    world.commit()
    unfenced, steady = world.heartbeat(1), world.heartbeat(1)
    assert (unfenced, steady) == ([], [])
    world.commit()
    assert [each.is_fenced for each in (*unfenced, *steady)] == [False, False]


def test_quorum_describes_itself(world: ControllerCluster) -> None:
    """DescribeQuorum is not the controller's to answer."""
    assert world.ask(DescribeQuorum()).error_code == InvalidRequest.code


def test_producer_ids_never_overlap(world: ControllerCluster) -> None:
    """Blocks follow one another over controllers and brokers; an old incarnation gets none (KIP-730)."""
    epochs = {each: world.image.brokers[each].broker_epoch for each in (1, 2)}
    assert world.ask(AllocateProducerIds(1, epochs[1])) == ProducerIdBlock(0, 1000)
    world.elect(1)
    assert world.ask(AllocateProducerIds(2, epochs[2])) == ProducerIdBlock(1000, 1000)
    assert world.ask(AllocateProducerIds(2, 0)).error_code == StaleBrokerEpoch.code


# --- liveness


def test_refused_probe_after_a_lost_connection_fences_in_one_batch(world: ControllerCluster) -> None:
    """kill -9: the connection drops, the port refuses, all of the broker's partitions move at once."""
    world.create("orders", 6, 3)
    batches = len(world.journal)
    world.active.peer_lost(2, world.now)
    assert world.probes == [2]
    world.active.on_probe_result(2, "refused", world.now)
    assert len(world.journal) == batches + 1
    assert world.image.brokers[2].fenced
    for state in world.image.topics["orders"].partitions:
        assert 2 not in state.isr
        assert state.leader in (1, 3)


def test_silence_after_a_lost_connection_is_death(world: ControllerCluster) -> None:
    """A FIN or RST, then no answer within the probe's 300 ms (Architecture)."""
    world.active.peer_lost(2, world.now)
    world.active.on_probe_result(2, "silent", world.now)
    assert world.image.brokers[2].fenced


def test_answering_broker_keeps_its_session(world: ControllerCluster) -> None:
    """Alive after a lost connection: it is probed once, and the session timeout decides."""
    world.active.peer_lost(2, world.now)
    world.active.on_probe_result(2, "alive", world.now)
    world.advance(2.9, heartbeats=(1, 3))
    assert not world.image.brokers[2].fenced
    assert world.probes == [2]
    world.advance(0.3, heartbeats=(1, 3))
    assert world.image.brokers[2].fenced


def test_heartbeat_overtakes_a_probe(world: ControllerCluster) -> None:
    """A verdict that comes after the broker was heard of counts for nothing."""
    world.active.peer_lost(2, world.now)
    world.heartbeat(2)
    world.active.on_probe_result(2, "refused", world.now)
    assert not world.image.brokers[2].fenced


def test_paused_broker_is_fenced_by_the_session_timeout(world: ControllerCluster) -> None:
    """No connection drops: broker.session.timeout.ms decides, no earlier and not much later."""
    world.advance(2.9, heartbeats=(1, 3))
    assert not world.image.brokers[2].fenced
    world.advance(0.2, heartbeats=(1, 3))
    assert world.image.brokers[2].fenced
    assert world.probes == []
    world.heartbeat(2)
    assert not world.image.brokers[2].fenced


def test_new_controller_probes_who_has_not_come_within_200_ms() -> None:
    """A dead broker is found at once, an absent one by its session; a dead one's partitions go to who came."""
    world = ControllerCluster(2)
    world.start(1, 2, 3)
    world.assign("t", (3, 2, 1))
    world.controllers[2].peer_connected(1, world.now)
    world.elect(2)
    world.advance(0.1)
    assert world.probes == []
    world.advance(0.2)
    assert world.probes == [3]
    world.heartbeat(1)
    world.heartbeat(2)
    world.active.on_probe_result(3, "silent", world.now)
    assert not world.image.brokers[3].fenced
    world.active.on_probe_result(3, "refused", world.now)
    assert world.image.brokers[3].fenced
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2, 1))


def test_predecessors_node_is_probed_at_once() -> None:
    """A controller that was killed with its broker is the likeliest to be dead; 200 ms are saved."""
    world = ControllerCluster(2)
    world.start(1, 2, 3)
    world.elect(2)
    assert world.probes == [1]
    world.active.on_probe_result(1, "refused", world.now)
    assert world.image.brokers[1].fenced


def test_member_in_doubt_is_dropped_or_kept_when_the_doubt_ends() -> None:
    """The isr stands still while its living are in doubt, and is settled by the first heartbeat."""
    world = ControllerCluster()
    world.start(1, 2, 3)
    world.assign("t", (2, 3))
    world.elect(1)
    world.active.peer_lost(2, world.now)
    world.active.on_probe_result(2, "refused", world.now)
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (2, 3))
    world.heartbeat(3)
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))


def test_own_stall_fences_nobody(world: ControllerCluster) -> None:
    """A pause of the controller's own loop shifts all deadlines by its length (Architecture)."""
    world.advance(1.0, heartbeats=(1, 2, 3))
    world.now += 10
    with capture_logs() as logs:
        world.active.tick(world.now)
    assert [each["event"] for each in logs] == ["controller_stalled"]
    assert not any(broker.fenced for broker in world.image.brokers.values())
    world.advance(2.0, heartbeats=(1, 3))
    assert not world.image.brokers[2].fenced
    world.advance(1.5, heartbeats=(1, 3))
    assert world.image.brokers[2].fenced


def test_heartbeats_before_the_late_tick_do_not_hide_a_stall(world: ControllerCluster) -> None:
    """After a pause, what was in the sockets is handled first; it must not cost the others their session."""
    world.now += 10
    world.heartbeat(1)
    world.active.tick(world.now)
    assert not world.image.brokers[2].fenced


def test_next_deadline_is_the_next_thing_to_do(world: ControllerCluster) -> None:
    """A tick at least every TICK_S, sooner for a probe or a session, never in a busy loop."""
    controller = world.active
    controller.tick(world.now)
    assert controller.next_deadline == pytest.approx(world.now + TICK_S)
    world.advance(2.9)
    assert controller.next_deadline == pytest.approx(world.now + 0.1)
    world.refusals = 10**6
    world.advance(0.2)
    assert not world.image.brokers[2].fenced
    assert controller.next_deadline == pytest.approx(world.now + MIN_TICK_S)


def test_fencing_that_the_quorum_refused_is_tried_again(world: ControllerCluster) -> None:
    """A broker does not stay unfenced because one append failed."""
    world.refusals = 1
    world.die(2)
    assert not world.image.brokers[2].fenced
    world.advance(0.1)
    assert world.image.brokers[2].fenced


def test_settling_that_the_quorum_refused_is_tried_again() -> None:
    """An isr that stood still because of a doubt does not stay so because one append failed."""
    world = ControllerCluster()
    world.start(1, 2, 3)
    world.assign("t", (2, 3))
    world.elect(1)
    world.die(2)
    world.refusals = 1
    world.heartbeat(3)
    assert world.partition("t").isr == (2, 3)
    world.advance(0.1)
    assert world.partition("t").isr == (3,)


def test_fencing_under_way_is_not_begun_again() -> None:
    """While a fencing of several batches waits for commit, ticks and probes append nothing more."""
    world = ControllerCluster(commit_at_once=False)
    world.elect(1)
    world.commit()
    for broker_id in (1, 2):
        world.register(broker_id)
        world.commit()
        world.heartbeat(broker_id)
        world.commit()
    world.submit(CreateTopics((NewTopic("t", 10, 2),)))
    world.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
        world.die(2)
        batches = len(world.journal)
        world.active.on_probe_result(2, "refused", world.now)
        world.advance(0.2)
        assert len(world.journal) == batches
        world.commit()
    assert world.image.brokers[2].fenced


def test_fenced_brokers_are_not_probed(world: ControllerCluster) -> None:
    """A broker that leads nothing need not be found out about."""
    world.die(2)
    world.probes.clear()
    world.active.peer_lost(2, world.now)
    assert world.probes == []


# --- what an operator reads


def events(logs: list[Any]) -> list[str]:
    return [each["event"] for each in logs]


def test_events_are_written_at_commit() -> None:
    """A line on the timeline tells what is true, not what was hoped for."""
    world = ControllerCluster(2, commit_at_once=False)
    world.elect(1)
    world.commit()
    with capture_logs() as logs:
        world.register(1)
        assert "controller_registered_broker" not in events(logs)
        world.commit()
    assert "controller_registered_broker" in events(logs)
    with capture_logs() as logs:
        world.heartbeat(1)
        world.elect(2, keep=0)
        world.commit()
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
    unclean: str, wiped: bool, event: str, level: str, world: ControllerCluster
) -> None:
    """Offline is a warning; a lost isr and an unclean election need a person (H1)."""
    world.create("t", 1, 3, unclean_leader_election_enable=unclean)
    leader = world.partition("t").leader
    world.alter("t", (leader,))
    with capture_logs() as logs:
        world.die(leader)
        if wiped:
            world.come_back(leader, wiped=True)
    found = [each for each in logs if each["event"] == event]
    assert [(each["log_level"], each["partitions"]) for each in found] == [(level, ["t-0"])]


# --- size


FENCE_CALLS, CREATE_CALLS = 30, 30
"""Python calls per partition, of deciding, applying and encoding together."""


def calls_of(work: Callable[[], object]) -> int:
    """Count the Python functions that `work` calls."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_broker_with_2000_partitions_is_fenced_in_one_batch(world: ControllerCluster) -> None:
    """Decide, apply, encode: one entry well below 4 MiB, and few enough calls for 50 ms on a slow machine."""
    batches = len(world.journal)
    assert calls_of(lambda: world.create("big", 2_000, 3)) < 2_000 * CREATE_CALLS
    assert len(world.journal) == batches + 1
    batches = len(world.journal)
    assert calls_of(lambda: world.die(2)) < 2_000 * FENCE_CALLS
    assert len(world.journal) == batches + 1
    records = decode_batch(world.journal[-1]).records
    assert sum(isinstance(each, PartitionChanged) for each in records) == 2_000
    assert isinstance(records[-1], BrokerChanged)
    assert len(world.journal[-1]) < 200_000


def test_what_one_batch_cannot_hold_takes_several(
    world: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions move first, batch by batch, and the broker is fenced with the last: no leader is ever fenced."""
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    world.create("t", 10, 3)
    batches = len(world.journal)
    world.die(2)
    sizes = [len(decode_batch(each).records) for each in world.journal[batches:]]
    assert sizes == [4, 4, 3]
    assert world.image.brokers[2].fenced
    batches = len(world.journal)
    world.register(2)
    world.die(1)
    world.die(3)
    world.come_back(3)
    assert all(each.leader == 3 for each in world.image.topics["t"].partitions)
    assert all(len(decode_batch(each).records) <= 5 for each in world.journal[batches:])


def test_new_controller_settles_what_its_predecessor_left_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail lost between two batches of one change leaves leaderless partitions, until somebody leads again."""
    world = ControllerCluster(2)
    world.start(1)
    world.create("t", 10, 1)
    world.die(1)
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    world.register(1)
    world.commit_at_once = False
    world.heartbeat(1)
    world.commit(1)
    assert sorted(each.leader for each in world.image.topics["t"].partitions) == [-1] * 6 + [1] * 4
    world.elect(2, keep=0)
    world.commit()
    assert [each.leader for each in world.image.topics["t"].partitions] == [1] * 10


def test_controlled_shutdown_of_many_partitions_ends_with_the_last(
    world: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may stop when all that can move has moved, however many heartbeats that takes."""
    world.create("t", 10, 3)
    monkeypatch.setattr(leader_and_isr, "MAX_PARTITION_RECORDS", 4)
    answers = [world.heartbeat(2, want_shutdown=True).should_shutdown for _ in range(4)]
    assert answers == [False, False, True, True]
    assert all(2 not in each.isr for each in world.image.topics["t"].partitions)


def test_idle_controller_writes_nothing(world: ControllerCluster) -> None:
    """Ticks and heartbeats of a healthy cluster leave no trace in the journal."""
    world.create("t", 6, 3)
    batches = len(world.journal)
    world.advance(30, heartbeats=(1, 2, 3))
    assert len(world.journal) == batches
