"""Members of consumer groups join, are given partitions one owner at a time, are fenced and leave (KIP-848)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    NotEnoughReplicas,
    PolicyViolation,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.consumer import decision_builder
from raftlog.coordinator.consumer.consumer_group import ConsumerGroup
from raftlog.coordinator.consumer.consumer_membership import ConsumerMembership, MemberState
from raftlog.coordinator.consumer.heartbeat_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from raftlog.coordinator.group import CommittedOffset
from raftlog.coordinator.group_requests import CommitOffsets, DeleteGroup, MemberRef, OffsetCommit
from raftlog.coordinator.groups import GroupCapacity
from raftlog.metadata.image import BrokerState, MetadataImage, PartitionState
from tests.coordinator.group_coordinator_setup import (
    Answers,
    GroupCoordinatorSetup,
    image_of,
    topic_id,
)

T, U = topic_id("t"), topic_id("u")


def bench(topics: dict[str, int] | None = None, **settings: Any) -> GroupCoordinatorSetup:
    made = GroupCoordinatorSetup(**settings)
    made.image = image_of({"t": 4} if topics is None else topics)
    return made


def group(made: GroupCoordinatorSetup) -> ConsumerMembership:
    membership = made.read().consumer
    assert isinstance(membership, ConsumerMembership)
    return membership


def share(heard: ConsumerGroupHeartbeatResult) -> set[int]:
    assert heard.assignment is not None
    return set(heard.assignment.get(T, ()))


def settled(made: GroupCoordinatorSetup, *member_ids: str) -> dict[str, set[int]]:
    """Let members send heartbeats, each revoking at once, until the assignment is stable; return it."""
    has = {each: set(group(made).current_assignment_of(each).assigned.get(T, ())) for each in member_ids}
    for _ in range(10):
        for each in member_ids:
            epoch = group(made).current_assignment_of(each).epoch
            heard = made.consumer_group_heartbeat(
                each, epoch, owned={T: frozenset(has[each])} if has[each] else {}
            )
            assert isinstance(heard, ConsumerGroupHeartbeatResult), heard
            if heard.assignment is not None:
                has[each] = share(heard)
    assert made.read().state == "Stable"
    return has


def test_a_first_member_gets_everything():
    """It joins with epoch 0 and gets its epoch and all partitions at once."""
    made = bench()
    assert made.consumer_group_heartbeat("a", 0) == ConsumerGroupHeartbeatResult(
        "a", 1, {T: frozenset({0, 1, 2, 3})}
    )
    assert made.read().state == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing():
    """A response has only news, and only changes are recorded."""
    made = bench()
    told = made.consumer_group_heartbeat("a", 0).assignment
    batches = len(made.batches)
    assert made.consumer_group_heartbeat("a", 1, owned=told) == ConsumerGroupHeartbeatResult("a", 1, None)
    assert made.consumer_group_heartbeat("a", 1) == ConsumerGroupHeartbeatResult("a", 1, None)
    assert len(made.batches) == batches


def test_a_full_heartbeat_gets_all_fields_again():
    """A member that lost a response asks so: every field is returned."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    heard = made.consumer_group_heartbeat("a", 1, topics=("t",), rebalance_timeout_ms=60_000, owned={})
    assert share(heard) == {0, 1, 2, 3}


