"""Groups of several members: which members wait, for how long, and what survives the coordinator. Time is virtual."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    NotCoordinator,
    NotEnoughReplicas,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.coordinator.classic.group import MAX_UNCOMMITTED_CHANGES
from raftlog.coordinator.classic.rules import choose_protocol
from raftlog.coordinator.classic.states import TRANSITIONS, ClassicGroupEvent, next_state
from raftlog.coordinator.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from raftlog.coordinator.group_requests import JoinGroupResult, MemberIdRequired
from raftlog.coordinator.groups import GroupCapacity
from tests.coordinator.group_coordinator_setup import Answers, GroupCoordinatorSetup
from tests.kit.examples import examples

STATES = (EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD)


# -- the table -------------------------------------------------------------------------------------------


def test_the_table_allows_apache_kafkas_transitions_and_no_others() -> None:
    """ClassicGroupState's valid previous states, but that only an empty group is deleted."""
    allowed = {(before, after) for (before, _), after in TRANSITIONS.items()}
    assert allowed == {
        (EMPTY, PREPARING_REBALANCE),
        (EMPTY, DEAD),
        (PREPARING_REBALANCE, PREPARING_REBALANCE),
        (PREPARING_REBALANCE, COMPLETING_REBALANCE),
        (PREPARING_REBALANCE, EMPTY),
        (COMPLETING_REBALANCE, PREPARING_REBALANCE),
        (COMPLETING_REBALANCE, STABLE),
        (STABLE, PREPARING_REBALANCE),
    }


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", ClassicGroupEvent)
def test_what_is_not_in_the_table_is_a_bug(state: str, event: ClassicGroupEvent) -> None:
    """Every pair either leads to a state or stops the process."""
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) in STATES
    else:
        with pytest.raises(AssertionError, match=event.name):
            next_state(state, event)


# -- joining together ------------------------------------------------------------------------------------


def test_a_newcomer_waits_until_the_others_have_joined_again() -> None:
    """Two members: the second join is answered together with the rejoin of the first, in one generation."""
    bench = GroupCoordinatorSetup()
    first, generation = bench.stable_member()
    newcomer = bench.begin_join(may_require_member_id=False)
    assert newcomer == []
    assert bench.read().state == PREPARING_REBALANCE
    assert isinstance(bench.heartbeat(first, generation), RebalanceInProgress)
    assert bench.commit_offset(5, member_id=first, generation=generation) == (0,)
    (again,) = bench.begin_join(first)
    (joined,) = newcomer
    assert (again.generation, joined.generation) == (generation + 1, generation + 1)
    assert again.leader == joined.leader == first
    assert {each.member_id for each in again.members} == {first, joined.member_id}
    assert joined.members == ()
    assert bench.read().state == COMPLETING_REBALANCE


def test_followers_get_their_assignments_when_the_leader_brought_them() -> None:
    """A follower's sync waits; the leader's is recorded; then each hears its own."""
    bench = GroupCoordinatorSetup()
    first, generation = bench.stable_member()
    newcomer = bench.begin_join(may_require_member_id=False)
    bench.begin_join(first)
    second = newcomer[0].member_id
    waiting = bench.begin_sync(second, generation + 1)
    assert waiting == []
    (mine,) = bench.begin_sync(first, generation + 1, assignments={first: b"1", second: b"2"})
    assert (mine.assignment, waiting[0].assignment) == (b"1", b"2")
    assert bench.read().state == STABLE
    assert bench.begin_sync(second, generation + 1)[0].assignment == b"2"


def test_no_assignment_leaves_before_it_is_committed() -> None:
    """Neither the leader nor a follower hears of assignments that a lost tail could take back."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    bench.begin_join(ids[1], protocols=(("range", b"changed"),))
    bench.begin_join(ids[0])
    bench.autocommit = False
    follower = bench.begin_sync(ids[1], generation + 1)
    leader = bench.begin_sync(ids[0], generation + 1, assignments={ids[1]: b"2"})
    assert follower == leader == []
    bench.coordinator.on_unloaded(NotCoordinator())
    assert [type(each) for each in follower + leader] == [NotCoordinator] * 2


def test_no_generation_is_announced_before_its_commit() -> None:
    """Two coordinators never give out the same generation: it is recorded before any member hears of it."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group(None, None)
    bench.autocommit = False
    first, second = bench.begin_join(ids[0]), bench.begin_join(ids[1])
    assert first == second == []
    bench.commit()
    assert [type(each) for each in first + second] == [JoinGroupResult] * 2


