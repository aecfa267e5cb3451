"""Groups turn from classic to consumer and back while they have members (KIP-848, online migration)."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from raftlog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership
from raftlog.coordinator.consumer_protocol import (
    PartitionsByTopic,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)
from raftlog.coordinator.group_requests import (
    DeleteGroup,
    Heartbeat,
    JoinGroupResult,
    LeaveGroup,
    MemberRef,
    SyncGroup,
    SyncGroupResult,
)
from raftlog.coordinator.record_fields import I16, I32, string
from tests.coordinator.group_coordinator_setup import (
    Answers,
    GroupCoordinatorSetup,
    image_of,
    topic_id,
)

T = topic_id("t")
ALL = frozenset(range(4))


def bench(**settings: Any) -> GroupCoordinatorSetup:
    made = GroupCoordinatorSetup(**settings)
    made.image = image_of({"t": 4})
    return made


def subscription(*topics: str, owned: PartitionsByTopic | None = None) -> bytes:
    """A ConsumerProtocolSubscription: version 1 if something is owned, else 0."""
    head = I16.pack(0 if owned is None else 1) + I32.pack(len(topics)) + b"".join(map(string, topics))
    if owned is None:
        return head + I32.pack(-1)
    return head + I32.pack(-1) + write_assignment(owned, version=0)[2:-4]


def protocols(owned: PartitionsByTopic | None = None) -> Any:
    return {"protocols": (("range", subscription("t", owned=owned)), ("roundrobin", subscription("t")))}


def assigned(made: GroupCoordinatorSetup, *instances: str | None) -> tuple[list[str], int]:
    """As `classic_group`, with assignments in the protocol's own bytes."""
    joins = [made.begin_join(may_require_member_id=False, instance=each, **protocols()) for each in instances]
    ids = list(made.read().membership.members)
    while any(not each for each in joins):
        again = [made.begin_join(each, instance=made.instance_of(each), **protocols()) for each in ids]
        assert all(again)
        break
    generation = made.read().membership.generation
    ids = list(made.read().membership.members)
    shares = {each: write_assignment({"t": frozenset({index})}, version=0) for index, each in enumerate(ids)}
    for each in ids:
        made.sync(each, generation, assignments=shares, instance=made.instance_of(each))
    assert made.read().state == "Stable"
    return ids, generation


def consumer(made: GroupCoordinatorSetup) -> ConsumerMembership:
    membership = made.read().consumer
    assert isinstance(membership, ConsumerMembership)
    return membership


def told(reply: Any) -> frozenset[int]:
    assert isinstance(reply, SyncGroupResult), reply
    assignment = read_assignment(reply.assignment)
    assert assignment is not None
    return assignment.get("t", frozenset())


def test_a_consumer_member_makes_a_consumer_group_of_a_classic_one():
    """The classic member keeps its id, generation and partitions, and hears at its next heartbeat that it must join."""
    made = bench()
    (old,), generation = assigned(made, None)
    assert made.consumer_group_heartbeat("new", 0).assignment is not None
    state = consumer(made)
    assert set(state.members) == {old, "new"} and not made.read().has_metadata
    assert state.current_assignment_of(old).assigned == {T: frozenset({0})}
    assert isinstance(made.heartbeat(old, generation), RebalanceInProgress)
    joined = made.join(old, **protocols({"t": frozenset({0})}))
    assert isinstance(joined, JoinGroupResult) and joined.leader == "" and not joined.members
    assert told(made.sync(old, joined.generation)) >= {0}
    assert made.heartbeat(old, joined.generation) is None


def walk(made: GroupCoordinatorSetup, classic: str, modern: str) -> tuple[frozenset[int], frozenset[int]]:
    """Let a classic and a consumer member follow their responses until both are settled; return their partitions."""
    mine = consumer(made).current_assignment_of(classic).assigned.get(T, frozenset())
    theirs = consumer(made).current_assignment_of(modern).assigned.get(T, frozenset())
    for _ in range(8):
        heard = made.consumer_group_heartbeat(
            modern, consumer(made).current_assignment_of(modern).epoch, owned={T: theirs} if theirs else {}
        )
        theirs = theirs if heard.assignment is None else heard.assignment.get(T, frozenset())
        generation = consumer(made).current_assignment_of(classic).epoch
        if isinstance(made.heartbeat(classic, generation), RebalanceInProgress):
            joined = made.join(classic, **protocols({"t": mine}))
            mine = told(made.sync(classic, joined.generation))
    assert made.read().state == "Stable"
    return mine, theirs


