"""In which epochs a member of the consumer protocol may commit for a partition (KIP-1251)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import IllegalGeneration, StaleMemberEpoch
from raftlog.coordinator.consumer.consumer_group_records import encode
from raftlog.coordinator.consumer.consumer_membership import (
    ClassicProtocols,
    ConsumerMembership,
    CurrentAssignment,
    CurrentAssignmentChanged,
    MemberMetadata,
    MemberState,
)
from raftlog.coordinator.consumer.reconcile import next_assignment, rejoined
from raftlog.coordinator.group import CommittedOffset
from raftlog.coordinator.group_records import decode
from raftlog.coordinator.group_requests import CommitOffsets, MemberRef, OffsetCommit
from raftlog.coordinator.transactional_offsets import check_commit_epoch
from tests.coordinator.test_reconcile import T, share

HAD = CurrentAssignment(3, 2, MemberState.STABLE, share(0, 1))


def step(
    current: CurrentAssignment, *target: int, epoch: int, owned: tuple[int, ...] | None = None
) -> CurrentAssignment:
    has = None if owned is None else share(*owned)
    return next_assignment(current, share(*target), target_epoch=epoch, owned=has, held=lambda _: {})


def epochs(current: CurrentAssignment) -> dict[int, int]:
    """The assignment epoch of each partition that the member has."""
    found = {index: current.assignment_epoch(T, index) for index in range(9)}
    return {index: epoch for index, epoch in found.items() if epoch is not None}


def test_a_partition_keeps_the_epoch_in_which_it_was_assigned() -> None:
    """Others come and go beside it, and begin in the target's epoch."""
    kept = step(HAD, 0, 1, 2, epoch=5)
    assert epochs(kept) == {0: 3, 1: 3, 2: 5}
    assert epochs(step(kept, 0, 2, 4, epoch=7, owned=(0, 2))) == {0: 3, 2: 5, 4: 7}


def test_a_partition_that_is_being_revoked_keeps_its_epoch_until_it_is_given_up() -> None:
    """And has another epoch when it comes back."""
    revoking = step(HAD, 0, epoch=5)
    assert revoking.epoch == 3 and epochs(revoking) == {0: 3, 1: 3}
    done = step(revoking, 0, epoch=5, owned=(0,))
    assert epochs(done) == {0: 3}
    assert epochs(step(done, 0, 1, epoch=8)) == {0: 3, 1: 8}


def test_a_member_that_joins_again_keeps_the_epochs_of_what_waits_for_it() -> None:
    """Its own epochs begin anew; what it had is not assigned anew."""
    assert epochs(rejoined(HAD)) == {0: 3, 1: 3}
    assert epochs(step(rejoined(HAD), 0, 1, epoch=5)) == {0: 3, 1: 3}


currents = st.lists(
    st.tuples(st.integers(0, 5), st.frozensets(st.integers(0, 4), max_size=3)), min_size=1, max_size=8
)


@given(currents)
def test_the_next_coordinator_knows_the_epochs(steps: list[tuple[int, frozenset[int]]]) -> None:
    """They are in the member's record, as in Apache Kafka's: any number of steps later too."""
    current, epoch = CurrentAssignment(), 0
    for ahead, target in steps:
        epoch += ahead
        current = step(current, *target, epoch=epoch, owned=tuple(target))
        record = CurrentAssignmentChanged("g", "m", current)
        assert decode(*encode(record)) == record


def test_epochs_are_written_as_kafkas() -> None:
    """A tagged field of a topic's partitions, as many as they; none where all are of the record's epoch."""
    _, value = encode(CurrentAssignmentChanged("g", "m", step(HAD, 0, 1, 2, epoch=5)))
    assert value is not None
    topic = "04 00000000 00000001 00000002 01 00 0d 04 00000003 00000003 00000005"
    head, tail = "0000 00000005 00000003 00 02", "01 00"
    assert value == bytes.fromhex(head) + T.bytes + bytes.fromhex(topic) + bytes.fromhex(tail)
    _, plain = encode(CurrentAssignmentChanged("g", "m", HAD))
    assert plain is not None and plain.endswith(T.bytes + bytes.fromhex("03 00000000 00000001 00 01 00"))


def commit(current: CurrentAssignment, epoch: int, *indexes: int, is_classic: bool = False) -> None:
    member = MemberMetadata(classic=ClassicProtocols(1, ()) if is_classic else None)
    membership = ConsumerMembership(members={"m": member}, current_assignments={"m": current})
    commits = tuple(OffsetCommit("t", each, CommittedOffset(1, topic_id=T)) for each in indexes)
    check_commit_epoch(membership, CommitOffsets("g", MemberRef("m"), epoch, commits))


@pytest.mark.parametrize("is_classic", [False, True])
def test_a_member_commits_in_an_epoch_before_what_it_has_since_then(is_classic: bool) -> None:
    """Assignment epoch <= the client's epoch <= the member's epoch; otherwise the commit is refused."""
    current = step(HAD, 0, 1, 2, epoch=5)
    for epoch, indexes in ((5, (0, 1, 2, 8)), (4, (0, 1)), (3, (0,))):
        commit(current, epoch, *indexes, is_classic=is_classic)
    refused = IllegalGeneration if is_classic else StaleMemberEpoch
    for epoch, indexes in ((6, (0,)), (4, (0, 2)), (2, (0,)), (4, (0, 8))):
        with pytest.raises(refused):
            commit(current, epoch, *indexes, is_classic=is_classic)