def test_a_group_has_so_many_generations_on_their_way_and_no_more() -> None:
    """Each is kept until its commit: a member that joins again and again with large protocols took all memory."""
    bench = GroupCoordinatorSetup()
    member_id, _ = bench.stable_member()
    bench.autocommit = False
    waiting = [
        bench.begin_join(member_id, protocols=(("range", b"%d" % number),))
        for number in range(MAX_UNCOMMITTED_CHANGES)
    ]
    refused = bench.begin_join(member_id, protocols=(("range", b"one more"),))
    bench.commit()
    assert [type(each) for (each,) in waiting] == [JoinGroupResult] * MAX_UNCOMMITTED_CHANGES
    assert [type(each) for each in refused] == [CoordinatorNotAvailable]
    bench.autocommit = True
    assert type(bench.begin_join(member_id, protocols=(("range", b"again"),))[0]) is JoinGroupResult


def test_a_rebalance_makes_waiting_followers_join_again() -> None:
    """A member that waits for assignments when another joins gets REBALANCE_IN_PROGRESS."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    bench.begin_join(ids[1], protocols=(("range", b"changed"),))
    bench.begin_join(ids[0])
    waiting = bench.begin_sync(ids[1], generation + 1)
    bench.begin_join(may_require_member_id=False)
    assert isinstance(waiting[0], RebalanceInProgress)
    assert isinstance(bench.begin_sync(ids[0], generation + 1)[0], RebalanceInProgress)


def test_a_stable_follower_that_joins_again_causes_no_rebalance() -> None:
    """Only the leader's rejoin, or a changed subscription, is a reason for a rebalance."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    assert bench.begin_join(ids[1])[0].generation == generation
    assert bench.read().state == STABLE
    assert bench.begin_join(ids[1], protocols=(("range", b"other topics"),)) == []
    assert bench.read().state == PREPARING_REBALANCE


def test_two_join_requests_of_one_member_each_get_one_response() -> None:
    """A retry replaces the earlier request, which gets a retriable error."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group(None, None)
    before = bench.begin_join(ids[0])
    after = bench.begin_join(ids[0])
    assert isinstance(before[0], RebalanceInProgress)
    bench.begin_join(ids[1])
    assert isinstance(after[0], JoinGroupResult)
    assert len(before) == len(after) == 1


def test_an_id_that_was_given_out_is_waited_for() -> None:
    """As in Apache Kafka: a member that got an id is part of the rebalance until its session ends."""
    bench = GroupCoordinatorSetup()
    first, _ = bench.stable_member()
    required = bench.join()
    assert isinstance(required, MemberIdRequired)
    again = bench.begin_join(first)
    assert again == []
    bench.pass_time(10.5)
    assert again[0].generation == 2
    assert len(again[0].members) == 1


# -- protocols -------------------------------------------------------------------------------------------


def test_the_protocol_is_the_one_that_most_prefer_and_all_have() -> None:
    """Votes count only among names that all have; the first member breaks ties."""
    both, other = (("a", b""), ("b", b"")), (("b", b""), ("a", b""))
    assert choose_protocol([both, other]) == "a"
    assert choose_protocol([both, other, other]) == "b"
    assert choose_protocol([(("x", b""), *both), other]) == "a"
    assert choose_protocol([both, (("c", b""),)]) is None
    assert choose_protocol([]) is None


def test_a_newcomer_must_share_type_and_protocol() -> None:
    """INCONSISTENT_GROUP_PROTOCOL, without effect on the others. Any type will do if it is the first."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group(None, None, protocol_type="connect", protocols=(("compatible", b"x"),))
    refused = bench.join(protocol_type="consumer", protocols=(("compatible", b""),))
    assert isinstance(refused, InconsistentGroupProtocol)
    refused = bench.join(protocol_type="connect", protocols=(("eager", b""),))
    assert isinstance(refused, InconsistentGroupProtocol)
    group = bench.read()
    assert (group.state, group.membership.protocol_type, group.membership.protocol) == (
        STABLE,
        "connect",
        "compatible",
    )
    assert list(group.membership.members) == ids


# -- time ------------------------------------------------------------------------------------------------


