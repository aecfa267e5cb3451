"""Members of share groups join, get partitions whose states are initialized, and leave (KIP-932)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    NotEnoughReplicas,
    UnknownMemberId,
)
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.consumer.decision_builder import MAX_SUBSCRIBED_TOPICS
from raftlog.coordinator.group_requests import DeleteGroup
from raftlog.coordinator.share.share_heartbeat import (
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareStatesReady,
    ShareStateWork,
)
from raftlog.coordinator.share.share_membership import ShareMembership, ShareStates, ShareTopic
from raftlog.coordinator.share.share_offsets import (
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareChangeEnded,
    ShareStateChange,
)
from raftlog.coordinator.timer import TimerKey
from tests.coordinator.group_coordinator_setup import GroupCoordinatorSetup, image_of, topic_id

T, U = topic_id("t"), topic_id("u")
INITIAL = -1
"""The start offset that the first leader resolves by `share.auto.offset.reset`."""


class Setup(GroupCoordinatorSetup):
    """A coordinator of share groups, on topics with so many partitions."""

    def __init__(self, settings: dict[str, Any] | None = None, **topics: int) -> None:
        super().__init__(**settings or {})
        self.image = image_of(topics or {"t": 4})

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat; a joining member reads the topic t."""
        if epoch == 0:
            fields = {"topics": ("t",), **fields}
        group_id = fields.pop("group_id", "g")
        beat = ShareGroupHeartbeat(group_id, member_id, epoch, **fields)
        return self.ask(self.coordinator.share_group_heartbeat, beat, at=self.moment)

    def accepted(self, member_id: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatResult:
        reply = self.beat(member_id, epoch, **fields)
        assert isinstance(reply, ShareGroupHeartbeatResult), reply
        return reply

    def refused(self, member_id: str, epoch: int, **fields: Any) -> type[KafkaError]:
        reply = self.beat(member_id, epoch, **fields)
        assert isinstance(reply, KafkaError), reply
        return type(reply)

    def do(self, work: ShareStateWork | None) -> None:
        """Report that all work on states is done."""
        assert work is not None
        made = {topic: partitions for topic, (partitions, _) in work.topics.items()}
        ready = ShareStatesReady(work.group_id, made)
        assert self.ask(self.coordinator.share_states_ready, ready, at=self.moment) is None

    def stable(self, *member_ids: str, **fields: Any) -> None:
        """Let members join, and initialize the states that they need."""
        for member_id in member_ids:
            work = self.accepted(member_id, 0, **fields).work
            if work is not None:
                self.do(work)
        group_id = fields.get("group_id", "g")
        for member_id in member_ids * 2:
            self.accepted(member_id, self.epoch_of(member_id, group_id), group_id=group_id)

    def epoch_of(self, member_id: str, group_id: str = "g") -> int:
        share = self.read(group_id).share
        assert share is not None
        return share.consumer.current_assignment_of(member_id).epoch

    def has(self, member_id: str, topic: Any = T) -> set[int]:
        return set(self.share.consumer.current_assignment_of(member_id).assigned.get(topic, ()))

    @property
    def share(self) -> ShareMembership:
        share = self.read().share
        assert isinstance(share, ShareMembership)
        return share


def test_a_partition_is_assigned_once_its_state_is_initialized() -> None:
    """The first response asks for the states; the epoch after they are made has the partitions."""
    setup = Setup()
    joined = setup.accepted("m", 0)
    assert (joined.epoch, joined.assignment) == (1, {})
    assert joined.work == ShareStateWork("g", 1, {T: (frozenset(range(4)), INITIAL)})
    assert setup.accepted("m", 1) == ShareGroupHeartbeatResult("m", 1)
    setup.do(joined.work)
    beat = setup.accepted("m", 1)
    assert (beat.epoch, beat.assignment, beat.work) == (2, {T: frozenset(range(4))}, None)
    assert setup.accepted("m", 2) == ShareGroupHeartbeatResult("m", 2)


def test_a_new_topic_is_assigned_once_all_its_states_are_initialized() -> None:
    """A share coordinator may be away: what it lacks begins where the group does, and not at offset 0 as if added."""
    setup = Setup()
    setup.accepted("m", 0)
    ready = ShareStatesReady("g", {T: frozenset({0, 2}), U: frozenset({0})})
    setup.ask(setup.coordinator.share_states_ready, ready, at=setup.moment)
    again = setup.accepted("m", 1)
    assert (again.epoch, again.assignment) == (1, None)
    assert again.work == ShareStateWork("g", 1, {T: (frozenset(range(4)), INITIAL)})
    setup.do(again.work)
    assert setup.accepted("m", 1).assignment == {T: frozenset(range(4))}


def test_work_that_is_not_done_is_asked_for_again() -> None:
    """`group.share.initialize.retry.interval.ms`: each retry has the present epoch; a new coordinator asks at once."""
    setup = Setup()
    work = setup.accepted("m", 0).work
    setup.now += 29.0
    assert setup.accepted("m", 1).work is None
    setup.now += 1.0
    assert setup.accepted("m", 1).work == work
    setup.fail_over()
    assert setup.accepted("m", 1).work == work


def test_the_pause_before_another_attempt_is_a_setting() -> None:
    """Not below `offsets.commit.timeout.ms`, as in Apache Kafka: the attempt before may still be under way."""
    settings = {"group_share_initialize_retry_interval_ms": 1_000, "offsets_commit_timeout_ms": 6_000}
    setup = Setup(settings)
    work = setup.accepted("m", 0).work
    setup.now += 5.9
    assert setup.accepted("m", 1).work is None
    setup.now += 0.1
    assert setup.accepted("m", 1).work == work


def test_refused_work_is_asked_for_with_the_next_heartbeat() -> None:
    """The journal refused the record, so the broker did not hear of the work."""
    setup = Setup()
    setup.stable("m")
    setup.image = image_of({"t": 5})
    setup.refuses = NotEnoughReplicas()
    assert setup.refused("m", 2) is NotEnoughReplicas
    setup.refuses = None
    assert setup.accepted("m", 2).work is not None


def test_added_partitions_are_read_from_their_beginning() -> None:
    """Members read the topic already, so records that were produced before the state was made count."""
    setup = Setup(t=1)
    setup.stable("m")
    setup.image = image_of({"t": 3})
    beat = setup.accepted("m", 2)
    assert beat.work == ShareStateWork("g", 3, {T: (frozenset({1, 2}), 0)})
    setup.do(beat.work)
    assert setup.accepted("m", 3).assignment == {T: frozenset({0, 1, 2})}


def test_the_states_of_a_deleted_topic_are_forgotten() -> None:
    """A topic of the same name has another id, and states of its own."""
    setup = Setup(t=1, u=1)
    setup.stable("m", topics=("t", "u"))
    setup.accepted("n", 0, topics=("u",))
    setup.image = image_of({"t": 1})
    beat = setup.accepted("m", setup.epoch_of("m"))
    assert (beat.assignment, beat.work) == ({T: frozenset({0})}, None)
    assert setup.share.states == ShareStates({}, {T: ShareTopic("t", frozenset({0}))})


def test_partitions_are_shared() -> None:
    """With more members than partitions several members have the same; with fewer each has its own."""
    setup = Setup(t=2)
    setup.stable("a", "b", "c")
    assert [len(setup.has(each)) for each in "abc"] in ([2, 1, 1], [1, 2, 1], [1, 1, 2])
    setup = Setup(t=4)
    setup.stable("a", "b")
    assert sorted([*setup.has("a"), *setup.has("b")]) == [0, 1, 2, 3]


def test_a_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    """Epoch -1; the last member leaves an empty group that keeps its states."""
    setup = Setup()
    setup.stable("a", "b")
    assert setup.accepted("a", -1) == ShareGroupHeartbeatResult("a", -1)
    setup.accepted("b", setup.epoch_of("b"))
    assert setup.has("b") == {0, 1, 2, 3}
    setup.accepted("b", -1)
    assert setup.read().state == "Empty"
    assert not setup.coordinator._groups.timer.is_scheduled(TimerKey("g", "b"))
    assert setup.share.states.initialized == {T: ShareTopic("t", frozenset(range(4)))}


def test_a_silent_member_is_removed() -> None:
    """`group.share.session.timeout.ms`, also by a new coordinator, which gives it a whole session."""
    setup = Setup()
    setup.stable("a", "b")
    setup.fail_over()
    for _ in range(5):
        setup.pass_time(10.0)
        setup.accepted("b", setup.epoch_of("b"))
    assert list(setup.share.consumer.members) == ["b"]
    assert setup.refused("a", 2) is UnknownMemberId


def test_a_group_has_a_session_timeout_of_its_own() -> None:
    """`share.session.timeout.ms` of the group, from the next heartbeat on; another group has its broker's."""
    setup = Setup({"group_share_session_timeout_ms": 9_000, "group_share_min_session_timeout_ms": 6_000})
    setup.stable("m")
    setup.stable("m", group_id="other")
    own = {("group", "g"): {"share.session.timeout.ms": "6000"}}
    setup.image = msgspec.structs.replace(setup.image, configs=own)
    epoch, other = setup.epoch_of("m"), setup.epoch_of("m", "other")
    setup.accepted("m", epoch)
    setup.accepted("m", other, group_id="other")
    setup.pass_time(7.0)
    assert setup.refused("m", epoch) is UnknownMemberId
    assert setup.accepted("m", other, group_id="other").epoch == other


def test_a_wrong_member_epoch_is_refused() -> None:
    """A member sends its epoch or the one before, as the response may be lost; epoch 0 always joins."""
    setup = Setup()
    setup.stable("m")
    assert setup.epoch_of("m") == 2
    assert setup.accepted("m", 1).assignment == {T: frozenset(range(4))}
    assert setup.refused("m", 3) is FencedMemberEpoch
    assert setup.accepted("m", 0).assignment == {T: frozenset(range(4))}
    assert setup.refused("x", 1) is UnknownMemberId
    assert setup.refused("x", 1, group_id="none") is GroupIdNotFound
    assert setup.refused("x", -1) is UnknownMemberId


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields"),
    [
        ("", 0, {}),
        (" ", 0, {}),
        ("m", -2, {}),
        ("m", 0, {"topics": ()}),
        ("m", 0, {"topics": None}),
        ("m", 0, {"rack_id": ""}),
        ("m" * (NAME_MAX_CHARS + 1), 0, {}),
        ("m", 0, {"topics": tuple(map(str, range(10_001)))}),
    ],
)
def test_invalid_requests_are_refused(member_id: str, epoch: int, fields: dict[str, Any]) -> None:
    """INVALID_REQUEST, and no group is made."""
    setup = Setup()
    assert setup.refused(member_id, epoch, **fields) is InvalidRequest
    assert len(setup.coordinator) == 0


