"""How much groups may keep in memory. The setup checks after each commit of every test that it is counted exactly."""

from __future__ import annotations

import pytest

from raftlog.base.errors import GroupMaxSizeReached, PolicyViolation
from raftlog.coordinator.group import CommittedOffset, Group, Member, Membership
from raftlog.coordinator.group_memory import (
    GROUP_BYTES,
    HARD_LIMIT_FACTOR,
    MEMBER_BYTES,
    OFFSET_BYTES,
    group_bytes,
)
from raftlog.coordinator.group_requests import DeleteGroup, OffsetCommit
from tests.coordinator.group_coordinator_setup import GroupCoordinatorSetup, image_of
from tests.coordinator.test_transactional_offsets import TransactionalCoordinatorSetup

LIMIT = 20_000


def bench(**settings: int) -> GroupCoordinatorSetup:
    """A broker with room for twenty thousand bytes, and all groups in one partition."""
    made = GroupCoordinatorSetup(raftlog_group_max_bytes=LIMIT, **settings)
    made.coordinator._groups.memory.has_memory_for = lambda growth, most: (
        made.coordinator.memory_bytes + growth <= most
    )
    return made


def commits(*partitions: int, metadata: str = "") -> tuple[OffsetCommit, ...]:
    return tuple(OffsetCommit("t", each, CommittedOffset(1, -1, metadata)) for each in partitions)


def fill(made: GroupCoordinatorSetup, member_id: str = "", generation: int = -1) -> int:
    """Commit offsets of one partition in sequence until a commit is refused; return how many were admitted."""
    for partition in range(LIMIT):
        reply = made.commit_offset(1, member_id=member_id, generation=generation, commits=commits(partition))
        if reply != (0,):
            assert isinstance(reply, PolicyViolation) and "raftlog.group.max.bytes is 20000" in str(reply)
            return partition
    raise AssertionError("there is no limit")


def test_offsets_beyond_the_limit_are_refused_and_existing_offsets_go_on() -> None:
    """POLICY_VIOLATION for an offset of a new partition and for a new group; positions move as before."""
    made = bench()
    count = fill(made)
    assert count == (LIMIT - GROUP_BYTES) // OFFSET_BYTES
    assert made.commit_offset(9) == (0,)
    assert isinstance(made.commit_offset(1, group_id="another"), PolicyViolation)
    assert isinstance(made.join(group_id="another"), PolicyViolation)
    assert isinstance(made.consumer_group_heartbeat("m", 0, group_id="another"), PolicyViolation)
    assert made.coordinator.group_ids() == ["g"]


def test_a_group_that_is_deleted_makes_room() -> None:
    """The count goes down with the kept bytes, to zero."""
    made = bench()
    fill(made)
    assert made.ask(made.coordinator.delete, DeleteGroup("g"), at=made.moment) is None
    assert made.coordinator.memory_bytes == 0
    assert made.commit_offset(1, group_id="another") == (0,)