def test_a_first_rebalance_waits_for_further_members() -> None:
    """group.initial.rebalance.delay.ms (KIP-134): prolonged while members come, at most by the rebalance timeout."""
    bench = GroupCoordinatorSetup(group_initial_rebalance_delay_ms=3_000)
    first = bench.begin_join(may_require_member_id=False)
    bench.pass_time(2)
    second = bench.begin_join(may_require_member_id=False)
    bench.pass_time(2)
    assert first == second == []
    bench.pass_time(2)
    assert first[0].generation == second[0].generation == 1
    assert len(first[0].members) == 2


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    """A stream of newcomers cannot hold up a group for ever."""
    bench = GroupCoordinatorSetup(group_initial_rebalance_delay_ms=3_000)
    first = bench.begin_join(may_require_member_id=False, rebalance_timeout_ms=7_000)
    for _ in range(4):
        bench.pass_time(1.5)
        bench.begin_join(may_require_member_id=False, rebalance_timeout_ms=7_000)
    assert first == []
    bench.pass_time(2)
    assert first[0].generation == 1


def test_a_newcomer_that_leaves_an_empty_group_leaves_nothing() -> None:
    """No record was written, so there is none to delete."""
    bench = GroupCoordinatorSetup(group_initial_rebalance_delay_ms=3_000)
    required = bench.join()
    gone = bench.begin_join(required.member_id)
    assert bench.leave(required.member_id) is None
    assert isinstance(gone[0], UnknownMemberId)
    bench.pass_time(4)
    assert bench.read().state == DEAD
    assert (len(bench.coordinator), bench.batches) == (0, [])


def test_a_group_whose_first_member_left_is_of_its_next_members_type() -> None:
    """Within the initial delay one comes and goes, another of another type comes: the group is its kind."""
    bench = GroupCoordinatorSetup(group_initial_rebalance_delay_ms=3_000)
    bench.begin_join(may_require_member_id=False, instance="a")
    bench.leave("", instance="a")
    newcomer = bench.begin_join(may_require_member_id=False, protocol_type="connect")
    bench.pass_time(6)
    assert [each.protocol_type for each in newcomer] == ["connect"]
    assert bench.read().membership.protocol_type == "connect"


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    """The longest rebalance timeout of the members; beating alone is not enough."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None, rebalance_timeout_ms=20_000)
    waiting = bench.begin_join(ids[0], rebalance_timeout_ms=20_000)
    for _ in range(4):
        bench.pass_time(4.5)
        assert isinstance(bench.heartbeat(ids[1], generation), RebalanceInProgress)
    assert waiting == []
    bench.pass_time(2.5)
    assert [each.member_id for each in waiting[0].members] == [ids[0]]
    assert isinstance(bench.heartbeat(ids[1], generation + 1), UnknownMemberId)


def test_the_leader_that_does_not_come_back_is_replaced() -> None:
    """The next of the former members leads the next generation, though others were faster."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group(None, None, None)
    third, second = bench.begin_join(ids[2], protocols=(("range", b"n"),)), bench.begin_join(ids[1])
    newcomer = bench.begin_join(may_require_member_id=False)
    assert bench.leave(ids[0]) is None
    assert third[0].leader == second[0].leader == newcomer[0].leader == ids[1]
    assert len(second[0].members) == 3


def test_a_leader_that_leaves_before_it_assigned_gives_its_place_to_a_former_member() -> None:
    """A newcomer that joins first does not lead, as long as a member of the generation before comes back."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group(None, None)
    bench.leave(ids[0])
    newcomer = bench.begin_join(may_require_member_id=False)
    former = bench.begin_join(ids[1], protocols=(("range", b"n"),))
    assert newcomer[0].leader == former[0].leader == ids[1]


def test_a_member_that_falls_silent_costs_the_others_one_rebalance() -> None:
    """After its session; live members get the rebalance, and share its partitions."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    bench.pass_time(8)
    assert bench.heartbeat(ids[0], generation) is None
    bench.pass_time(3)
    assert isinstance(bench.heartbeat(ids[0], generation), RebalanceInProgress)
    (again,) = bench.begin_join(ids[0])
    assert (again.generation, len(again.members)) == (generation + 1, 1)


def test_a_member_whose_join_waits_for_others_does_not_time_out() -> None:
    """A member with a waiting JoinGroup cannot send heartbeats, and is not to blame; a newcomer waits five minutes at
    most.
    """
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None, rebalance_timeout_ms=600_000)
    waiting = bench.begin_join(ids[0])
    newcomer = bench.begin_join(may_require_member_id=False)
    for _ in range(60):
        bench.pass_time(5)
        bench.heartbeat(ids[1], generation)
    assert waiting == []
    assert isinstance(newcomer[0], UnknownMemberId)
    bench.begin_join(ids[1])
    assert len(waiting[0].members) == 2