def test_a_group_has_a_limit_of_members() -> None:
    """`group.share.max.size`: GROUP_MAX_SIZE_REACHED."""
    setup = Setup({"group_share_max_size": 2})
    setup.stable("a", "b")
    assert setup.refused("c", 0) is GroupMaxSizeReached


def test_members_change_their_topics() -> None:
    """A new subscription begins an epoch; partitions of a topic that is read no more are no longer assigned."""
    setup = Setup(t=1, u=1)
    setup.stable("m")
    beat = setup.accepted("m", 2, topics=("u",))
    assert beat.assignment == {}
    setup.do(beat.work)
    assert setup.accepted("m", 3).assignment == {U: frozenset({0})}
    assert set(setup.share.states.initialized) == {T, U}


def test_partitions_that_no_member_reads_do_not_count() -> None:
    """Three members of two partitions: each partition has two, whatever was read before."""
    setup = Setup(t=2, u=6)
    setup.stable("a", "b", "c", topics=("t", "u"))
    for member_id in "abc":
        setup.accepted(member_id, setup.epoch_of(member_id), topics=("t",))
    setup.stable("a", "b", "c")
    held = [partition for member_id in "abc" for partition in setup.has(member_id)]
    assert sorted(held) == [0, 0, 1, 1]


def test_a_new_coordinator_answers_like_the_old() -> None:
    """All but sessions is in the records."""
    setup = Setup()
    setup.stable("a", "b")
    before = setup.read()
    setup.fail_over()
    assert setup.read() == before
    end_offset = setup.end_offset
    assert setup.accepted("a", setup.epoch_of("a")).assignment is None
    assert setup.end_offset == end_offset