def test_both_kinds_of_members_share_the_partitions():
    """Each is given what the other has given up, and no partition has two owners or none."""
    made = bench()
    (old,), _ = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    mine, theirs = walk(made, old, "new")
    assert mine | theirs == ALL and not mine & theirs and len(mine) == 2


def test_a_group_is_classic_again_when_its_last_consumer_member_has_gone():
    """The classic members rebalance among themselves, in a later generation; another coordinator sees the same."""
    made = bench()
    (old,), generation = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    walk(made, old, "new")
    epoch = consumer(made).epoch
    made.consumer_group_heartbeat("new", -1)
    group = made.read()
    assert group.consumer is None and group.state == "PreparingRebalance"
    assert made.replayed()["g"].membership.members.keys() == {old}
    joined = made.join(old, **protocols())
    assert joined.generation > epoch > generation and joined.leader == old


@pytest.mark.parametrize("fails_over", [False, True])
def test_classic_members_keep_theirs_when_the_last_consumer_member_goes(fails_over: bool):
    """They get a rebalance in the generation that they know, and commit in it: no member loses all its partitions."""
    made = bench()
    (old,), _ = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    walk(made, old, "new")
    generation = consumer(made).current_assignment_of(old).epoch
    made.consumer_group_heartbeat("new", -1)
    if fails_over:
        made.fail_over()
    assert isinstance(made.heartbeat(old, generation), RebalanceInProgress)
    assert made.commit_offset(5, member_id=old, generation=generation) == (0,)
    joined = made.join(old, **protocols())
    assert joined.generation > generation and joined.leader == old


def cooperative(*owned: int) -> Any:
    return {"protocols": (("cooperative-sticky", subscription("t", owned={"t": frozenset(owned)})),)}


def shares(**members: set[int]) -> dict[str, bytes]:
    return {each: write_assignment({"t": frozenset(has)}, version=1) for each, has in members.items()}


@pytest.mark.parametrize("fails_over", [False, True])
def test_what_a_member_has_yet_to_give_up_is_not_forgotten_when_the_group_changes_its_type(fails_over: bool):
    """A member had to keep two of four, and still reads all: the last consumer member restarts, and waits."""
    made = bench()
    old = made.join(may_require_member_id=False, **cooperative()).member_id
    made.sync(old, 1, assignments=shares(**{old: {0, 1, 2, 3}}))
    made.consumer_group_heartbeat("x", 0)
    joined = made.join(old, **cooperative(0, 1, 2, 3))
    kept = told(made.sync(old, joined.generation))
    assert len(kept) == 2 and consumer(made).current_assignment_of(old).revoking == {T: ALL - kept}
    made.consumer_group_heartbeat("x", -1)
    if fails_over:
        made.fail_over()
    assert made.consumer_group_heartbeat("y", 0).assignment == {}
    joined = made.join(old, **cooperative(*kept))
    made.sync(old, joined.generation)
    assert made.consumer_group_heartbeat(
        "y", consumer(made).current_assignment_of("y").epoch, owned={}
    ).assignment == {T: ALL - kept}


@pytest.mark.parametrize("fails_over", [False, True])
def test_what_a_cooperative_leader_took_away_is_given_out_when_it_was_given_up(fails_over: bool):
    """Between the two phases of a cooperative rebalance no member is assigned a partition that another still reads."""
    made = bench()
    first = made.join(may_require_member_id=False, **cooperative()).member_id
    made.sync(first, 1, assignments=shares(**{first: {0, 1, 2, 3}}))
    waiting = made.begin_join(may_require_member_id=False, **cooperative())
    generation = made.join(first, **cooperative(0, 1, 2, 3)).generation
    second = waiting[0].member_id
    assert told(made.sync(first, generation, assignments=shares(**{first: {0, 1}, second: set()}))) == {0, 1}
    if fails_over:
        made.fail_over()
    assert made.consumer_group_heartbeat("y", 0).assignment == {}
    assert consumer(made).current_assignment_of(first).revoking == {T: frozenset({2, 3})}
    assert isinstance(made.heartbeat(first, generation), RebalanceInProgress)
    joined = made.join(first, **cooperative(0, 1))
    assert told(made.sync(first, joined.generation)) <= {0, 1}
    assert made.consumer_group_heartbeat(
        "y", consumer(made).current_assignment_of("y").epoch, owned={}
    ).assignment