def test_a_partition_is_assigned_only_after_its_former_owner_revoked_it():
    """The newcomer waits in UNRELEASED_PARTITIONS; what was given up is its own with its next heartbeat."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    assert made.consumer_group_heartbeat("b", 0) == ConsumerGroupHeartbeatResult("b", 2, {})
    assert group(made).current_assignment_of("b").state is MemberState.UNRELEASED_PARTITIONS
    kept = made.consumer_group_heartbeat("a", 1)
    assert kept.epoch == 1 and len(share(kept)) == 2, "the epoch stays until the rest is given up"
    assert made.consumer_group_heartbeat("b", 2).assignment is None
    assert made.consumer_group_heartbeat("a", 1, owned={T: frozenset(range(4))}).epoch == 1, (
        "it still has what it must give up"
    )
    assert made.consumer_group_heartbeat("a", 1, owned={T: frozenset(share(kept))}).epoch == 2
    assert share(made.consumer_group_heartbeat("b", 2)) == {0, 1, 2, 3} - share(kept)
    assert made.read().state == "Stable"


def test_healthy_members_keep_theirs_when_one_goes():
    """The sticky assignor gives its partitions to the others, and takes none from them."""
    made = bench({"t": 6})
    for each in "abc":
        made.consumer_group_heartbeat(each, 0)
    before = settled(made, "a", "b", "c")
    assert isinstance(
        made.consumer_group_heartbeat("c", group(made).current_assignment_of("c").epoch),
        ConsumerGroupHeartbeatResult,
    ) and made.consumer_group_heartbeat("c", -1) == ConsumerGroupHeartbeatResult("c", -1)
    after = settled(made, "a", "b")
    assert before["a"] < after["a"] and before["b"] < after["b"]
    assert {len(each) for each in after.values()} == {3}


def test_a_member_that_says_another_epoch_is_fenced():
    """FENCED_MEMBER_EPOCH: greater than known, or smaller than the previous epoch."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    settled(made, "a", "b")
    made.consumer_group_heartbeat("a", 2, topics=("t", "u"), owned={T: frozenset({0, 1})})
    assert isinstance(made.consumer_group_heartbeat("a", 99), FencedMemberEpoch)
    assert isinstance(made.consumer_group_heartbeat("a", 1), FencedMemberEpoch)


def test_a_lost_answer_does_not_fence():
    """A member with the previous epoch and no more than its partitions gets the newest epoch again, with its
    partitions.
    """
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    before = share(made.consumer_group_heartbeat("a", 1))
    owned = {T: frozenset(before)}
    told = made.consumer_group_heartbeat("a", 1, owned=owned)
    assert told.epoch == 2
    assert made.consumer_group_heartbeat("a", 1, owned=owned) == ConsumerGroupHeartbeatResult("a", 2, owned)
    assert isinstance(
        made.consumer_group_heartbeat("a", 1, owned={T: frozenset(range(4))}), FencedMemberEpoch
    )


def test_each_response_repeats_the_partitions_to_revoke_until_they_are_revoked():
    """A member that lost that response and reports no partitions (librdkafka) would keep all, and block the others for
    ever.
    """
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    lost = made.consumer_group_heartbeat("a", 1)
    assert len(share(lost)) == 2 and made.consumer_group_heartbeat("a", 1) == lost
    assert made.consumer_group_heartbeat("a", 1, owned={T: frozenset(range(4))}) == lost, (
        "more than it may read is not all right"
    )
    assert made.consumer_group_heartbeat("a", 1, owned=lost.assignment).epoch == 2
    assert made.consumer_group_heartbeat("a", 2) == ConsumerGroupHeartbeatResult("a", 2)


def test_assigned_partitions_are_repeated_until_the_member_reports_them():
    """A member that lost that response would leave what others gave up for it unread, in this epoch."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    kept = made.consumer_group_heartbeat("a", 1).assignment
    made.consumer_group_heartbeat("a", 1, owned=kept)
    lost = made.consumer_group_heartbeat("b", 2)
    assert len(share(lost)) == 2 and made.consumer_group_heartbeat("b", 2) == lost
    assert made.consumer_group_heartbeat("b", 2, owned={}) == lost
    assert made.consumer_group_heartbeat("b", 2, owned=lost.assignment) == ConsumerGroupHeartbeatResult(
        "b", 2
    )
    assert made.consumer_group_heartbeat("b", 2) == ConsumerGroupHeartbeatResult("b", 2)


def test_a_member_that_never_confirmed_its_assignment_is_forgotten_when_it_leaves():
    """Members come under new ids all the time."""
    made = bench()
    for number in range(3):
        made.consumer_group_heartbeat(f"m{number}", 0)
        made.consumer_group_heartbeat(f"m{number}", -1)
    made.consumer_group_heartbeat("stays", 0)
    found = made.coordinator._groups.find("g")
    assert isinstance(found, ConsumerGroup) and found._unheard == {"stays"}


def test_a_member_that_begins_anew_gets_its_place_back():
    """Epoch 0 with a known id (KAFKA-19233): it has given up all, and is given what its target holds."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    has = settled(made, "a", "b")
    heard = made.consumer_group_heartbeat("a", 0)
    assert (heard.epoch, share(heard)) == (2, has["a"])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"epoch": -3}, InvalidRequest),
        ({"epoch": -2}, InvalidRequest),
        ({"epoch": 0, "rebalance_timeout_ms": -1}, InvalidRequest),
        ({"epoch": 0, "owned": None}, InvalidRequest),
        ({"epoch": 0, "owned": {T: frozenset({1})}}, InvalidRequest),
        ({"epoch": 0, "topics": None}, InvalidRequest),
        ({"epoch": 0, "instance_id": ""}, InvalidRequest),
        ({"epoch": 0, "rack_id": " "}, InvalidRequest),
        ({"epoch": 0, "instance_id": "x" * 40_000}, InvalidRequest),
        ({"epoch": 0, "assignor": "mine"}, UnsupportedAssignor),
        ({"epoch": 0, "regex": "(a"}, InvalidRegularExpression),
        ({"epoch": 0, "regex": "a" * 5_000}, InvalidRegularExpression),
        ({"epoch": 1}, UnknownMemberId),
        ({"epoch": -1}, GroupIdNotFound),
    ],
)
def test_what_cannot_be_meant_is_refused_and_writes_nothing(fields: dict[str, Any], error: type[Exception]):
    """Each with the protocol's own error."""
    made = bench()
    assert isinstance(made.consumer_group_heartbeat("a", **fields), error)
    assert not made.batches and not made.read().exists