def test_a_member_that_never_syncs_is_removed() -> None:
    """After a generation began every member has the rebalance timeout to sync."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None, rebalance_timeout_ms=8_000, session_timeout_ms=30_000)
    bench.begin_join(ids[1], protocols=(("range", b"n"),), rebalance_timeout_ms=8_000)
    bench.begin_join(ids[0], rebalance_timeout_ms=8_000)
    bench.begin_sync(ids[0], generation + 1)
    bench.pass_time(9)
    assert isinstance(bench.heartbeat(ids[1], generation + 1), UnknownMemberId)
    assert isinstance(bench.heartbeat(ids[0], generation + 1), RebalanceInProgress)


# -- static members --------------------------------------------------------------------------------------


@pytest.mark.parametrize("may_skip", [False, True])
@pytest.mark.parametrize("index", [0, 1])
def test_a_static_member_that_restarts_costs_no_rebalance(index: int, may_skip: bool) -> None:
    """KIP-345: same generation and assignment. A leader skips the assignment (KIP-814), or becomes a follower."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group("a", "b")
    instance = bench.instance_of(ids[index])
    (back,) = bench.begin_join(instance=instance, may_skip_assignment=may_skip)
    assert (back.generation, bench.read().state) == (generation, STABLE)
    leads = index == 0 and may_skip
    assert (back.skip_assignment, len(back.members)) == (leads, 2 if leads else 0)
    assert (back.leader == back.member_id) == leads
    assert bench.sync(back.member_id, generation, instance=instance).assignment == ids[index].encode()
    assert isinstance(bench.heartbeat(ids[index], generation, instance), FencedInstanceId)
    assert isinstance(bench.begin_join(ids[index], instance=instance)[0], FencedInstanceId)
    stale = bench.commit_offset(3, member_id=ids[index], generation=generation, group_instance_id=instance)
    assert isinstance(stale, FencedInstanceId)
    bench.fail_over()
    assert bench.heartbeat(back.member_id, generation, instance) is None


def test_a_static_member_may_be_late_for_a_rebalance() -> None:
    """It stays in the group, with its subscription, until its session ends."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group("a", "b", rebalance_timeout_ms=8_000, session_timeout_ms=60_000)
    changes: dict[str, Any] = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 60_000}
    rejoined = bench.begin_join(ids[1], instance="b", protocols=(("range", b"n"),), **changes)
    bench.pass_time(8.5)
    assert {each.group_instance_id for each in rejoined[0].members} == {"a", "b"}
    assert rejoined[0].leader == ids[1]


def test_a_rebalance_without_time_waits_for_late_static_members_in_peace() -> None:
    """A rebalance timeout of 0 does not make the coordinator wake up all the time until the session ends."""
    bench = GroupCoordinatorSetup()
    (_, leaves), _ = bench.stable_group("a", "b", rebalance_timeout_ms=0)
    bench.leave(leaves)
    for _ in range(3):
        bench.coordinator.tick(bench.moment)
    next_at = bench.coordinator.next_expiry_at()
    assert next_at is not None
    assert next_at > bench.now
    assert bench.read().state == PREPARING_REBALANCE


def test_an_empty_static_id_is_one_too() -> None:
    """Two members never hold the same static id, not even the empty id."""
    bench = GroupCoordinatorSetup()
    first, _ = bench.stable_group("")
    successor = bench.join(instance="")
    assert list(bench.read().membership.members) == [successor.member_id]
    assert isinstance(bench.heartbeat(first[0], 1, ""), FencedInstanceId)


def test_a_static_member_that_waits_twice_fences_its_former_self() -> None:
    """In a rebalance, too: the older request hears FENCED_INSTANCE_ID."""
    bench = GroupCoordinatorSetup()
    ids, _ = bench.stable_group("a", "b")
    former = bench.begin_join(ids[0], instance="a")
    heir = bench.begin_join(instance="a")
    assert isinstance(former[0], FencedInstanceId)
    had = {each.assignment for each in bench.read().membership.members.values()}
    assert had == {each.encode() for each in ids}, "the next life is described with what the former one had"
    bench.begin_join(ids[1], instance="b")
    assert heir[0].leader == heir[0].member_id
    assert len(heir[0].members) == 2


def test_an_id_that_was_given_out_takes_no_static_place() -> None:
    """A dynamic newcomer that comes again under another's static id is fenced: two members never share it."""
    bench = GroupCoordinatorSetup()
    bench.stable_group("a", "b")
    required = bench.join()
    assert isinstance(bench.join(required.member_id, instance="a"), FencedInstanceId)
    assert bench.read().state == STABLE