def test_a_group_that_no_classic_generation_could_hold_stays_a_consumer_group():
    """Else its last consumer member could never leave: the record of what comes after would be refused for ever."""
    made = bench()
    made.consumer_group_heartbeat("new", 0)
    large = (("range", subscription("t")), ("roundrobin", b"x" * 500_000))
    ids = [made.join(may_require_member_id=False, protocols=large).member_id for _ in range(2)]
    made.consumer_group_heartbeat("new", -1)
    assert consumer(made).members.keys() == set(ids)
    made.leave(ids[0])
    assert made.read().consumer is None and made.read().membership.members.keys() == {ids[1]}


def test_assignments_count_where_a_consumer_group_would_become_classic():
    """By topic names they are larger than by ids, and what ends the consumer group is in the same batch."""
    made = bench(message_max_bytes=32_000, group_consumer_assignors=("range",))
    names = [f"{number:03}" + "n" * 150 for number in range(40)]
    made.image = image_of({**dict.fromkeys(names, 3), "t": 4})
    made.consumer_group_heartbeat("x", 0)
    offer = (("range", subscription(*names)),)
    ids = [made.join(may_require_member_id=False, protocols=offer).member_id for _ in range(3)]
    for each in [*ids, *ids]:
        made.join(each, protocols=offer)
    assert made.consumer_group_heartbeat("x", -1).epoch == -1
    assert consumer(made).members.keys() == set(ids)
    made.leave(ids[0])
    assert made.read().consumer is None and made.read().membership.members.keys() == set(ids[1:])


def test_a_group_is_classic_again_when_its_last_consumer_member_falls_silent():
    """Being taken out is as leaving; classic members go on with their sessions."""
    made = bench(group_consumer_session_timeout_ms=2_000)
    (old,), _ = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    made.pass_time(3)
    assert made.read().consumer is None and set(made.read().membership.members) == {old}
    made.pass_time(11)
    assert not made.read().membership.members


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_policy_may_forbid_to_become_a_consumer_group(policy: str):
    """GROUP_ID_NOT_FOUND, as Apache Kafka says it, and the classic group goes on."""
    made = bench(group_consumer_migration_policy=policy)
    (old,), generation = assigned(made, None)
    assert isinstance(made.consumer_group_heartbeat("new", 0), GroupIdNotFound)
    assert made.heartbeat(old, generation) is None


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_policy_may_forbid_to_become_a_classic_group(policy: str):
    """It stays a consumer group, of classic members only."""
    made = bench()
    (old,), _ = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    object.__setattr__(made.config, "group_consumer_migration_policy", policy)
    made.consumer_group_heartbeat("new", -1)
    assert set(consumer(made).members) == {old}


def test_groups_of_other_protocol_types_never_change():
    """A Connect cluster is no consumer group."""
    made = bench()
    ids, generation = made.stable_group(None, protocol_type="connect")
    assert isinstance(made.consumer_group_heartbeat("new", 0), GroupIdNotFound)
    assert made.heartbeat(ids[0], generation) is None


def test_a_group_that_speaks_of_no_topics_does_not_change():
    """Metadata that is no subscription cannot be read, and so not be assigned here."""
    made = bench()
    made.stable_member()
    assert isinstance(made.consumer_group_heartbeat("new", 0), GroupIdNotFound)


def test_a_group_whose_members_wait_for_their_assignments_changes_later():
    """COORDINATOR_NOT_AVAILABLE is retried: until then the assignment is unknown."""
    made = bench()
    joined = made.join(may_require_member_id=False, **protocols())
    assert isinstance(made.consumer_group_heartbeat("new", 0), CoordinatorNotAvailable)
    made.sync(joined.member_id, joined.generation, assignments={joined.member_id: b""})
    assert made.consumer_group_heartbeat("new", 0).epoch > joined.generation


def test_an_empty_group_takes_either_type_whatever_the_policy():
    """Offsets stay, and the epochs of the one follow the generations of the other, so that no number comes twice."""
    made = bench(group_consumer_migration_policy="disabled")
    (old,), generation = assigned(made, None)
    made.leave(old)
    made.commit_offset(5)
    epoch = made.consumer_group_heartbeat("new", 0).epoch
    made.consumer_group_heartbeat("new", -1)
    joined = made.join(may_require_member_id=False, **protocols())
    assert joined.leader == joined.member_id
    assert joined.generation > epoch > generation
    group = made.read()
    assert group.consumer is None and group.offsets["t", 0].offset == 5
    assert made.replayed()["g"] == made.read()


