"""A classic group and its first member: KIP-62, 134, 345, 394 and the semantics of Apache Kafka's coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.coordinator.group import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from raftlog.coordinator.group_requests import JoinGroupResult, MemberIdRequired, SyncGroupResult
from raftlog.coordinator.timer import MAX_PENDING_JOINS
from tests.coordinator.group_coordinator_setup import (
    SUBSCRIPTION,
    Answers,
    GroupCoordinatorSetup,
    join_request,
)


def test_a_member_joins_in_two_steps_syncs_and_is_stable() -> None:
    """JoinGroup v4: first an id (MEMBER_ID_REQUIRED, KIP-394), then generation 1 led by the only member."""
    bench = GroupCoordinatorSetup()
    required = bench.join()
    assert isinstance(required, MemberIdRequired)
    assert required.member_id.startswith("client-")
    assert bench.batches == []
    joined = bench.join(required.member_id)
    assert joined == JoinGroupResult(
        required.member_id, 1, "consumer", "range", required.member_id, joined.members
    )
    assert [member.subscription for member in joined.members] == [SUBSCRIPTION]
    assert bench.read().state == COMPLETING_REBALANCE
    assert bench.sync(required.member_id, 1) == SyncGroupResult("consumer", "range", b"assignment")
    assert bench.read().state == STABLE
    assert bench.heartbeat(required.member_id, 1) is None


def test_an_old_client_joins_in_one_step() -> None:
    """Before JoinGroup v4 no member has to join again."""
    joined = GroupCoordinatorSetup().join(may_require_member_id=False)
    assert (type(joined), joined.generation) == (JoinGroupResult, 1)


def test_a_member_beyond_the_maximum_gets_group_max_size_reached() -> None:
    """GROUP_MAX_SIZE_REACHED (KIP-389) beyond group.max.size, with or without an id of its own."""
    bench = GroupCoordinatorSetup(group_max_size=1)
    first, second = bench.join(), bench.join()
    assert isinstance(second, MemberIdRequired)
    bench.join(first.member_id)
    assert isinstance(bench.join(second.member_id), GroupMaxSizeReached)
    assert isinstance(bench.join(), GroupMaxSizeReached)
    assert isinstance(bench.join(may_require_member_id=False), GroupMaxSizeReached)
    assert isinstance(bench.join(instance="static"), GroupMaxSizeReached)
    assert len(bench.read().membership.members) == 1


def test_a_repeated_join_gets_the_same_answer_and_a_rejoin_a_new_generation() -> None:
    """A retry before the sync has no effect; a stable leader that joins again starts a generation."""
    bench = GroupCoordinatorSetup()
    member_id = bench.join().member_id
    first = bench.join(member_id)
    assert bench.join(member_id) == first
    assert len(bench.batches) == 1
    bench.sync(member_id, 1)
    assert bench.join(member_id).generation == 2
    assert bench.read().membership.members[member_id].assignment == b""
    assert isinstance(bench.sync(member_id, 1), IllegalGeneration)
    assert bench.sync(member_id, 2).assignment == b"assignment"
    assert bench.sync(member_id, 2, assignments={}).assignment == b"assignment"


def test_the_group_is_free_again_after_a_leave() -> None:
    """LeaveGroup ends the generation; the next member starts another."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    assert bench.leave(member_id) is None
    group = bench.read()
    assert (group.state, group.membership.generation) == (EMPTY, generation + 1)
    assert isinstance(bench.heartbeat(member_id, generation), UnknownMemberId)
    assert isinstance(bench.leave(member_id), UnknownMemberId)
    assert bench.join(may_require_member_id=False).generation == generation + 2


def test_unknown_members_and_past_generations_get_errors() -> None:
    """UNKNOWN_MEMBER_ID for unknown ids, ILLEGAL_GENERATION for another generation."""
    bench = GroupCoordinatorSetup()
    assert isinstance(bench.join("invented"), UnknownMemberId)
    assert isinstance(bench.heartbeat("invented", 1), UnknownMemberId)
    assert isinstance(bench.sync("invented", 1), UnknownMemberId)
    member_id, generation = bench.stable_member()
    assert isinstance(bench.heartbeat("invented", generation), UnknownMemberId)
    assert isinstance(bench.heartbeat("", generation), UnknownMemberId)
    assert isinstance(bench.heartbeat(member_id, generation - 1), IllegalGeneration)
    assert isinstance(bench.sync(member_id, generation + 1), IllegalGeneration)
    assert isinstance(bench.join("invented"), UnknownMemberId)