def test_unknown_members_get_an_error():
    """UNKNOWN_MEMBER_ID in a group that is there."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    assert isinstance(made.consumer_group_heartbeat("b", 1), UnknownMemberId)
    assert isinstance(made.consumer_group_heartbeat("b", -1), UnknownMemberId)
    assert isinstance(made.consumer_group_heartbeat("b", 1, instance_id="one"), UnknownMemberId)


def test_a_group_has_so_many_members_at_most():
    """GROUP_MAX_SIZE_REACHED (group.consumer.max.size); members that are there go on."""
    made = bench(group_consumer_max_size=1)
    told = made.consumer_group_heartbeat("a", 0).assignment
    assert isinstance(made.consumer_group_heartbeat("b", 0), GroupMaxSizeReached)
    assert made.consumer_group_heartbeat("a", 1, owned=told) == ConsumerGroupHeartbeatResult("a", 1)


def test_a_broker_has_so_many_groups_at_most():
    """POLICY_VIOLATION beyond raftlog.group.max.groups, as for classic groups."""
    made = bench()
    made.coordinator._groups.capacity = GroupCapacity(may_add=lambda: False)
    assert isinstance(made.consumer_group_heartbeat("a", 0), PolicyViolation)


def test_an_empty_group_of_very_many_offsets_is_deleted_in_several_batches():
    """No member joins by either protocol before the last batch is committed; then the group is gone."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("a", -1)
    for first in range(0, 6_000, 3_000):
        commits = tuple(OffsetCommit("t", each, CommittedOffset(1)) for each in range(first, first + 3_000))
        assert set(made.commit_offset(0, commits=commits)) == {0}
    answers = Answers()
    made.coordinator.delete(DeleteGroup("g"), answers, at=made.moment)
    made.tick()
    assert isinstance(made.consumer_group_heartbeat("b", 0), CoordinatorLoadInProgress)
    assert isinstance(made.join(), CoordinatorLoadInProgress)
    made.run_deletions()
    assert answers == [None]
    assert made.replayed() == {}
    assert made.consumer_group_heartbeat("b", 0).epoch == 1


# -- static members --------------------------------------------------------------------------------------


def test_a_static_members_next_life_takes_its_place_once_it_has_left():
    """UNRELEASED_INSTANCE_ID before (KIP-848); after epoch -2 there is no rebalance, and the former life is fenced."""
    made = bench()
    made.consumer_group_heartbeat("a", 0, instance_id="one")
    made.consumer_group_heartbeat("b", 0)
    has = settled(made, "a", "b")
    assert isinstance(made.consumer_group_heartbeat("a2", 0, instance_id="one"), UnreleasedInstanceId)
    assert made.consumer_group_heartbeat("a", -2, instance_id="one") == ConsumerGroupHeartbeatResult("a", -2)
    heard = made.consumer_group_heartbeat("a2", 0, instance_id="one")
    assert (heard.epoch, share(heard)) == (2, has["a"])
    assert group(made).epoch == 2
    assert isinstance(made.consumer_group_heartbeat("a", 2, instance_id="one"), FencedInstanceId)
    assert isinstance(made.consumer_group_heartbeat("a", 2), UnknownMemberId)
    assert isinstance(made.consumer_group_heartbeat("a", -1, instance_id="one"), FencedInstanceId)


