"""Committed offsets: the right to commit, the kept fields, and the state of a new coordinator."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    NonEmptyGroup,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from raftlog.base.types import NAME_MAX_CHARS
from raftlog.coordinator.consumer_protocol import subscribed_topics
from raftlog.coordinator.group import DEAD, EMPTY, CommittedOffset, Group, Member, Membership
from raftlog.coordinator.group_expiration import GROUPS_PER_SWEEP
from raftlog.coordinator.group_requests import DeleteGroup, DeleteOffsets, OffsetCommit
from raftlog.coordinator.offsets import decide_expire_offsets
from raftlog.coordinator.partition_map import PartitionMap
from raftlog.coordinator.pending_deletion import TOMBSTONES_PER_BATCH
from tests.coordinator.group_coordinator_setup import Answers, GroupCoordinatorSetup, gone


def test_a_member_commits_and_its_text_comes_back() -> None:
    """Offset, leader epoch and metadata survive the round trip (Tansu lost the metadata)."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    assert bench.commit_offset(42, member_id=member_id, generation=generation, metadata="wörds") == (0,)
    assert bench.read().offsets == {("t", 0): CommittedOffset(42, 3, "wörds", bench.now_ms)}
    bench.commit_offset(41, member_id=member_id, generation=generation)
    bench.fail_over()
    assert bench.read().offsets[("t", 0)].offset == 41


def test_assign_only_consumers_commit_with_generation_minus_one() -> None:
    """Without members a group takes commits from outside (simple consumers, admin tools)."""
    bench = GroupCoordinatorSetup()
    assert bench.commit_offset(7) == (0,)
    assert (bench.read().state, bench.read().offsets[("t", 0)].offset) == (EMPTY, 7)
    bench.fail_over()
    assert (bench.read().state, bench.read().offsets[("t", 0)].offset) == (EMPTY, 7)


def test_only_members_of_the_current_generation_may_commit() -> None:
    """The errors of Apache Kafka's validateOffsetCommit, and no record is written."""
    bench = GroupCoordinatorSetup()
    assert isinstance(bench.commit_offset(1, member_id="x", generation=1), GroupIdNotFound)
    before_epochs = bench.commit_offset(1, member_id="x", generation=1, may_name_epoch=False)
    assert isinstance(before_epochs, IllegalGeneration)
    member_id = bench.join().member_id
    generation = bench.join(member_id).generation
    refused = bench.commit_offset(1, member_id=member_id, generation=generation)
    assert isinstance(refused, RebalanceInProgress)
    bench.sync(member_id, generation)
    written = len(bench.batches)
    assert isinstance(bench.commit_offset(1), UnknownMemberId)
    assert isinstance(bench.commit_offset(1, member_id="x", generation=generation), UnknownMemberId)
    assert isinstance(bench.commit_offset(1, member_id=member_id, generation=0), IllegalGeneration)
    assert isinstance(bench.commit_offset(1, member_id=member_id), IllegalGeneration)
    assert len(bench.batches) == written


def test_only_a_commit_that_is_let_in_is_a_sign_of_life() -> None:
    """Commits renew the session of 10 s, commits of a past generation do not."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    bench.pass_time(6)
    assert bench.commit_offset(1, member_id=member_id, generation=generation) == (0,)
    bench.pass_time(6)
    assert bench.read().membership.members
    refused = bench.commit_offset(2, member_id=member_id, generation=generation - 1)
    assert isinstance(refused, IllegalGeneration)
    bench.pass_time(6)
    assert bench.read().state == EMPTY


def test_one_text_too_long_refuses_one_commit() -> None:
    """OFFSET_METADATA_TOO_LARGE counts as Java's String.length (offset.metadata.max.bytes 4096), not bytes."""
    bench = GroupCoordinatorSetup()
    texts = ("é" * 4096, "é" * 4097, "", "😀" * 2048, "😀" * 2049)
    commits = tuple(
        OffsetCommit("t", index, CommittedOffset(1, -1, text)) for index, text in enumerate(texts)
    )
    too_large = OffsetMetadataTooLarge.code
    assert bench.commit_offset(0, commits=commits) == (0, too_large, 0, 0, too_large)
    assert sorted(partition for _, partition in bench.read().offsets) == [0, 2, 3]


