"""raftlog.sharing.share_partition: records that an operator releases or archives, whichever members hold them."""

from __future__ import annotations

import pytest

from raftlog.base.errors import InvalidRecordState
from raftlog.sharing.delivery import AcknowledgeType, ByHand, DeliveryState, StateBatch
from raftlog.sharing.delivery_history import DeliveryCounts, DeliveryEnd
from raftlog.sharing.share_partition import SharePartition
from tests.sharing.test_share_partition import (
    ACCEPT,
    LIMITS,
    REJECT,
    RELEASE,
    acknowledge,
    acquire,
    batches_of,
    states,
    write,
)


def test_an_operator_releases_what_a_member_holds() -> None:
    """The record is available at once with its count, the member cannot acknowledge it, and the write has the count."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 5))
    assert partition.acknowledge_by_hand(RELEASE, 1, 2, now=1.0) == (ByHand(released=2), 1)
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (1, 1, ACCEPT))
    assert write(partition) == (0, [(1, 2, DeliveryState.AVAILABLE, 1)])
    assert acquire(partition, batches_of(0, 5), by="b") == [(1, 2, 2)]
    ends = [(each.first_offset, each.last_offset, each.end) for each in partition.take_ended()]
    assert ends == [(1, 2, DeliveryEnd.BY_HAND)]


def test_an_operator_archives_what_members_hold_and_what_is_available_again() -> None:
    """Like a rejected record: no member gets it again, and it waits for its dead letter if there is a topic."""
    for limits, state in ((LIMITS, "ARCHIVED"), (LIMITS._replace(has_dead_letters=True), "ARCHIVING")):
        partition = SharePartition(0, limits=limits)
        acquire(partition, batches_of(0, 6))
        acknowledge(partition, (3, 3, RELEASE))
        write(partition)
        assert partition.acknowledge_by_hand(REJECT, 2, 3, now=1.0)[0] == ByHand(archived=2)
        assert states(partition) == [(0, 2, "ACQUIRED", 1), (2, 4, state, 1), (4, 6, "ACQUIRED", 1)]
        assert write(partition) == (0, [(2, 3, DeliveryState[state], 1)])
        assert acquire(partition, batches_of(0, 6), by="b") == []


def test_a_hand_comes_after_the_locks_that_have_expired() -> None:
    """The time was over before the operator's word, so that has ended no delivery."""
    counts = DeliveryCounts()
    partition = SharePartition(0, limits=LIMITS, counts=counts)
    acquire(partition, batches_of(0, 2), now=0.0)
    assert partition.acknowledge_by_hand(RELEASE, 0, 1, now=30.0)[0] == ByHand(available=2)
    assert [each.end for each in partition.take_ended()] == [DeliveryEnd.LOCK_OVER]
    assert counts.lock_timeouts == 2


@pytest.mark.parametrize(("type_", "counted"), [(REJECT, 0), (RELEASE, 2)])
def test_only_records_out_of_deliveries_count_as_such_when_archived_by_hand(
    type_: AcknowledgeType, counted: int
) -> None:
    """`DeliveryCounts.archived`, which operators watch for records that no member can handle."""
    counts = DeliveryCounts()
    partition = SharePartition(0, limits=LIMITS._replace(delivery_count=1), counts=counts)
    acquire(partition, batches_of(0, 2))
    assert partition.acknowledge_by_hand(type_, 0, 1, now=1.0)[0] == ByHand(archived=2)
    assert counts.archived == counted


def test_a_record_that_is_released_by_hand_after_its_last_delivery_is_given_up() -> None:
    """A hand adds no delivery to `share.delivery.count.limit`."""
    partition = SharePartition(0, limits=LIMITS._replace(delivery_count=1))
    acquire(partition, batches_of(0, 1))
    assert partition.acknowledge_by_hand(RELEASE, 0, 0, now=1.0)[0] == ByHand(archived=1)
    assert partition.start_offset == 1


def test_what_an_operator_cannot_change_is_counted() -> None:
    """What was never delivered may be aborted. What its member has acknowledged is left to that."""
    partition = SharePartition(3, [StateBatch(6, 7, DeliveryState.AVAILABLE, 1)], limits=LIMITS)
    acquire(partition, batches_of(0, 4))
    acknowledge(partition, (3, 3, RELEASE))
    found, number = partition.acknowledge_by_hand(REJECT, 1, 9, now=1.0)
    assert found == ByHand(archived=2, available=2, pending=1, done=2, not_fetched=2)
    assert sum(found) == 9 and number == 1
    assert partition.acknowledge_by_hand(RELEASE, 20, 30, now=1.0)[0] == ByHand(not_fetched=11)


def test_a_hand_that_changes_nothing_waits_for_the_write_of_one_before() -> None:
    """A request that is repeated after a lost answer is answered once its change is written."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 2))
    partition.acknowledge_by_hand(REJECT, 0, 0, now=1.0)
    assert partition.acknowledge_by_hand(REJECT, 0, 0, now=1.0) == (ByHand(done=1), 1)
    taken = partition.take_write()
    assert taken is not None
    assert partition.acknowledge_by_hand(REJECT, 0, 0, now=1.0) == (ByHand(done=1), 1)
    partition.complete(taken, is_written=False)
    assert partition.acknowledge_by_hand(REJECT, 0, 0, now=1.0) == (ByHand(done=1), 2)
    write(partition)
    assert partition.acknowledge_by_hand(REJECT, 0, 0, now=1.0) == (ByHand(done=1), None)