def test_a_static_member_that_does_not_come_back_is_out_after_a_session():
    """Its partitions are kept for it until then."""
    made = bench(group_consumer_session_timeout_ms=5_000)
    made.consumer_group_heartbeat("a", 0, instance_id="one")
    made.consumer_group_heartbeat("b", 0)
    has = settled(made, "a", "b")
    made.consumer_group_heartbeat("a", -2, instance_id="one")
    made.pass_time(3)
    assert made.consumer_group_heartbeat("b", 2).assignment is None
    made.pass_time(3)
    assert list(group(made).members) == ["b"]
    assert settled(made, "b")["b"] > has["b"]


def test_a_static_member_that_leaves_has_revoked_what_it_was_asked_to_revoke():
    """Others may have that at once; for the rest it has its session, and no rebalance timeout."""
    made = bench()
    made.consumer_group_heartbeat("a", 0, instance_id="one", rebalance_timeout_ms=3_000)
    made.consumer_group_heartbeat("b", 0)
    kept = share(made.consumer_group_heartbeat("a", 1))
    made.consumer_group_heartbeat("a", -2, instance_id="one")
    assert share(made.consumer_group_heartbeat("b", 2)) == {0, 1, 2, 3} - kept
    made.pass_time(5)
    assert set(group(made).members) == {"a", "b"}
    assert share(made.consumer_group_heartbeat("a2", 0, instance_id="one")) == kept


# -- time ------------------------------------------------------------------------------------------------


def test_a_member_without_heartbeats_is_removed_after_the_session_timeout():
    """group.consumer.session.timeout.ms; heartbeats keep a session alive."""
    made = bench(group_consumer_session_timeout_ms=5_000)
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    settled(made, "a", "b")
    for _ in range(4):
        made.pass_time(2)
        made.consumer_group_heartbeat("a", 2)
    assert list(group(made).members) == ["a"]
    assert isinstance(made.consumer_group_heartbeat("b", 2), UnknownMemberId)


def test_a_group_has_a_session_timeout_of_its_own_from_the_next_heartbeat_on():
    """consumer.session.timeout.ms of the group, set and unset while it runs; another coordinator knows it too."""
    own = {("group", "g"): {"consumer.session.timeout.ms": "2000"}}
    made = bench(
        group_consumer_session_timeout_ms=5_000,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_heartbeat_interval_ms=500,
    )
    shared = made.image
    made.consumer_group_heartbeat("a", 0)
    made.image = msgspec.structs.replace(shared, configs=own)
    made.pass_time(4)
    made.consumer_group_heartbeat("a", 1)
    made.fail_over()
    made.pass_time(1.5)
    made.image = shared
    made.consumer_group_heartbeat("a", 1)
    made.pass_time(4)
    made.image = msgspec.structs.replace(shared, configs=own)
    made.consumer_group_heartbeat("a", 1)
    made.pass_time(3)
    assert isinstance(made.consumer_group_heartbeat("a", 1), UnknownMemberId)
    made.consumer_group_heartbeat("a", 0, group_id="other")
    made.pass_time(4)
    assert isinstance(made.consumer_group_heartbeat("a", 1, group_id="other"), ConsumerGroupHeartbeatResult)


def test_each_revocation_has_its_whole_time():
    """A member that revoked in time, and has to revoke more, is not removed for the sum."""
    made = bench({"t": 8})
    made.consumer_group_heartbeat("a", 0, rebalance_timeout_ms=20_000)
    everything = group(made).current_assignment_of("a").assigned
    made.consumer_group_heartbeat("b", 0)

    def pass_time(seconds: int) -> None:
        for _ in range(seconds):
            made.pass_time(1)
            for each in group(made).members:
                made.consumer_group_heartbeat(each, group(made).current_assignment_of(each).epoch)

    made.consumer_group_heartbeat("a", group(made).current_assignment_of("a").epoch, owned=everything)
    kept = group(made).current_assignment_of("a").assigned
    pass_time(15)
    made.consumer_group_heartbeat("c", 0)
    made.consumer_group_heartbeat("a", group(made).current_assignment_of("a").epoch, owned=kept)
    assert group(made).current_assignment_of("a").state is MemberState.UNREVOKED_PARTITIONS
    pass_time(15)
    assert "a" in group(made).members
    pass_time(6)
    assert "a" not in group(made).members