def test_no_text_is_longer_than_a_record_can_hold() -> None:
    """A record's text has 32,767 bytes at most, also where offset.metadata.max.bytes allows more."""
    bench = GroupCoordinatorSetup(offset_metadata_max_bytes=100_000)
    texts = ("é" * 16_383, "é" * 16_384)
    commits = tuple(
        OffsetCommit("t", index, CommittedOffset(1, -1, text)) for index, text in enumerate(texts)
    )
    assert bench.commit_offset(0, commits=commits) == (0, OffsetMetadataTooLarge.code)


def test_a_group_without_records_is_dead_and_not_remembered() -> None:
    """Reading an unknown group answers at once and leaves no state behind."""
    bench = GroupCoordinatorSetup()
    assert (bench.read("unknown").exists, bench.read("unknown").state) == (False, DEAD)
    assert bench.ask(bench.coordinator.read_some, bench.coordinator.group_ids()) == ()


def test_offsets_of_deleted_topics_go() -> None:
    """Tombstones for them are in the journal; other topics' offsets stay."""
    bench = GroupCoordinatorSetup()
    commits = tuple(OffsetCommit(topic, 0, CommittedOffset(1)) for topic in ("gone", "kept"))
    bench.commit_offset(0, commits=commits)
    bench.coordinator.on_topics_deleted(gone("gone"))
    assert list(bench.read().offsets) == [("kept", 0)], "nobody is shown what has yet to go"
    bench.tick()
    assert list(bench.read().offsets) == [("kept", 0)]
    assert list(bench.replayed()["g"].offsets) == [("kept", 0)]


@pytest.mark.parametrize("next_comes", ["a tick", "a commit"])
def test_offsets_of_deleted_topics_go_as_soon_as_that_can_be_written(next_comes: str) -> None:
    """Below min.insync.replicas no record can be written; offsets committed for the topic's successor stay."""
    bench = GroupCoordinatorSetup()
    bench.commit_offset(7, commits=at_places("gone", "kept"))
    bench.refuses = NotEnoughReplicas()
    bench.coordinator.on_topics_deleted(gone("gone"))
    bench.tick()
    assert len(bench.replayed()["g"].offsets) == 2
    assert isinstance(bench.commit_offset(3, commits=at_places("gone")), NotEnoughReplicas)
    bench.refuses = None
    bench.now += 1
    if next_comes == "a tick":
        bench.tick()
        assert list(bench.read().offsets) == [("kept", 0)]
    bench.commit_offset(3, commits=at_places("gone"))
    bench.tick()
    assert set(bench.read().offsets) == {("kept", 0), ("gone", 0)}
    written = len(bench.batches)
    bench.tick()
    assert len(bench.batches) == written


def test_offsets_of_deleted_topics_that_can_never_be_removed_are_left_to_expire() -> None:
    """A record that no batch can hold (a group id of 32 KB, many partitions) is not tried for ever."""
    bench = GroupCoordinatorSetup()
    bench.commit_offset(7, commits=at_places("gone"))
    bench.refuses = InvalidCommitOffsetSize()
    bench.coordinator.on_topics_deleted(gone("gone"))
    bench.tick()
    bench.refuses = None
    bench.tick()
    assert list(bench.read().offsets) == [("gone", 0)]


def test_commits_of_one_group_wait_and_are_answered_together() -> None:
    """A commit is answered at the high watermark, and reading all waits for it too."""
    bench = GroupCoordinatorSetup(autocommit=False)
    assert bench.commit_offset(1) is None
    assert bench.commit_offset(2, group_id="h") is None
    everything = Answers()
    bench.coordinator.read_some(bench.coordinator.group_ids(), everything)
    assert everything == []
    bench.commit()
    assert [group.group_id for group in everything[0]] == ["g", "h"]


_steps = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from("gh"), st.integers(0, 3), st.integers(0, 99)),
    st.tuples(st.just("join")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("time"), st.integers(1, 8)),
    st.tuples(st.just("forget"), st.sampled_from("tu")),
    st.tuples(st.just("fail_over")),
)