def test_a_static_member_that_changes_the_protocol_costs_a_rebalance() -> None:
    """Only if the protocol chosen stays the same is the assignment still valid."""
    bench = GroupCoordinatorSetup()
    bench.stable_group("a", "b")
    assert bench.begin_join(instance="b", protocols=(("roundrobin", b""),)) == []
    assert bench.read().state == PREPARING_REBALANCE


# -- limits ----------------------------------------------------------------------------------------------


def test_places_in_a_rebalance_go_to_the_first_to_join() -> None:
    """group.max.size (KIP-389): a member that joins again too late is out, and the rebalance ends without it."""
    bench = GroupCoordinatorSetup(group_max_size=2)
    ids, _ = bench.stable_group(None, None)
    first = bench.begin_join(ids[0], protocols=(("range", b"changed"),))
    newcomer = bench.begin_join(may_require_member_id=False)
    (late,) = bench.begin_join(ids[1])
    assert isinstance(late, GroupMaxSizeReached)
    assert first[0].generation == newcomer[0].generation
    assert len(first[0].members) == 2


def test_a_static_member_that_comes_back_too_late_counts_as_well() -> None:
    """group.max.size holds for static members too; a waiting member may be replaced by its next incarnation."""
    bench = GroupCoordinatorSetup(group_max_size=2)
    ids, _ = bench.stable_group(None, "static")
    dynamic = next(each for each in ids if bench.instance_of(each) is None)
    first = bench.begin_join(dynamic, protocols=(("range", b"changed"),))
    newcomer = bench.begin_join(may_require_member_id=False)
    assert (first, newcomer) == ([], [])
    (stranger,) = bench.begin_join("a-former-life", instance="static")
    assert isinstance(stranger, FencedInstanceId)
    (late,) = bench.begin_join(instance="static")
    assert isinstance(late, GroupMaxSizeReached)
    assert first[0].generation == newcomer[0].generation
    assert len(bench.read().membership.members) == 2


def test_one_members_bytes_do_not_fail_everybodys_join() -> None:
    """A member that would make the generation larger than a record is refused alone, whichever of its protocols is
    chosen.
    """
    bench = GroupCoordinatorSetup()
    first, generation = bench.stable_member()
    half = bytes(600_000)
    for protocols in ((("range", half * 2),), (("range", b""), ("other", half * 2))):
        (refused,) = bench.begin_join(may_require_member_id=False, protocols=protocols)
        assert isinstance(refused, GroupMaxSizeReached)
    assert bench.heartbeat(first, generation) is None, "nobody was disturbed"
    large = bench.begin_join(may_require_member_id=False, protocols=(("range", half),))
    (another,) = bench.begin_join(may_require_member_id=False, protocols=(("range", half),))
    assert isinstance(another, GroupMaxSizeReached)
    bench.begin_join(first)
    assert large[0].generation == generation + 1
    (again,) = bench.begin_join(large[0].member_id, protocols=(("range", half * 2),))
    assert isinstance(again, GroupMaxSizeReached)


def test_a_group_too_many_is_refused() -> None:
    """raftlog.group.max.groups bounds the memory; groups that exist go on."""
    bench = GroupCoordinatorSetup()
    bench.commit_offset(1)
    bench.coordinator._groups.capacity = GroupCapacity(may_add=lambda: False)
    assert isinstance(bench.join(group_id="another"), PolicyViolation)
    assert isinstance(bench.commit_offset(1, group_id="another"), PolicyViolation)
    assert bench.commit_offset(2) == (0,)


# -- failures --------------------------------------------------------------------------------------------