def test_a_refused_heartbeat_is_no_sign_of_life():
    """With a wrong epoch a member holds its partitions, and a departed static member its place, for one session."""
    made = bench(group_consumer_session_timeout_ms=5_000)
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("i", 0, instance_id="one")
    made.consumer_group_heartbeat("i", -2, instance_id="one")
    for _ in range(6):
        made.pass_time(1)
        assert isinstance(made.consumer_group_heartbeat("a", 77), FencedMemberEpoch | UnknownMemberId)
        assert isinstance(
            made.consumer_group_heartbeat("i", 1, instance_id="one"), FencedMemberEpoch | UnknownMemberId
        )
    assert not group(made).members


def test_members_that_fall_silent_together_are_out_together():
    """With one batch, and of very many so many at a time that the loop has its turn between."""
    made = bench(group_consumer_session_timeout_ms=5_000)
    for number in range(10):
        made.consumer_group_heartbeat(f"m{number}", 0)
    for number in range(300):
        made.consumer_group_heartbeat("one", 0, group_id=f"g{number}")
    written = len(made.batches)
    made.now += 6
    assert made.coordinator.tick(made.moment, most=10) == 10
    made.commit()
    assert not group(made).members and len(made.batches) == written + 1
    assert made.coordinator.tick(made.moment) == 200
    expiry = made.coordinator.next_expiry_at()
    assert expiry is not None and expiry <= made.now
    assert made.coordinator.tick(made.moment) == 100


def test_members_of_long_ids_are_out_together_too():
    """No batch would hold the end of all."""
    made = bench(group_consumer_session_timeout_ms=5_000, message_max_bytes=8_000)
    for number in range(10):
        made.consumer_group_heartbeat(f"{number}" * NAME_MAX_CHARS, 0)
    assert len(group(made).members) == 10
    made.pass_time(6)
    assert not group(made).members


def test_a_member_that_does_not_revoke_in_time_is_removed():
    """The rebalance timeout is each member's own, and runs from its response, whatever it sends meanwhile."""
    made = bench()
    made.consumer_group_heartbeat("a", 0, rebalance_timeout_ms=3_000)
    made.consumer_group_heartbeat("b", 0)
    for _ in range(4):
        made.consumer_group_heartbeat("a", 1, owned={T: frozenset(range(4))})
        made.pass_time(1)
    assert list(group(made).members) == ["b"]
    assert share(made.consumer_group_heartbeat("b", 2)) == {0, 1, 2, 3}


def test_a_members_end_that_cannot_be_recorded_is_tried_again():
    """The journal refuses for a while: the member is out with a later tick."""
    made = bench(group_consumer_session_timeout_ms=2_000)
    made.consumer_group_heartbeat("a", 0)
    made.refuses = NotEnoughReplicas()
    made.pass_time(4)
    assert list(group(made).members) == ["a"]
    made.refuses = None
    made.pass_time(2)
    assert made.read().state == "Empty"


def test_a_heartbeat_that_cannot_be_recorded_changes_nothing():
    """It gets the journal's error, and the next heartbeat does it."""
    made = bench()
    made.refuses = CoordinatorNotAvailable()
    assert isinstance(made.consumer_group_heartbeat("a", 0), CoordinatorNotAvailable)
    made.refuses = None
    assert made.consumer_group_heartbeat("a", 0).epoch == 1


def test_no_response_leaves_before_its_commit():
    """A heartbeat's answer rests on its records."""
    made = bench(autocommit=False)
    answers = Answers()
    made.coordinator.consumer_group_heartbeat(
        ConsumerGroupHeartbeat("g", "a", 0, topics=("t",), rebalance_timeout_ms=60_000, owned={}),
        answers,
        at=made.moment,
    )
    assert not answers
    made.commit()
    assert [type(each) for each in answers] == [ConsumerGroupHeartbeatResult]


# -- topics ----------------------------------------------------------------------------------------------


def test_topics_that_come_grow_and_go_are_noticed_at_the_next_heartbeat():
    """A new epoch and new targets; partitions of a deleted topic are given up."""
    made = bench({})
    assert made.consumer_group_heartbeat("a", 0) == ConsumerGroupHeartbeatResult("a", 1, {})
    made.image = image_of({"t": 2})
    assert share(made.consumer_group_heartbeat("a", 1)) == {0, 1}
    made.image = image_of({"t": 3, "u": 1})
    grown = made.consumer_group_heartbeat("a", 2)
    assert share(grown) == {0, 1, 2}
    made.image = image_of({"t": 3, "u": 2})
    heard = made.consumer_group_heartbeat("a", 3, owned=grown.assignment)
    assert heard == ConsumerGroupHeartbeatResult("a", 3), "a topic that nobody reads is no news"
    made.image = image_of({"u": 2})
    assert made.consumer_group_heartbeat("a", 3).assignment == {}