def _take(bench: GroupCoordinatorSetup, member: list[Any], step: tuple[Any, ...]) -> None:
    match step:
        case ("commit", group_id, partition, offset):
            commits = (OffsetCommit("tu"[offset % 2], partition, CommittedOffset(offset)),)
            bench.commit_offset(0, group_id=group_id, commits=commits)
        case ("join",):
            joined = bench.join(may_require_member_id=False)
            if hasattr(joined, "generation"):
                member[:] = [joined.member_id, joined.generation]
        case ("sync",) if member:
            bench.sync(*member)
        case ("leave",) if member:
            bench.leave(member[0])
        case ("time", seconds):
            bench.now += seconds
            bench.tick()
            bench.commit()
        case ("forget", topic):
            bench.coordinator.on_topics_deleted(gone(topic))
            bench.tick()
            bench.commit()
        case ("fail_over",):
            bench.fail_over()


@given(st.lists(_steps, max_size=30))
def test_replay_gives_what_was_answered(steps: list[tuple[Any, ...]]) -> None:
    """After any history, reading the journal back gives every group exactly as its coordinator knew it."""
    bench = GroupCoordinatorSetup()
    member: list[Any] = []
    for step in steps:
        _take(bench, member, step)
    known = {
        group.group_id: group
        for group in bench.ask(bench.coordinator.read_some, bench.coordinator.group_ids())
    }
    replayed = bench.replayed()
    rebalancing = {group_id for group_id, group in known.items() if group.preparing}
    assert replayed.keys() - rebalancing == known.keys() - rebalancing
    assert all(replayed[each] == known[each] for each in known.keys() - rebalancing)


# -- the end of offsets and groups -----------------------------------------------------------------------

DAY_S = 86_400