def test_groups_of_other_types_are_other_groups() -> None:
    """A share group is refused what other groups do, and they are refused its heartbeats."""
    setup = Setup()
    setup.stable("m")
    assert isinstance(setup.join(), InconsistentGroupProtocol)
    assert isinstance(setup.heartbeat("m", 1), UnknownMemberId)
    assert isinstance(setup.leave("m"), UnknownMemberId)
    assert isinstance(setup.consumer_group_heartbeat("m", 0), GroupIdNotFound)
    assert isinstance(setup.commit_offset(5), GroupIdNotFound)
    setup.consumer_group_heartbeat("m", 0, group_id="consumers")
    assert setup.refused("m", 0, group_id="consumers") is GroupIdNotFound


def test_a_group_is_deleted_without_its_members_and_states() -> None:
    """DeleteGroups: NON_EMPTY_GROUP before. Offsets do not expire, since there are none."""
    setup = Setup(u=1)
    setup.accepted("m", 0)
    delete = DeleteGroup("g")
    assert isinstance(setup.ask(setup.coordinator.delete, delete, at=setup.moment), NonEmptyGroup)
    setup.accepted("m", -1)
    setup.pass_time(1_000.0)
    assert setup.read().state == "Empty"
    assert setup.ask(setup.coordinator.delete, delete, at=setup.moment) is None
    assert setup.replayed() == {}