def test_a_static_id_alone_does_not_speak_for_its_holder() -> None:
    """FENCED_INSTANCE_ID, as in Apache Kafka's validateMember; only a leaving member may name the static id alone."""
    bench = GroupCoordinatorSetup()
    _, generation = bench.stable_group("a")
    assert isinstance(bench.heartbeat("", generation, "a"), FencedInstanceId)
    assert isinstance(bench.sync("", generation, instance="a"), FencedInstanceId)
    refused = bench.commit_offset(1, generation=generation, group_instance_id="a")
    assert isinstance(refused, FencedInstanceId)
    assert bench.leave("", "a") is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, InvalidSessionTimeout),
        ({"session_timeout_ms": 1_800_001}, InvalidSessionTimeout),
        ({"protocols": ()}, InconsistentGroupProtocol),
        ({"protocol_type": ""}, InconsistentGroupProtocol),
        ({"client_id": "x" * 33_000}, InvalidRequest),
        ({"protocols": (("range", b""), ("y" * 33_000, b""))}, InvalidRequest),
        ({"group_id": "é" * 16_384}, InvalidGroupId),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(changes: dict[str, Any], error: type[KafkaError]) -> None:
    """Session timeout bounds, at least one protocol, names that a record can hold; no record is written."""
    bench = GroupCoordinatorSetup()
    assert isinstance(bench.join(**changes), error)
    assert bench.batches == []


def test_another_protocol_does_not_fit_a_group_with_members() -> None:
    """INCONSISTENT_GROUP_PROTOCOL for a foreign type in join, and for foreign names in sync v5."""
    bench = GroupCoordinatorSetup()
    member_id = bench.join().member_id
    bench.join(member_id)
    assert isinstance(bench.join(member_id, protocol_type="connect"), InconsistentGroupProtocol)
    assert isinstance(bench.sync(member_id, 1, protocol_type="connect"), InconsistentGroupProtocol)
    assert isinstance(bench.sync(member_id, 1, protocol="sticky"), InconsistentGroupProtocol)
    assert isinstance(bench.sync(member_id, 1, protocol_type="consumer", protocol="range"), SyncGroupResult)


def test_a_member_that_falls_silent_is_taken_out_after_its_session() -> None:
    """Heartbeats renew the session of 10 s; silence ends it, and the group is Empty."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    bench.now += 9
    assert bench.heartbeat(member_id, generation) is None
    bench.now += 9
    bench.coordinator.tick(bench.moment)
    bench.commit()
    assert bench.read().state == STABLE
    bench.now += 2
    bench.coordinator.tick(bench.moment)
    bench.commit()
    assert bench.read().state == EMPTY


def test_a_stall_of_the_broker_ends_nobodys_session() -> None:
    """Deadlines move by the length of the coordinator's own pause."""
    bench = GroupCoordinatorSetup()
    bench.stable_member()
    bench.now += 60
    bench.coordinator.on_loop_stall(60)
    bench.coordinator.tick(bench.moment)
    assert bench.read().state == STABLE


def test_an_expiry_that_cannot_be_written_is_tried_again() -> None:
    """Below min.insync.replicas the empty generation is tried for until it can be recorded."""
    bench = GroupCoordinatorSetup()
    bench.stable_member()
    bench.refuses = NotEnoughReplicas()
    bench.now += 11
    bench.coordinator.tick(bench.moment)
    assert bench.read().state == PREPARING_REBALANCE
    bench.refuses = None
    bench.now += 2
    bench.coordinator.tick(bench.moment)
    bench.commit()
    assert bench.read().state == EMPTY


def test_ids_given_out_and_not_used_expire_and_are_bounded() -> None:
    """A client that never comes again leaves no state behind, and cannot fill the memory."""
    bench = GroupCoordinatorSetup()
    unused = bench.join().member_id
    bench.now += 11
    bench.coordinator.tick(bench.moment)
    assert isinstance(bench.join(unused), UnknownMemberId)
    for _ in range(MAX_PENDING_JOINS):
        given = bench.join()
    assert isinstance(bench.join(), GroupMaxSizeReached)
    assert bench.leave(given.member_id) is None
    assert isinstance(bench.join(), MemberIdRequired)


def test_ids_given_out_by_all_groups_together_are_bounded() -> None:
    """Retriable, since it will pass; a client with an id may use it, and used or returned ids no longer count."""
    bench = GroupCoordinatorSetup()
    given = [bench.join(group_id="g0", client_id="c" * 200)]
    most = 3 * bench.coordinator.pending_join_bytes + 1
    bench.coordinator._groups.timer.may_add_pending_join = lambda: bench.coordinator.pending_join_bytes < most
    given += [bench.join(group_id=f"g{number}", client_id="c" * 200) for number in range(1, 4)]
    assert [type(each) for each in given] == [MemberIdRequired] * 4
    assert isinstance(bench.join(group_id="another"), CoordinatorNotAvailable)
    bench.join(given[0].member_id, group_id="g0")
    assert isinstance(bench.join(group_id="another"), MemberIdRequired)
    bench.pass_time(11)
    assert bench.coordinator.pending_join_bytes == 0