def test_a_classic_member_that_waits_in_a_rebalance_gets_rebalance_in_progress():
    """A classic member with a waiting JoinGroup gets REBALANCE_IN_PROGRESS, and joins the consumer group."""
    made = bench()
    (old,), _ = assigned(made, None)
    waiting = made.begin_join(may_require_member_id=False, **protocols())
    assert not waiting
    made.consumer_group_heartbeat("new", 0)
    made.commit()
    assert isinstance(waiting[0], RebalanceInProgress)
    second = made.join(may_require_member_id=False, **protocols())
    assert set(consumer(made).members) == {old, "new", second.member_id}


def test_classic_members_of_a_consumer_group_are_checked_as_in_a_classic_one():
    """Each error is the classic protocol's own."""
    made = bench()
    (old,), generation = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    assert isinstance(made.heartbeat("new", 1), UnknownMemberId), "it does not speak that protocol"
    assert isinstance(made.heartbeat(old, generation + 5), IllegalGeneration)
    assert isinstance(made.sync("nobody", 1), UnknownMemberId)
    assert isinstance(made.sync(old, generation), RebalanceInProgress)
    assert isinstance(made.sync(old, generation, protocol="other"), InconsistentGroupProtocol)
    assert isinstance(made.join(old, protocol_type="connect"), InconsistentGroupProtocol)
    assert isinstance(
        made.join(old, protocols=(("mine", subscription("t")),), may_require_member_id=False), JoinGroupResult
    )
    other = made.join(protocols=(("theirs", subscription("t")),), may_require_member_id=False)
    assert isinstance(other, InconsistentGroupProtocol)
    assert isinstance(made.join(old, instance="one", **protocols()), UnknownMemberId)
    assert isinstance(made.leave("nobody"), UnknownMemberId)
    assert made.leave(old) is None and set(consumer(made).members) == {"new"}


def test_a_static_classic_member_takes_the_place_of_its_former_life():
    """As in a classic group; the former incarnation is fenced."""
    made = bench()
    (old,), _ = assigned(made, "one")
    made.consumer_group_heartbeat("new", 0)
    joined = made.join(instance="one", **protocols())
    assert set(consumer(made).members) == {joined.member_id, "new"}
    assert isinstance(made.join(old, instance="one", **protocols()), FencedInstanceId)
    assert made.leave("", "one") is None


def test_a_static_members_consumer_life_may_be_followed_by_a_classic_one_and_back():
    """A rolling restart with another setting: the last member of the other type changes the group."""
    made = bench()
    made.consumer_group_heartbeat("a", 0, instance_id="one")
    joined = made.join(instance="one", **protocols())
    assert isinstance(joined, JoinGroupResult)
    assert made.read().consumer is None and set(made.read().membership.members) == {joined.member_id}
    again = made.join(joined.member_id, instance="one", **protocols())
    made.sync(
        joined.member_id,
        again.generation,
        instance="one",
        assignments={joined.member_id: write_assignment({}, version=0)},
    )
    assert made.consumer_group_heartbeat("b", 0, instance_id="one").assignment == {T: ALL}
    assert set(consumer(made).members) == {"b"}


def test_classic_members_that_do_not_join_again_in_time_are_out():
    """The rebalance timeout runs from a member's response, and a sync timeout from its join."""
    made = bench()
    (old,), generation = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    for _ in range(61):
        made.heartbeat(old, generation)
        made.consumer_group_heartbeat("new", consumer(made).current_assignment_of("new").epoch)
        made.pass_time(1)
    assert set(consumer(made).members) == {"new"}


def test_a_member_that_left_during_a_rebalance_is_not_in_the_upgraded_group():
    """Its last generation is all that is recorded: what the leaver had there is for others at once."""
    made = bench()
    ids, _ = assigned(made, None, None)
    made.leave(ids[0])
    heard = made.consumer_group_heartbeat("new", 0)
    assert consumer(made).members.keys() == {ids[1], "new"}
    assert heard.assignment and heard.assignment[T]