# -- administrators ------------------------------------------------------------------------------------------


def alter(setup: Setup, offsets: dict[UUID, dict[int, int]], group_id: str = "g") -> Any:
    request = AlterShareOffsets(group_id, offsets)
    return setup.ask(setup.coordinator.alter_share_offsets, request, at=setup.moment)


def delete_offsets(setup: Setup, *topic_ids: UUID) -> Any:
    request = DeleteShareOffsets("g", frozenset(topic_ids))
    return setup.ask(setup.coordinator.delete_share_offsets, request, at=setup.moment)


def end(setup: Setup, **fields: Any) -> None:
    ended = ShareChangeEnded("g", **fields)
    assert setup.ask(setup.coordinator.share_change_ended, ended, at=setup.moment) is None


def test_start_offsets_are_set_in_a_new_epoch() -> None:
    """It fences the leaders with the former state. Initialized partitions stay so, even if the change fails."""
    setup = Setup()
    setup.stable("m")
    setup.accepted("m", -1)
    epoch = setup.share.consumer.epoch
    assert alter(setup, {T: {0: 7, 2: 9}}) == ShareStateChange("g", epoch + 1, started={T: {0: 7, 2: 9}})
    assert setup.share.states == ShareStates({}, {T: ShareTopic("t", frozenset(range(4)))})
    end(setup, started={T: frozenset({0, 2})})
    assert setup.accepted("m", 0).work is None


def test_a_group_has_offsets_of_as_many_topics_as_it_may_read() -> None:
    """More are refused before they are gone through, since all are decided in one turn of the loop."""
    setup = Setup()
    many = {UUID(int=number): {0: 0} for number in range(1, MAX_SUBSCRIBED_TOPICS + 2)}
    refused = alter(setup, many)
    assert isinstance(refused, GroupMaxSizeReached)
    assert str(refused) == "a group has offsets of at most 10000 topics"
    assert setup.replayed() == {}


def test_a_group_may_begin_with_its_offsets() -> None:
    """Its other partitions are initialized once it has members, from their beginning."""
    setup = Setup()
    assert alter(setup, {T: {1: 5}}) == ShareStateChange("g", 1, started={T: {1: 5}})
    assert setup.share.states.initializing == {T: ShareTopic("t", frozenset({1}))}
    end(setup, started={T: frozenset({1})})
    assert setup.read().state == "Empty"
    work = setup.accepted("m", 0).work
    assert work is not None
    assert work.topics == {T: (frozenset({0, 2, 3}), 0)}


def test_no_member_joins_while_offsets_are_changed() -> None:
    """Its states could be initialized by its heartbeat. After a change that got lost members join again."""
    setup = Setup()
    alter(setup, {T: {1: 5}})
    assert setup.refused("m", 0) is CoordinatorLoadInProgress
    assert isinstance(alter(setup, {T: {1: 6}}), CoordinatorLoadInProgress)
    setup.now += 10.0
    work = setup.accepted("m", 0).work
    assert work is not None
    assert work.topics == {T: (frozenset(range(4)), INITIAL)}


def test_a_change_that_was_not_recorded_does_not_keep_members_away() -> None:
    """The journal refused it, so nothing is under way."""
    setup = Setup()
    setup.stable("m")
    setup.accepted("m", -1)
    setup.refuses = NotEnoughReplicas()
    assert isinstance(alter(setup, {T: {1: 5}}), NotEnoughReplicas)
    setup.refuses = None
    assert setup.accepted("m", 0).work is None