def racked(*replicas: tuple[int, ...]) -> MetadataImage:
    """Topic t with these replicas, on brokers 1 and 2 in rack "east", 3 and 4 in rack "west"."""
    image = image_of({"t": 1})
    states = tuple(PartitionState(each, each, each[0]) for each in replicas)
    return msgspec.structs.replace(
        image,
        topics={"t": msgspec.structs.replace(image.topics["t"], partitions=states)},
        brokers={
            each: BrokerState(each, 1, UUID(int=each), (), "east" if each < 3 else "west")
            for each in range(1, 5)
        },
    )


def test_members_with_racks_read_near_replicas_and_move_with_them():
    """KIP-1101: a reassignment to other racks begins an epoch, one within a rack does not. No assignor of Kafka's does
    that, though its members send their racks.
    """
    made = bench()
    made.image = racked((1,), (3,), (1,), (3,))
    made.consumer_group_heartbeat("a", 0, rack_id="west")
    made.consumer_group_heartbeat("b", 0, rack_id="east")
    assert settled(made, "a", "b") == {"a": {1, 3}, "b": {0, 2}}
    epoch = group(made).epoch
    made.image = racked((2,), (4,), (1,), (3,))
    assert settled(made, "a", "b") == {"a": {1, 3}, "b": {0, 2}}
    assert group(made).epoch == epoch
    made.image = racked((4,), (2,), (1,), (3,))
    assert settled(made, "a", "b") == {"a": {0, 3}, "b": {1, 2}}
    assert group(made).epoch == epoch + 1


def test_a_member_that_comes_back_in_another_rack_gets_other_partitions():
    """A static member may start again anywhere."""
    made = bench()
    made.image = racked((1,), (3,))
    made.consumer_group_heartbeat("a", 0, rack_id="west", instance_id="i")
    made.consumer_group_heartbeat("b", 0, rack_id="east")
    assert settled(made, "a", "b") == {"a": {1}, "b": {0}}
    made.consumer_group_heartbeat("b", group(made).current_assignment_of("b").epoch, rack_id="west")
    made.consumer_group_heartbeat("a", group(made).current_assignment_of("a").epoch, rack_id="east")
    assert settled(made, "a", "b") == {"a": {0}, "b": {1}}


def test_racks_of_brokers_are_nothing_to_members_without_a_rack():
    """Their partitions stay, wherever the replicas go."""
    made = bench()
    made.image = racked((1,), (3,))
    for each in "ab":
        made.consumer_group_heartbeat(each, 0)
    before, epoch = settled(made, "a", "b"), group(made).epoch
    made.image = racked((3,), (1,))
    assert settled(made, "a", "b") == before
    assert group(made).epoch == epoch


def test_a_subscription_that_changes_moves_partitions():
    """Partitions that are no longer read are given up first."""
    made = bench({"t": 2, "u": 2})
    made.consumer_group_heartbeat("a", 0)
    heard = made.consumer_group_heartbeat("a", 1, topics=("u",))
    assert heard == ConsumerGroupHeartbeatResult("a", 1, {})
    assert made.consumer_group_heartbeat("a", 1, owned={}) == ConsumerGroupHeartbeatResult(
        "a", 2, {U: frozenset({0, 1})}
    )


def test_regular_expressions_are_matched_by_the_coordinator():
    """Whole names, in RE2's syntax, also of topics to come; internal topics too, as in Apache Kafka."""
    made = bench({"log-a": 1, "catalog-a": 1, "__consumer_offsets": 3})
    heard = made.consumer_group_heartbeat("a", 0, topics=None, regex="log-.*")
    assert heard.assignment == {topic_id("log-a"): frozenset({0})}
    made.image = image_of({"log-a": 1, "log-b": 1, "__consumer_offsets": 3})
    assert set(made.consumer_group_heartbeat("a", 1).assignment) == {topic_id("log-a"), topic_id("log-b")}
    made.consumer_group_heartbeat("a", 2, regex=".*")
    assert set(group(made).regexes) == {".*"}
    assert group(made).target_assignment_of("a")[topic_id("__consumer_offsets")] == {0, 1, 2}
    assert isinstance(made.consumer_group_heartbeat("a", 2, regex="(?=a)"), InvalidRegularExpression), (
        "RE2 knows no lookahead"
    )