def subscription_to(*topics: str) -> bytes:
    """ConsumerProtocolSubscription v0."""
    names = b"".join(len(each.encode()).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff" * 4


def at_places(*topics: str) -> tuple[OffsetCommit, ...]:
    """A commit of partition 0 of each."""
    return tuple(OffsetCommit(topic, 0, CommittedOffset(1, -1, "", 100_000)) for topic in topics)


def sweep(bench: GroupCoordinatorSetup, seconds: float) -> None:
    """Let time pass without anybody's sign of life, then look for what has expired."""
    bench.now += seconds
    for _ in range(2):
        bench.tick()
        bench.commit()


def test_offsets_of_lone_consumers_expire_from_their_commit_on() -> None:
    """offsets.retention.minutes, seven days by default; with its last offset the group is gone for good."""
    bench = GroupCoordinatorSetup()
    bench.commit_offset(1)
    sweep(bench, 6.9 * DAY_S)
    assert bench.read().exists
    bench.commit_offset(2, commits=(OffsetCommit("u", 0, CommittedOffset(1, -1, "", bench.now_ms)),))
    sweep(bench, 0.2 * DAY_S)
    assert list(bench.read().offsets) == [("u", 0)]
    sweep(bench, 7 * DAY_S)
    assert not bench.read().exists
    assert bench.replayed() == {}


def test_an_empty_groups_offsets_expire_from_when_the_last_member_left() -> None:
    """KIP-211: an old commit is no reason to forget what a group read that was there yesterday."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    bench.commit_offset(1, member_id=member_id, generation=generation)
    bench.now += 30 * DAY_S
    bench.leave(member_id)
    sweep(bench, 6.9 * DAY_S)
    assert len(bench.read().offsets) == 1
    sweep(bench, 0.2 * DAY_S)
    assert not bench.read().exists


def test_a_stable_consumer_group_forgets_only_topics_it_no_longer_reads() -> None:
    """KIP-211, KAFKA-4682: what the members subscribe to never expires."""
    bench = GroupCoordinatorSetup()
    protocols = (("range", subscription_to("read")),)
    member_id = bench.join(may_require_member_id=False, protocols=protocols).member_id
    bench.sync(member_id, 1)
    bench.commit_offset(0, member_id=member_id, generation=1, commits=at_places("read", "dropped"))
    for _ in range(2):
        bench.now += 8 * DAY_S
        bench.heartbeat(member_id, 1)
        sweep(bench, 0)
    assert list(bench.read().offsets) == [("read", 0)]


def test_a_look_for_expired_offsets_reads_each_subscription_once() -> None:
    """A thousand members with thousands of offsets must not hold up the loop: one plus the other, not one times it."""
    subscription = subscription_to("read")
    members = {each: Member(each, None, "c", "h", 1, 1, subscription) for each in "abc"}
    offsets = {("dropped", each): CommittedOffset(1, commit_timestamp_ms=0) for each in range(50)}
    group = Group(
        "g", Membership("consumer", 1, "range", "a", 0, members), PartitionMap(offsets), has_metadata=True
    )
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        decision = decide_expire_offsets(group, shown=group, now_ms=10, retention_ms=5)
    finally:
        sys.setprofile(None)
    assert called.count("subscribed_topics") == len(members)
    assert len(decision.records) == len(offsets)


def test_a_group_of_another_protocol_keeps_its_offsets_while_it_has_members() -> None:
    """The topics of Connect's workers are unknown, so none of their offsets is removed."""
    bench = GroupCoordinatorSetup()
    member_id = bench.join(may_require_member_id=False, protocol_type="connect").member_id
    bench.sync(member_id, 1)
    bench.commit_offset(0, member_id=member_id, generation=1, commits=at_places("any"))
    bench.now += 8 * DAY_S
    bench.heartbeat(member_id, 1)
    sweep(bench, 0)
    assert len(bench.read().offsets) == 1


def test_an_old_clients_own_retention_is_kept_to() -> None:
    """OffsetCommit v2 to v4 could set it; it survives the failover."""
    bench = GroupCoordinatorSetup()
    expiring = CommittedOffset(1, -1, "text", bench.now_ms, bench.now_ms + 60_000)
    bench.commit_offset(0, commits=(OffsetCommit("t", 0, expiring),))
    bench.fail_over()
    assert bench.read().offsets["t", 0] == expiring
    sweep(bench, 3_600)
    assert not bench.read().exists


def test_many_groups_are_swept_in_slices() -> None:
    """No tick looks at more than SWEPT_AT_ONCE groups, and all come up in the end."""
    bench = GroupCoordinatorSetup()
    for number in range(2 * GROUPS_PER_SWEEP + 1):
        bench.commit_offset(1, group_id=f"g{number}")
    bench.now += 8 * DAY_S
    left = []
    for _ in range(3):
        bench.tick()
        bench.commit()
        left.append(len(bench.coordinator))
    assert left == [GROUPS_PER_SWEEP + 1, 1, 0]


def committed_by(bench: GroupCoordinatorSetup, topic: str, count: int) -> None:
    """Commit so many partitions of a topic."""
    for first in range(0, count, 3_000):
        topic_partitions = range(first, min(first + 3_000, count))
        commits = tuple(
            OffsetCommit(topic, each, CommittedOffset(1, -1, "", bench.now_ms)) for each in topic_partitions
        )
        assert set(bench.commit_offset(0, commits=commits)) == {0}


def test_a_group_of_very_many_offsets_is_deleted_in_several_batches() -> None:
    """No batch holds 30,000 tombstones; no member joins or commits before the last of them is committed."""
    bench = GroupCoordinatorSetup()
    committed_by(bench, "t", 30_000)
    answers, written = Answers(), len(bench.batches)
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    bench.tick()
    assert answers == []
    assert isinstance(bench.join(), CoordinatorLoadInProgress)
    assert isinstance(bench.commit_offset(1), CoordinatorLoadInProgress)
    assert isinstance(bench.read(), CoordinatorLoadInProgress)
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    bench.run_deletions()
    assert answers == [None, None]
    assert bench.replayed() == {}
    assert max(map(len, bench.batches[written:])) < 300_000
    assert bench.join(may_require_member_id=False).generation == 1


@pytest.mark.parametrize("deleted_first", [True, False])
def test_offsets_of_a_deleted_topic_stay_hidden_when_the_groups_end_is_refused(deleted_first: bool) -> None:
    """Its successor of the same name must not begin where the old one ended, whatever else was wanted meanwhile."""
    bench, answers = GroupCoordinatorSetup(), Answers()
    for begin in range(0, 3_000, 1_000):
        commits = [OffsetCommit("big", begin + each, CommittedOffset(1)) for each in range(1_000)]
        bench.commit_offset(0, commits=tuple(commits))
    bench.commit_offset(42)
    bench.refuses = NotEnoughReplicas()
    if deleted_first:
        bench.coordinator.on_topics_deleted(gone("t"))
        bench.tick()
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    if not deleted_first:
        bench.coordinator.on_topics_deleted(gone("t"))
    for _ in range(3):
        bench.now += 1
        bench.tick()
        bench.commit()
    assert [type(each) for each in answers] == [NotEnoughReplicas]
    assert ("t", 0) not in bench.read().offsets
    bench.refuses = None
    bench.run_deletions()
    offsets = bench.read().offsets
    assert ("t", 0) not in offsets and len(offsets) == 3_000


def test_a_group_goes_by_batches_that_the_journal_takes() -> None:
    """A group that had grown commit by commit could not be deleted, nor expire, where message.max.bytes is small."""
    bench = GroupCoordinatorSetup(message_max_bytes=20_000)
    topic = "t" * NAME_MAX_CHARS
    for first in range(0, 100, 10):
        commits = tuple(OffsetCommit(topic, each, CommittedOffset(1)) for each in range(first, first + 10))
        for group_id in ("deleted", "expired"):
            bench.commit_offset(0, group_id=group_id, commits=commits)
    answers = Answers()
    bench.coordinator.delete(DeleteGroup("deleted"), answers, at=bench.moment)
    bench.run_deletions()
    assert answers == [None]
    bench.now += 8 * 86_400
    for _ in range(20):
        bench.now += 600
        bench.tick()
        bench.commit()
    assert bench.coordinator.group_ids() == []


def test_long_names_make_more_batches() -> None:
    """The names of group and topic are in each tombstone: what counts is their bytes."""
    bench = GroupCoordinatorSetup(message_max_bytes=4_000_000)
    group_id = "g" * NAME_MAX_CHARS
    topic = "t" * NAME_MAX_CHARS
    commits = tuple(OffsetCommit(topic, each, CommittedOffset(1)) for each in range(TOMBSTONES_PER_BATCH))
    bench.commit_offset(0, group_id=group_id, commits=commits)
    written, answers = len(bench.batches), Answers()
    bench.coordinator.delete(DeleteGroup(group_id), answers, at=bench.moment)
    bench.run_deletions()
    assert answers == [None]
    assert max(map(len, bench.batches[written:])) < 300_000


def test_a_deletion_that_fails_half_way_gets_an_error_and_can_be_repeated() -> None:
    """Removed offsets are gone; the rest is a group as any."""
    bench = GroupCoordinatorSetup()
    committed_by(bench, "t", 3_000)
    answers = Answers()
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    bench.tick()
    bench.refuses = NotEnoughReplicas()
    bench.run_deletions()
    assert [type(each) for each in answers] == [NotEnoughReplicas]
    bench.refuses = None
    assert 0 < len(bench.read().offsets) < 3_000
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    bench.run_deletions()
    assert answers[1:] == [None]


def test_a_deletion_that_loses_the_partition_is_answered() -> None:
    """Once, with the reason."""
    bench = GroupCoordinatorSetup()
    committed_by(bench, "t", 3_000)
    answers = Answers()
    bench.coordinator.delete(DeleteGroup("g"), answers, at=bench.moment)
    bench.tick()
    bench.coordinator.on_unloaded(NotCoordinator())
    assert [type(each) for each in answers] == [NotCoordinator]


@pytest.mark.parametrize("how", ["expired", "of a deleted topic"])
def test_very_many_offsets_go_in_several_batches(how: str) -> None:
    """As with the deletion of a group: what expires, and what goes with its topic."""
    bench = GroupCoordinatorSetup()
    committed_by(bench, "t", 5_000)
    written = len(bench.batches)
    if how == "expired":
        bench.now += 8 * DAY_S
    else:
        bench.coordinator.on_topics_deleted(gone("t"))
        bench.tick()
        assert isinstance(bench.commit_offset(1), CoordinatorLoadInProgress)
    bench.run_deletions()
    assert bench.replayed() == {}
    assert max(map(len, bench.batches[written:])) < 100_000


def test_offsets_of_many_groups_are_deleted_in_slices() -> None:
    """A topic that ten thousand groups have read must not hold up the loop; a commit does not wait for all of them."""
    bench = GroupCoordinatorSetup()
    count = 3 * GROUPS_PER_SWEEP
    for number in range(count):
        bench.commit_offset(1, group_id=f"g{number}")
    written = len(bench.batches)
    bench.coordinator.on_topics_deleted(gone("t"))
    bench.tick()
    assert len(bench.batches) - written == GROUPS_PER_SWEEP
    last = f"g{count - 1}"
    assert bench.commit_offset(0, group_id=last, commits=at_places("u")) == (0,)
    assert list(bench.replayed()[last].offsets) == [("u", 0)]
    bench.run_deletions()
    assert list(bench.replayed()) == [last]


def test_only_a_group_without_members_is_deleted() -> None:
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND; then it is gone with its offsets, and a new one begins at generation 1."""
    bench = GroupCoordinatorSetup()
    member_id, generation = bench.stable_member()
    bench.commit_offset(1, member_id=member_id, generation=generation)
    assert isinstance(bench.ask(bench.coordinator.delete, DeleteGroup("g"), at=bench.moment), NonEmptyGroup)
    bench.begin_join(may_require_member_id=False)
    assert isinstance(bench.ask(bench.coordinator.delete, DeleteGroup("g"), at=bench.moment), NonEmptyGroup)
    bench.pass_time(400)
    assert bench.ask(bench.coordinator.delete, DeleteGroup("g"), at=bench.moment) is None
    assert isinstance(bench.ask(bench.coordinator.delete, DeleteGroup("g"), at=bench.moment), GroupIdNotFound)
    assert bench.replayed() == {}
    assert bench.stable_member()[1] == 1


def test_offsets_of_a_groups_own_topics_are_not_deleted() -> None:
    """KIP-496: GROUP_SUBSCRIBED_TO_TOPIC for these, NON_EMPTY_GROUP where what members read is unknown."""
    bench = GroupCoordinatorSetup()
    gone = DeleteOffsets("g", (("read", 0), ("dropped", 0), ("dropped", 9)))
    assert isinstance(bench.ask(bench.coordinator.delete_offsets, gone, at=bench.moment), GroupIdNotFound)
    protocols = (("range", subscription_to("read")),)
    member_id = bench.join(may_require_member_id=False, protocols=protocols).member_id
    bench.sync(member_id, 1)
    bench.commit_offset(0, member_id=member_id, generation=1, commits=at_places("read", "dropped"))
    assert bench.ask(bench.coordinator.delete_offsets, gone, at=bench.moment) == (
        GroupSubscribedToTopic.code,
        0,
        0,
    )
    assert list(bench.replayed()["g"].offsets) == [("read", 0)]
    bench.leave(member_id)
    assert bench.ask(bench.coordinator.delete_offsets, gone, at=bench.moment) == (0, 0, 0)
    opaque = bench.join(may_require_member_id=False, protocol_type="connect").member_id
    bench.sync(opaque, 3)
    assert isinstance(bench.ask(bench.coordinator.delete_offsets, gone, at=bench.moment), NonEmptyGroup)


def test_while_it_is_unknown_what_members_read_every_topic_is_theirs() -> None:
    """Their first rebalance is under way: GROUP_SUBSCRIBED_TO_TOPIC for each, as Apache Kafka has it."""
    bench = GroupCoordinatorSetup()
    bench.commit_offset(0, commits=at_places("read", "dropped"))
    ids = [bench.join().member_id for _ in range(2)]
    assert bench.begin_join(ids[0], rebalance_timeout_ms=60_000) != []
    gone = DeleteOffsets("g", (("read", 0), ("dropped", 0)))
    assert (
        bench.ask(bench.coordinator.delete_offsets, gone, at=bench.moment)
        == (GroupSubscribedToTopic.code,) * 2
    )


@given(st.lists(st.text(max_size=9), max_size=4), st.binary(max_size=20), st.integers(0, 60))
def test_subscriptions_are_read_and_rubbish_is_not(topics: list[str], rubbish: bytes, cut: int) -> None:
    """Topics of any version's beginning; None for what is cut off."""
    assert subscribed_topics(subscription_to(*topics) + rubbish) == frozenset(topics)
    subscribed_topics(rubbish)
    short = subscription_to(*topics)[:-4][:cut]
    if len(short) < len(subscription_to(*topics)) - 4:
        assert subscribed_topics(short) is None