def test_offsets_of_topics_are_deleted() -> None:
    """Only of topics with offsets. Members that join later begin as those of a new group."""
    setup = Setup(t=2, u=1, v=1)
    setup.stable("m", topics=("t", "u"))
    setup.accepted("m", -1)
    epoch = setup.share.consumer.epoch
    change = delete_offsets(setup, T, topic_id("v"))
    assert change == ShareStateChange("g", epoch + 1, deleted={T: frozenset({0, 1})})
    assert setup.share.states == ShareStates({}, {U: ShareTopic("u", frozenset({0}))}, {T: "t"})
    end(setup, deleted=frozenset({T}))
    assert setup.share.states == ShareStates({}, {U: ShareTopic("u", frozenset({0}))})
    work = setup.accepted("m", 0).work
    assert work is not None
    assert work.topics == {T: (frozenset({0, 1}), INITIAL)}
    assert work.state_epoch > change.state_epoch


def test_a_deletion_that_failed_is_done_again() -> None:
    """By the next one, for all partitions of the topic; or a member joins, and the states begin anew."""
    setup = Setup(t=2)
    setup.stable("m")
    setup.accepted("m", -1)
    delete_offsets(setup, T)
    end(setup)
    setup.image = image_of({"t": 3})
    setup.fail_over()
    assert delete_offsets(setup, T).deleted == {T: frozenset({0, 1, 2})}
    end(setup)
    setup.accepted("m", 0)
    assert setup.share.states == ShareStates({T: ShareTopic("t", frozenset({0, 1, 2}))})


def test_a_change_without_effect_is_none() -> None:
    """No record is written, no group is made, and members may join."""
    setup = Setup()
    assert isinstance(delete_offsets(setup, T), GroupIdNotFound)
    assert not alter(setup, {})
    assert len(setup.coordinator) == 0
    setup.stable("m")
    setup.accepted("m", -1)
    before = setup.end_offset
    assert not delete_offsets(setup, U)
    assert setup.end_offset == before
    assert setup.accepted("m", 0).work is None


def test_a_group_with_members_keeps_its_offsets() -> None:
    """NON_EMPTY_GROUP."""
    setup = Setup()
    setup.stable("m")
    assert isinstance(alter(setup, {T: {0: 7}}), NonEmptyGroup)
    assert isinstance(delete_offsets(setup, T), NonEmptyGroup)
    assert isinstance(setup.ask(setup.coordinator.delete, DeleteGroup("g"), at=setup.moment), NonEmptyGroup)


def test_the_states_of_a_group_are_deleted_before_it() -> None:
    """Also states that are being initialized. Without any left, the group goes."""
    setup = Setup(t=2, u=1)
    setup.stable("m")
    setup.accepted("m", setup.epoch_of("m"), topics=("t", "u"))
    setup.accepted("m", -1)
    delete = DeleteGroup("g")
    change = setup.ask(setup.coordinator.delete, delete, at=setup.moment)
    assert change.deleted == {T: frozenset({0, 1}), U: frozenset({0})}
    assert isinstance(setup.ask(setup.coordinator.delete, delete, at=setup.moment), CoordinatorLoadInProgress)
    end(setup, deleted=frozenset({T}))
    assert setup.share.states == ShareStates({}, {}, {U: "u"})
    assert setup.ask(setup.coordinator.delete, delete, at=setup.moment).deleted == {U: frozenset({0})}
    end(setup, deleted=frozenset({U}))
    assert setup.ask(setup.coordinator.delete, delete, at=setup.moment) is None
    assert setup.replayed() == {}


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_new_group_begins_after_the_epochs_of_the_deleted_group(fails_over: bool) -> None:
    """So share coordinators recognise requests for the deleted group that come late."""
    setup = Setup()
    for _ in range(5):
        setup.stable("m")
        setup.accepted("m", -1)
    change = setup.ask(setup.coordinator.delete, DeleteGroup("g"), at=setup.moment)
    end(setup, deleted=frozenset({T}))
    assert setup.ask(setup.coordinator.delete, DeleteGroup("g"), at=setup.moment) is None
    if fails_over:
        setup.fail_over()
        setup.commit()
    work = setup.accepted("m", 0).work
    assert work is not None
    assert work.state_epoch > change.state_epoch > 10


def test_other_groups_have_no_share_offsets() -> None:
    """GROUP_ID_NOT_FOUND, as in Apache Kafka."""
    setup = Setup()
    setup.consumer_group_heartbeat("m", 0, topics=("t",))
    assert isinstance(alter(setup, {T: {0: 7}}), GroupIdNotFound)
    assert isinstance(delete_offsets(setup, T), GroupIdNotFound)