def test_a_coordinator_takes_over_more_than_its_limit() -> None:
    """A node starts with whatever its journal holds, serves it, and refuses what is new."""
    made = bench()
    count = fill(made)
    made.config = GroupCoordinatorSetup(raftlog_group_max_bytes=LIMIT // 3).config
    made.fail_over()
    made.coordinator._groups.memory.has_memory_for = lambda growth, most: (
        made.coordinator.memory_bytes + growth <= most
    )
    assert len(made.read().offsets) == count
    assert isinstance(made.commit_offset(1, commits=commits(count)), PolicyViolation)
    assert made.commit_offset(9) == (0,)
    assert made.ask(made.coordinator.delete, DeleteGroup("g"), at=made.moment) is None


def test_members_of_a_group_that_exists_come_and_go_beyond_the_limit() -> None:
    """The limit is for new groups: a group whose consumers are restarted must not stand still."""
    made = bench()
    member_id, generation = made.stable_member()
    fill(made, member_id, generation)
    assert made.heartbeat(member_id, generation) is None
    assert made.leave(member_id) is None
    another, _ = made.stable_member()
    assert another != member_id


def test_beyond_twice_the_limit_nothing_grows() -> None:
    """Texts of offsets, subscriptions and assignments of groups that exist are bounded, too; what shrinks is let in."""
    made = bench()
    member_id, generation = made.stable_member()
    count = fill(made, member_id, generation)
    text = "x" * 4_000
    grown = 0
    while made.commit_offset(
        1, member_id=member_id, generation=generation, commits=commits(grown, metadata=text)
    ) == (0,):
        grown += 1
        assert grown < count
    assert (
        LIMIT
        < made.coordinator.memory_bytes
        <= HARD_LIMIT_FACTOR * LIMIT
        < made.coordinator.memory_bytes + len(text)
    )
    (refused,) = made.begin_join(member_id, protocols=(("range", bytes(5_000)),))
    assert isinstance(refused, PolicyViolation)
    assert made.commit_offset(2, member_id=member_id, generation=generation, commits=commits(0)) == (0,)
    assert made.leave(member_id) is None


def test_large_assignments_count() -> None:
    """A leader hands out what it likes: that is refused, and the group's generation awaits another."""
    made = bench()
    ids, generation = made.stable_group(None)
    (joined,) = made.begin_join(ids[0], protocols=(("range", b"other"),))
    assert joined.generation == generation + 1
    (refused,) = made.begin_sync(
        ids[0], joined.generation, assignments={ids[0]: bytes(HARD_LIMIT_FACTOR * LIMIT)}
    )
    assert isinstance(refused, PolicyViolation)
    assert made.coordinator.memory_bytes < LIMIT


def test_all_protocols_of_a_member_count() -> None:
    """A record holds one of them, memory all: a hundred large protocols once counted as one."""
    made = bench()
    protocols = tuple((f"p{number}", bytes(3_000)) for number in range(20))
    (refused,) = made.begin_join(may_require_member_id=False, protocols=protocols)
    assert isinstance(refused, PolicyViolation)
    waiting = bench(group_initial_rebalance_delay_ms=3_000)
    (refused,) = waiting.begin_join(may_require_member_id=False, protocols=protocols)
    assert isinstance(refused, PolicyViolation), "also before there is anything to record"
    roomy = GroupCoordinatorSetup()
    protocols = tuple((f"p{number}", bytes(700_000)) for number in range(4))
    (refused,) = roomy.begin_join(may_require_member_id=False, protocols=protocols)
    assert isinstance(refused, GroupMaxSizeReached)


def test_what_members_of_a_consumer_group_are_assigned_counts() -> None:
    """A heartbeat of a few bytes may ask for very many partitions, in each of very many groups."""
    made = bench()
    made.image = image_of({"t": 500})
    refused = made.consumer_group_heartbeat("m", 0)
    assert isinstance(refused, PolicyViolation)
    made.image = image_of({"t": 5})
    assert made.consumer_group_heartbeat("m", 0).epoch == 1
    made.image = image_of({"t": 900})
    assert isinstance(made.consumer_group_heartbeat("m", 1, owned={}), PolicyViolation)
    assert made.consumer_group_heartbeat("m", -1).epoch == -1, "who leaves is let go"


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_open_transactions_count(commit: bool) -> None:
    """They take the same room; they belong to the group once it commits, and are released once it aborts."""
    made = TransactionalCoordinatorSetup()
    for _ in range(2):
        made.commit_in_transaction(1, metadata="text")
    offset_bytes = OFFSET_BYTES + len("text")
    assert made.coordinator.memory_bytes == GROUP_BYTES + offset_bytes
    made.commit_in_transaction(1, producer=8, metadata="text")
    assert made.coordinator.memory_bytes == GROUP_BYTES + 2 * offset_bytes
    made.end(commit=commit)
    made.end(commit=False, producer=8)
    assert made.coordinator.memory_bytes == (GROUP_BYTES + offset_bytes if commit else 0)


def test_members_weigh_what_they_say_and_are_assigned() -> None:
    """Names, subscription and assignment of a classic member, beside its objects."""
    member = Member("m", None, "c", "/h", 1, 1, b"12", b"345")
    group = Group("g", Membership("consumer", 1, "range", "m", 0, {"m": member}), has_metadata=True)
    assert group_bytes(group) == GROUP_BYTES + MEMBER_BYTES + len("mc/h12345")
    assert group_bytes(Group("g")) == 0