@pytest.mark.parametrize("regex", ["(((x|a|o|r)*.?){50}){10}q", "(.?){900}" * 3, "x" * 4_097])
def test_an_expression_that_would_hold_up_the_broker_is_refused(regex: str):
    """Matching is linear in the names, but each character may cost as much as the expression is large."""
    made = bench()
    assert isinstance(made.consumer_group_heartbeat("a", 0, topics=(), regex=regex), InvalidRegularExpression)
    assert not made.batches


def test_long_lists_of_topics_are_expressions_too():
    """Expressions that people write are far from the bound."""
    made = bench({"topic-7": 1})
    regex = "|".join(f"topic-{number}" for number in range(200))
    assert made.consumer_group_heartbeat("a", 0, topics=(), regex=regex).assignment


def many_topics(count: int) -> dict[str, int]:
    return {f"{number:04}-" + "x" * 50: 1 for number in range(count)}


def test_a_group_that_reads_more_than_a_batch_holds_goes_on_with_what_it_had():
    """The expression matches so much at once that its record is too large: settled members get no error."""
    made = bench(many_topics(100), message_max_bytes=32_000)
    for each in "ab":
        made.consumer_group_heartbeat(each, 0, topics=(), regex=".*x")
    matched = len(group(made).regexes[".*x"].topics)
    made.image = image_of(many_topics(1_000))
    for each in "ab":
        assert isinstance(
            made.consumer_group_heartbeat(each, group(made).current_assignment_of(each).epoch),
            ConsumerGroupHeartbeatResult,
        )
    assert len(group(made).regexes[".*x"].topics) == matched == 100
    assert isinstance(
        made.consumer_group_heartbeat("c", 0, topics=("none",)), ConsumerGroupHeartbeatResult
    ), "it asks for nothing of that"
    assert isinstance(
        made.consumer_group_heartbeat("d", 0, topics=tuple(many_topics(1_000))), GroupMaxSizeReached
    )
    for each in "cab":
        assert isinstance(made.consumer_group_heartbeat(each, -1), ConsumerGroupHeartbeatResult)
    assert not group(made).members


def test_a_group_reads_no_more_topics_than_can_be_dealt_with_at_once(monkeypatch: pytest.MonkeyPatch):
    """A member that would read more is refused; later topics leave the settled members as they are."""
    monkeypatch.setattr(decision_builder, "MAX_SUBSCRIBED_TOPICS", 50)
    made = bench(many_topics(40))
    made.consumer_group_heartbeat("a", 0, topics=(), regex="00.*")
    epoch = made.consumer_group_heartbeat("b", 0, topics=("x", "y")).epoch
    assert isinstance(
        made.consumer_group_heartbeat("c", 0, topics=tuple(many_topics(60))), GroupMaxSizeReached
    )
    assert set(group(made).members) == {"a", "b"}
    made.image = image_of(many_topics(60))
    assert made.consumer_group_heartbeat("b", epoch).epoch == epoch
    assert len(group(made).regexes["00.*"].topics) == 40
    assert isinstance(made.consumer_group_heartbeat("d", 0, topics=(), regex="0+.*"), GroupMaxSizeReached)
    assert isinstance(made.consumer_group_heartbeat("d", 0, topics=("x",)), ConsumerGroupHeartbeatResult), (
        "it asks for nothing more"
    )
    assert isinstance(made.consumer_group_heartbeat("a", -1), ConsumerGroupHeartbeatResult)


@pytest.mark.parametrize(("partitions", "given"), [(4_500, 4_500), (10_000, 4)])
def test_a_member_is_given_in_two_batches_what_one_cannot_hold_and_keeps_its_own_if_that_fails(
    partitions: int, given: int
):
    """A topic grows: the target takes most of a batch, and what the member has then as much again."""
    made = bench(message_max_bytes=32_000)
    made.consumer_group_heartbeat("a", 0)
    made.image = image_of({"t": partitions})
    for _ in range(3):
        assert isinstance(
            made.consumer_group_heartbeat("a", group(made).current_assignment_of("a").epoch),
            ConsumerGroupHeartbeatResult,
        )
    assert len(group(made).current_assignment_of("a").assigned[T]) == given