def test_a_static_member_that_came_back_in_a_rebalance_has_its_place_after_an_upgrade():
    """Its next incarnation waits in the rebalance, has to join again, and takes over its predecessor's partitions."""
    made = bench()
    ids, _ = assigned(made, "one", "two")
    made.begin_join(may_require_member_id=False, **protocols())
    waiting = made.begin_join(instance="one", **protocols())
    made.consumer_group_heartbeat("new", 0)
    made.commit()
    assert isinstance(waiting[0], RebalanceInProgress)
    assert consumer(made).members.keys() == {*ids, "new"}
    joined = made.join(instance="one", **protocols())
    assert isinstance(joined, JoinGroupResult) and ids[0] not in consumer(made).members


def test_neither_the_classic_group_nor_unread_topics_are_kept():
    """Offers of a thousand members, and a map of all topics, for as long as the group has offsets."""
    made = bench()
    (old,), _ = assigned(made, None)
    former = weakref.ref(made.coordinator._groups.get("g"))
    made.consumer_group_heartbeat("new", 0)
    gc.collect()
    assert former() is None
    made.leave(old)
    made.consumer_group_heartbeat("new", -1)
    seen = made.image.topics
    made.image = image_of({"t": 4})
    assert not [each for each in gc.get_referrers(seen) if isinstance(each, dict) and "_topics_seen" in each]


def test_a_refused_join_is_no_sign_of_life():
    """A stranger that names a member's id, and offers protocols that the others cannot use, does not extend its
    session.
    """
    made = bench()
    ids, generation = assigned(made, None, None)
    made.consumer_group_heartbeat("new", 0)
    for _ in range(12):
        made.heartbeat(ids[1], generation)
        refused = made.join(ids[0], protocols=(("mine", subscription("t")),))
        assert isinstance(refused, InconsistentGroupProtocol)
        made.pass_time(1)
    assert consumer(made).members.keys() == {ids[1], "new"}


def test_classic_members_live_on_through_a_failover():
    """All they need is recorded: what they offer, their session timeout, their generation."""
    made = bench()
    (old,), _ = assigned(made, None)
    made.consumer_group_heartbeat("new", 0)
    mine, theirs = walk(made, old, "new")
    before = made.read()
    made.fail_over()
    assert made.read() == before
    assert walk(made, old, "new") == (mine, theirs)


@pytest.mark.parametrize("way", ["deleted", "expired"])
def test_a_consumer_group_whose_end_is_not_committed_takes_classic_requests(way: str):
    """For decisions it no longer is one: a member is admitted, a stranger learns its type."""
    made = bench()
    made.consumer_group_heartbeat("new", 0)
    made.commit_offset(5, member_id="new", generation=1)
    made.consumer_group_heartbeat("new", -1)
    made.autocommit = False
    if way == "deleted":
        made.coordinator.delete(DeleteGroup("g"), Answers(), at=made.moment)
    else:
        made.now += 8 * 24 * 3600
        made.tick()
    answers = Answers()
    made.coordinator.heartbeat(Heartbeat("g", MemberRef("who"), 1), answers, at=made.moment)
    ref = MemberRef("who")
    made.coordinator.leave(LeaveGroup("g", ref), answers, at=made.moment)
    made.coordinator.sync(SyncGroup("g", ref, 1, {}), answers, at=made.moment)
    joined = made.begin_join(may_require_member_id=False, **protocols())
    assert not answers, "nobody is told of an end that is not committed"
    made.commit()
    assert [type(each) for each in answers] == [UnknownMemberId] * 3
    assert isinstance(joined[0], JoinGroupResult)


def test_the_consumer_protocols_bytes_are_read_in_every_version():
    """v1 owned partitions, v2 a generation, v3 a rack; what is cut off is none."""
    v0 = subscription("t", "u")
    v1 = subscription("t", owned={"t": frozenset({1, 2})})
    v2 = I16.pack(2) + v1[2:] + I32.pack(7)
    v3 = I16.pack(3) + v2[2:] + string("rack")
    read = [read_subscription(each) for each in (v0, v1, v2, v3)]
    assert [each.owned if each else None for each in read] == [{}, *[{"t": frozenset({1, 2})}] * 3]
    assert read[3] is not None and read[3].rack_id == "rack"
    assert subscribed_topics(v0) == {"t", "u"}
    assert all(read_subscription(v3[:size]) is None for size in range(len(v3)))
    assert read_assignment(b"") == {} and read_assignment(b"\0") is None