def test_a_static_member_that_waits_for_its_assignment_is_fenced_by_the_next_one() -> None:
    """KIP-345: its SyncGroup is answered with FENCED_INSTANCE_ID, since a rebalance would have it join again."""
    bench = GroupCoordinatorSetup()
    leader = bench.join(instance="pod-1")
    bench.sync(leader.member_id, 1, instance="pod-1")
    joins = bench.begin_join(instance="pod-2"), bench.begin_join(instance="pod-3")
    bench.begin_join(leader.member_id, instance="pod-1")
    (follower,), (other,) = joins
    waiting, beside = bench.begin_sync(follower.member_id, 2), bench.begin_sync(other.member_id, 2)
    assert (waiting, beside) == ([], [])
    bench.begin_join(instance="pod-2")
    assert [type(each) for each in (*waiting, *beside)] == [FencedInstanceId, RebalanceInProgress]


def test_a_static_member_comes_back_without_its_id_and_fences_its_former_self() -> None:
    """KIP-345: same group.instance.id, new member id; the old id gets FENCED_INSTANCE_ID."""
    bench = GroupCoordinatorSetup()
    first = bench.join(instance="pod-1")
    assert isinstance(first, JoinGroupResult)
    bench.sync(first.member_id, 1, instance="pod-1")
    second = bench.join(instance="pod-1")
    assert (second.member_id != first.member_id, second.generation) == (True, 1)
    assert isinstance(bench.heartbeat(first.member_id, 1, "pod-1"), FencedInstanceId)
    assert isinstance(bench.heartbeat(first.member_id, 1), UnknownMemberId)
    assert bench.sync(second.member_id, 1, instance="pod-1").assignment == b"assignment"
    assert bench.leave("", "pod-1") is None
    assert bench.read().state == EMPTY


def test_nothing_is_answered_before_it_is_committed() -> None:
    """Joins, syncs and even reads wait for the high watermark; then they are answered in order."""
    bench = GroupCoordinatorSetup(autocommit=False)
    answers = Answers()
    request = join_request(may_require_member_id=False)
    bench.coordinator.join(request, answers, at=bench.moment)
    bench.coordinator.read("g", answers)
    bench.coordinator.read("another", answers)
    assert [each.group_id for each in answers] == ["another"]
    bench.coordinator.committed(bench.end_offset - 1)
    assert len(answers) == 1
    bench.commit()
    assert [type(each).__name__ for each in answers] == ["Group", "JoinGroupResult", "Group"]


def test_a_failed_append_changes_nothing() -> None:
    """A change that could not be written did not happen: no member, no generation."""
    bench = GroupCoordinatorSetup()
    bench.refuses = NotEnoughReplicas()
    assert isinstance(bench.join(may_require_member_id=False), NotEnoughReplicas)
    bench.refuses = None
    assert not bench.read().exists


def test_losing_the_partition_answers_everybody() -> None:
    """Waiting requests and later requests get NOT_COORDINATOR, once each."""
    bench = GroupCoordinatorSetup(autocommit=False)
    waiting, later = Answers(), Answers()
    request = join_request(may_require_member_id=False)
    bench.coordinator.join(request, waiting, at=bench.moment)
    bench.coordinator.on_unloaded(NotCoordinator())
    bench.commit()
    bench.coordinator.read("g", later)
    bench.coordinator.read_some(bench.coordinator.group_ids(), later)
    assert [type(each) for each in waiting + later] == [NotCoordinator] * 3


def test_a_new_coordinator_carries_on_where_the_old_one_answered() -> None:
    """Answered changes survive the failover: the stable member just goes on heartbeating."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    before = bench.read()
    bench.fail_over()
    assert bench.read() == before
    assert bench.heartbeat(member_id, generation) is None
    bench.now += 11
    bench.coordinator.tick(bench.moment)
    bench.commit()
    assert bench.read().state == EMPTY


def test_a_failover_between_join_and_sync_loses_nothing() -> None:
    """The generation is in the journal from the join on, so the sync goes to the new coordinator."""
    bench = GroupCoordinatorSetup()
    member_id = bench.join().member_id
    generation = bench.join(member_id).generation
    bench.fail_over()
    assert bench.read().state == COMPLETING_REBALANCE
    assert isinstance(bench.sync(member_id, generation), SyncGroupResult)
    assert bench.read().state == STABLE