def test_members_go_however_much_they_read():
    """A member's end writes no record about topics: it leaves, or is removed, even if all else is too large."""
    made = bench(many_topics(100), message_max_bytes=32_000, group_consumer_session_timeout_ms=5_000)
    for each in "ab":
        made.consumer_group_heartbeat(each, 0, topics=(), regex=".*x")
    made.image = image_of(many_topics(1_000))
    assert isinstance(made.consumer_group_heartbeat("b", -1), ConsumerGroupHeartbeatResult)
    made.pass_time(6)
    assert not group(made).members


def test_an_assignor_is_chosen_by_most_members():
    """Among the broker's assignors; the first of them by default."""
    made = bench({"t": 2, "u": 2})
    for each in "ab":
        made.consumer_group_heartbeat(each, 0, topics=("t", "u"), assignor="range")
    assert {frozenset(each) for each in group(made).target_assignments.values()} == {frozenset({T, U})}


# -- failover, offsets, end ------------------------------------------------------------------------------


def test_a_new_coordinator_knows_all_of_it():
    """Everything but clocks is records: it goes on in the middle of a rebalance."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    made.consumer_group_heartbeat("b", 0)
    kept = share(made.consumer_group_heartbeat("a", 1))
    before = made.read()
    made.fail_over()
    assert made.read() == before
    made.consumer_group_heartbeat("a", 1, owned={T: frozenset(kept)})
    assert share(made.consumer_group_heartbeat("b", 2)) == {0, 1, 2, 3} - kept


def test_a_new_coordinator_gives_everybody_a_whole_session_and_ends_it():
    """Sessions are soft; a member that is silent under the new coordinator as well is removed."""
    made = bench(group_consumer_session_timeout_ms=5_000)
    made.consumer_group_heartbeat("a", 0)
    made.pass_time(4)
    made.fail_over()
    made.pass_time(4)
    assert list(group(made).members) == ["a"]
    made.pass_time(2)
    assert made.read().state == "Empty"


def commit(made: GroupCoordinatorSetup, member_id: str, epoch: int, *, may_name_epoch: bool = True) -> Any:
    commits = (OffsetCommit("t", 0, CommittedOffset(7, 3, "", made.now_ms)),)
    request = CommitOffsets("g", MemberRef(member_id), epoch, commits, may_name_epoch)
    return made.ask(made.coordinator.commit_offsets, request, at=made.moment)


def test_members_commit_in_their_own_epoch():
    """STALE_MEMBER_EPOCH for another, UNKNOWN_MEMBER_ID for strangers, UNSUPPORTED_VERSION where none can be named."""
    made = bench()
    made.consumer_group_heartbeat("a", 0)
    assert commit(made, "a", 1) == (0,)
    assert isinstance(commit(made, "a", 0), StaleMemberEpoch)
    assert isinstance(commit(made, "a", 2), StaleMemberEpoch)
    assert isinstance(commit(made, "b", 1), UnknownMemberId)
    assert isinstance(commit(made, "", -1), UnknownMemberId)
    assert isinstance(commit(made, "a", 1, may_name_epoch=False), UnsupportedVersion)
    made.consumer_group_heartbeat("a", -1)
    assert commit(made, "", -1) == (0,), "without members anybody may, as tools that reset offsets do"


def test_only_a_group_without_members_can_be_deleted():
    """NON_EMPTY_GROUP; its end removes every record."""
    made = bench()
    made.consumer_group_heartbeat("a", 0, regex="t.*")
    commit(made, "a", 1)
    delete, asked = made.coordinator.delete, DeleteGroup("g")
    assert isinstance(made.ask(delete, asked, at=made.moment), NonEmptyGroup)
    made.consumer_group_heartbeat("a", -1)
    assert made.ask(delete, asked, at=made.moment) is None
    assert not made.read().exists and not made.replayed()


def test_offsets_of_topics_that_members_read_do_not_expire():
    """KIP-211; an empty group goes with its last offset."""
    made = bench(
        offsets_retention_minutes=1,
        offsets_retention_check_interval_ms=1_000,
        group_consumer_session_timeout_ms=600_000,
    )
    made.consumer_group_heartbeat("a", 0)
    commit(made, "a", 1)
    made.pass_time(90)
    assert made.read().offsets
    made.consumer_group_heartbeat("a", -1)
    made.pass_time(2)
    assert not made.read().exists