def test_a_generation_that_cannot_be_recorded_is_nobodys() -> None:
    """Below min.insync.replicas every joined member gets an error, and may come again with its id."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    newcomer = bench.join().member_id
    answers = [bench.begin_join(ids[0]), bench.begin_join(newcomer)]
    bench.refuses = NotEnoughReplicas()
    answers.append(bench.begin_join(ids[1]))
    assert [type(each[0]) for each in answers] == [NotEnoughReplicas] * 3
    bench.refuses = None
    answers = [bench.begin_join(each) for each in (*ids, newcomer)]
    assert [each[0].generation for each in answers] == [generation + 1] * 3


def test_assignments_that_cannot_be_recorded_are_brought_again() -> None:
    """Leader and followers get an error; the generation stands, so they sync again."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    bench.begin_join(ids[1], protocols=(("range", b"n"),))
    bench.begin_join(ids[0])
    follower = bench.begin_sync(ids[1], generation + 1)
    bench.refuses = NotEnoughReplicas()
    leader = bench.begin_sync(ids[0], generation + 1)
    assert [type(each[0]) for each in (follower, leader)] == [NotEnoughReplicas] * 2
    bench.refuses = None
    assert bench.begin_sync(ids[1], generation + 1) == []
    assert bench.begin_sync(ids[0], generation + 1, assignments={ids[0]: b"1"})[0].assignment == b"1"


@pytest.mark.parametrize("step", ["gathering", "gathered", "follower synced", "assigned"])
def test_a_coordinator_that_fails_over_in_a_rebalance_costs_at_most_another(step: str) -> None:
    """Gathering is begun anew; a generation that was sent goes on where it was, without a rebalance."""
    bench = GroupCoordinatorSetup()
    ids, generation = bench.stable_group(None, None)
    waiting = [bench.begin_join(ids[0])]
    if step != "gathering":
        waiting.append(bench.begin_join(ids[1]))
    if step == "follower synced":
        waiting.append(bench.begin_sync(ids[1], generation + 1))
    if step == "assigned":
        bench.begin_sync(ids[0], generation + 1, assignments={ids[1]: b"2"})
    bench.coordinator.on_unloaded(NotCoordinator())
    assert all(len(each) == 1 for each in waiting)
    bench.fail_over()
    if step == "gathering":
        assert bench.heartbeat(ids[0], generation) is None
        return
    assert isinstance(bench.heartbeat(ids[0], generation), IllegalGeneration)
    assert bench.heartbeat(ids[0], generation + 1) is None
    if step != "assigned":
        bench.begin_sync(ids[0], generation + 1, assignments={ids[1]: b"2"})
    assert bench.begin_sync(ids[1], generation + 1)[0].assignment == b"2"


# -- everything together ---------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "static", "rejoin", "sync", "leave", "beat", "time", "commit", "fail", "refuse"]
        ),
        st.integers(0, 3),
        st.integers(0, 20),
    ),
    max_size=60,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, st.sampled_from([0, 3_000]))
def test_every_request_gets_one_response_and_every_generation_is_announced_once(
    steps: list[tuple[str, int, int]], delay_ms: int
) -> None:
    """Events in any order: no response twice, none forgotten, no generation with two leaders."""
    bench = GroupCoordinatorSetup(group_initial_rebalance_delay_ms=delay_ms)
    asked: list[Answers] = []
    ids: list[str] = []
    for step, who, amount in steps:
        member = ids[who % len(ids)] if ids else ""
        bench.refuses = None
        generation = bench.read().membership.generation
        if step == "join":
            asked.append(bench.begin_join(may_require_member_id=amount % 2 == 0))
        elif step == "static":
            asked.append(bench.begin_join(instance=f"i{who % 2}", may_require_member_id=False))
        elif step == "rejoin":
            asked.append(bench.begin_join(member, instance=bench.instance_of(member)))
        elif step == "sync":
            asked.append(bench.begin_sync(member, generation, assignments={member: b"x"}))
        elif step == "leave":
            bench.leave(member)
        elif step == "beat":
            bench.heartbeat(member, generation)
        elif step == "commit":
            bench.commit_offset(amount, member_id=member, generation=generation)
        elif step == "time":
            bench.pass_time(amount)
        elif step == "refuse":
            bench.refuses = NotEnoughReplicas()
            asked.append(bench.begin_join(member, protocols=(("range", b"%d" % amount),)))
            bench.refuses = None
        else:
            bench.coordinator.on_unloaded(NotCoordinator())
            assert all(len(each) == 1 for each in asked)
            bench.fail_over()
        ids = list(
            dict.fromkeys(
                [*ids, *(each[0].member_id for each in asked if each and hasattr(each[0], "member_id"))]
            )
        )
    leaders: dict[int, str] = {}
    for each in asked:
        assert len(each) <= 1
        if each and isinstance(each[0], JoinGroupResult) and each[0].members:
            assert (
                leaders.setdefault(each[0].generation, each[0].leader) == each[0].leader
                or "i" in each[0].leader
            )
    bench.pass_time(400)
    assert all(len(each) == 1 for each in asked)
    assert bench.read().state in (EMPTY, DEAD)
