"""What a share partition does with the locks of its records (KIP-932)."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from raftlog.base.errors import InvalidRecordState, InvalidRequest
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireRequest,
    DeliveryState,
    FetchedBatch,
    ShareLimits,
    StateBatch,
    add_batch,
)
from raftlog.sharing.share_partition import SharePartition

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
GAP, RENEW = AcknowledgeType.GAP, AcknowledgeType.RENEW
LIMITS = ShareLimits(lock_s=30.0)


def batches_of(*firsts: int) -> list[FetchedBatch]:
    """Return record batches that begin at these offsets; the last number is the end of the last batch."""
    return [FetchedBatch(first, end - 1) for first, end in pairwise(firsts)]


def acquire(
    partition: SharePartition,
    batches: list[FetchedBatch],
    *,
    by: str = "a",
    most: int = 500,
    now: float = 0.0,
    **options: object,
) -> list[tuple[int, int, int]]:
    request = AcquireRequest(by, most, **options)  # type: ignore[arg-type]
    return acquire_as(partition, request, batches, now=now)


def acquire_as(
    partition: SharePartition, request: AcquireRequest, batches: list[FetchedBatch], *, now: float
) -> list[tuple[int, int, int]]:
    fetch_offset = partition.next_fetch_offset()
    batches = [each for each in batches if each.last_offset >= fetch_offset]
    return [tuple(each) for each in partition.acquire(request, batches, fetch_offset=fetch_offset, now=now)]


def acknowledge(
    partition: SharePartition, *said: tuple[int, int, AcknowledgeType], by: str = "a", now: float = 1.0
) -> int | None:
    batches = [Acknowledgement(first, last, [type_]) for first, last, type_ in said]
    return partition.acknowledge(by, batches, now=now)


def write(partition: SharePartition, *, is_written: bool = True) -> tuple[int, list[tuple[int, ...]]]:
    """Write what there is; return the start offset and the batches of the write."""
    taken = partition.take_write()
    assert taken is not None
    partition.complete(taken, is_written=is_written)
    return taken.start_offset, [tuple(each) for each in taken.batches]


def states(partition: SharePartition) -> list[tuple[int, int, str, int]]:
    return [
        (each.first_offset, each.end_offset, each.state.name, each.delivery_count)
        for each in partition.ranges
    ]


def test_whole_record_batches_are_acquired() -> None:
    """The limit of records is soft in the mode `batch_optimized`: a member gets the batch that passes it."""
    partition = SharePartition(0, limits=LIMITS)
    assert acquire(partition, batches_of(0, 10, 20, 30), most=15) == [(0, 19, 1)]
    assert partition.end_offset == partition.next_fetch_offset() == 20


def test_a_record_limit_is_exact() -> None:
    """KIP-1206: in the mode `record_limit` a member gets the records that it asks for, and the rest stays available."""
    partition = SharePartition(0, limits=LIMITS)
    batches = batches_of(0, 10, 20)
    assert acquire(partition, batches, most=4, is_record_limit=True) == [(0, 3, 1)]
    assert acquire(partition, batches, by="b", most=8, is_record_limit=True) == [(4, 11, 1)]
    assert acquire(partition, batches, by="c") == [(12, 19, 1)]


def test_acquired_ranges_are_split_at_the_batch_size() -> None:
    """They end where record batches end, so that a member can acknowledge what it has worked off in large ranges."""
    partition = SharePartition(0, limits=LIMITS)
    assert acquire(partition, batches_of(0, 4, 8, 12, 16), batch_size=6) == [(0, 7, 1), (8, 15, 1)]
    assert len(states(partition)) == 1


def test_many_ranges_are_split_without_a_look_at_all_batches() -> None:
    """Ranges between accepted records are split where batches begin, each with a look at its own batches."""

    class CountedLog(list[FetchedBatch]):
        looked_at = 0

        def __getitem__(self, at: Any) -> Any:
            self.looked_at += 1
            return super().__getitem__(at)

        def __iter__(self) -> Iterator[FetchedBatch]:
            self.looked_at += len(self)
            return super().__iter__()

    log = CountedLog(FetchedBatch(each, each) for each in range(1_500))
    accepted = [StateBatch(each, each, DeliveryState.ACKNOWLEDGED, 1) for each in range(2, 1_500, 3)]
    found = SharePartition(0, accepted).acquire(AcquireRequest("m", 2_000, 1), log, fetch_offset=0, now=0.0)
    assert found == [Acquired(each, each, 1) for each in range(1_500) if each % 3 != 2]
    assert log.looked_at < 50_000


def test_two_members_share_a_partition() -> None:
    """No record has two holders, and each member acknowledges its own only."""
    partition = SharePartition(0, limits=LIMITS)
    assert acquire(partition, batches_of(0, 10), by="a") == [(0, 9, 1)]
    assert acquire(partition, batches_of(0, 10, 20), by="b") == [(10, 19, 1)]
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (5, 14, ACCEPT), by="a")
    assert acknowledge(partition, (0, 9, ACCEPT), by="a") == 1
    assert write(partition) == (10, [])
    assert partition.start_offset == 10


def test_the_start_offset_is_written_with_what_moves_it() -> None:
    """A write has the start offset after it, and no batch below: members that accept in order write few bytes."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10, 20))
    acknowledge(partition, (10, 14, ACCEPT))
    assert write(partition) == (0, [(10, 14, DeliveryState.ACKNOWLEDGED, 1)])
    acknowledge(partition, (0, 9, ACCEPT))
    assert write(partition) == (15, [])
    assert states(partition) == [(15, 20, "ACQUIRED", 1)]


def test_one_write_is_under_way_at_a_time() -> None:
    """Acknowledgements that come meanwhile go together with the next write."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    assert acknowledge(partition, (0, 0, ACCEPT)) == 1
    first = partition.take_write()
    assert first is not None
    assert acknowledge(partition, (1, 1, ACCEPT)) == acknowledge(partition, (2, 2, ACCEPT)) == 2
    assert partition.take_write() is None
    partition.complete(first, is_written=True)
    assert write(partition) == (3, [])


def test_a_failed_write_leaves_the_lock_as_it_was() -> None:
    """The member may acknowledge again, until its lock expires."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10), now=0.0)
    acknowledge(partition, (0, 9, ACCEPT), now=29.0)
    taken = partition.take_write()
    assert taken is not None
    partition.expire(31.0)
    assert states(partition) == [(0, 10, "ACQUIRED", 1)], "it was acknowledged in time"
    partition.complete(taken, is_written=False)
    assert partition.next_expiry_at == 30.0
    assert partition.expire(31.0)
    assert states(partition) == [(0, 10, "AVAILABLE", 1)]


def test_a_record_whose_acknowledgement_is_being_written_refuses_another() -> None:
    """KIP-932: INVALID_RECORD_STATE."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    acknowledge(partition, (0, 4, ACCEPT))
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (4, 4, RELEASE))


def test_acknowledgements_count_all_or_none() -> None:
    """A refused acknowledgement takes the others of its request with it."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    with pytest.raises(InvalidRequest):
        acknowledge(partition, (0, 4, ACCEPT), (8, 10, ACCEPT))
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (0, 4, ACCEPT), (4, 5, ACCEPT))
    assert partition.take_write() is None
    assert states(partition) == [(0, 10, "ACQUIRED", 1)]


@pytest.mark.parametrize(
    "said",
    [
        [(3, 2, [ACCEPT])],
        [(0, 3, [])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 3, [ACCEPT]), (2, 4, [ACCEPT])],
        [(4, 5, [ACCEPT]), (0, 3, [ACCEPT])],
        [(-2, 0, [ACCEPT])],
    ],
)
def test_batches_are_in_order_with_one_type_or_one_each(
    said: list[tuple[int, int, list[AcknowledgeType]]],
) -> None:
    """INVALID_REQUEST, as in Apache Kafka (KafkaApis.validateAcknowledgementBatches)."""
    checked((0, 3, [ACCEPT]), (3, 4, [ACCEPT, RELEASE]))
    with pytest.raises(InvalidRequest):
        checked(*said)


def checked(*said: tuple[int, int, list[AcknowledgeType]]) -> list[Acknowledgement]:
    """Return the batches of a request as the machine gets them."""
    batches: list[Acknowledgement] = []
    for each in said:
        add_batch(batches, Acknowledgement(*each))
    return batches


def test_a_renewal_that_is_repeated_is_one() -> None:
    """Apache Kafka renews the record each time; a request has room for 100,000 of them."""
    repeated = [(0, 0, [RENEW])] * 3
    assert checked(*repeated, (0, 1, [RENEW, ACCEPT]), (1, 1, [ACCEPT])) == [
        (0, 0, [RENEW]),
        (0, 1, [RENEW, ACCEPT]),
        (1, 1, [ACCEPT]),
    ]
    assert len(checked(*[(0, 0, [ACCEPT])] * 2)) == 2, (
        "the second is refused, once the record's state is known"
    )
    assert len(checked((0, 1, [RENEW]), (1, 1, [RENEW]), (1, 1, [RENEW]))) == 2


def test_acknowledgements_below_the_start_offset_are_not_looked_at() -> None:
    """Only the last of them counts: whether its record may come again under the next leader."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    partition.advance_log_start(5)
    passed = [Acknowledgement(each, each, [ACCEPT]) for each in range(5)]
    assert len(partition._not_passed(passed)) == 1
    assert partition.acknowledge("a", passed, now=1.0) == 1
    assert partition.acknowledge("a", [*passed, Acknowledgement(5, 5, [ACCEPT])], now=1.0) == 1
    assert write(partition) == (6, [])
    assert partition.acknowledge("a", passed, now=1.0) is None


def test_the_first_error_of_a_request_counts() -> None:
    """A record that is not held comes before offsets that were not acquired."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (0, 4, ACCEPT), (8, 12, ACCEPT), by="b")
    with pytest.raises(InvalidRequest):
        acknowledge(partition, (8, 12, ACCEPT), (13, 14, ACCEPT), by="b")


def test_nothing_is_acknowledged_where_nothing_is_in_flight() -> None:
    """Apache Kafka finds no batch for the offsets: INVALID_RECORD_STATE; before the start offset all is well."""
    partition = SharePartition(5, limits=LIMITS)
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (5, 5, ACCEPT))
    assert acknowledge(partition, (0, 4, ACCEPT)) is None


def test_a_renewed_record_may_be_acknowledged_in_the_same_request() -> None:
    """The range after the renewal begins at its last offset; any other record is acknowledged once."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 5))
    acknowledge(partition, (0, 2, RENEW), (2, 4, ACCEPT))
    write = partition.take_write()
    assert write is not None
    partition.complete(write, is_written=True)
    assert states(partition) == [(0, 2, "ACQUIRED", 1), (2, 5, "ACKNOWLEDGED", 1)]
    acknowledge(partition, (0, 0, RENEW), (0, 0, RENEW), (0, 1, RELEASE))
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (0, 0, ACCEPT))


def test_each_offset_may_have_a_type_of_its_own() -> None:
    """Gaps and rejected records are archived, released records are available again, renewed locks stay."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 6), now=0.0)
    types = [RENEW, ACCEPT, RELEASE, REJECT, GAP, GAP]
    partition.acknowledge("a", [Acknowledgement(0, 5, types)], now=20.0)
    write(partition)
    assert states(partition) == [
        (0, 1, "ACQUIRED", 1),
        (1, 2, "ACKNOWLEDGED", 1),
        (2, 3, "AVAILABLE", 1),
        (3, 6, "ARCHIVED", 1),
    ]
    assert not partition.expire(49.0)
    assert partition.expire(50.0)


def test_a_renewed_lock_needs_no_write() -> None:
    """KIP-1222: it is answered at once."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10), now=0.0)
    assert acknowledge(partition, (0, 9, RENEW), now=29.0) is None
    assert partition.take_write() is None
    assert not partition.expire(58.0)


def test_an_expired_lock_makes_its_records_available() -> None:
    """Its holder comes too late, and the delivery count is written with the next write."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10), now=0.0)
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, (0, 9, ACCEPT), now=30.0)
    assert write(partition) == (0, [(0, 9, DeliveryState.AVAILABLE, 1)])
    assert acquire(partition, batches_of(0, 10), by="b", now=30.0) == [(0, 9, 2)]
    assert partition.next_expiry_at == 60.0


def test_a_lost_count_is_written_again() -> None:
    """A release that was not written is part of the next write, with the count of that delivery."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    partition.release_members({"a"})
    write(partition, is_written=False)
    assert acquire(partition, batches_of(0, 10)) == [(0, 9, 2)]
    assert write(partition) == (0, [(0, 9, DeliveryState.AVAILABLE, 1)])
    assert partition.take_write() is None


def test_the_end_of_a_session_releases_its_locks() -> None:
    """Other members' locks stay, and so does what is being acknowledged."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10), by="a")
    acquire(partition, batches_of(0, 10, 20), by="b")
    acknowledge(partition, (0, 2, ACCEPT), by="a")
    assert partition.release_members({"a"})
    assert not partition.release_members({"a"})
    assert partition.next_fetch_offset() == 3
    write(partition)
    assert states(partition) == [(3, 10, "AVAILABLE", 1), (10, 20, "ACQUIRED", 1)]


def test_a_record_is_archived_after_its_last_delivery() -> None:
    """`share.delivery.count.limit`: released or expired then, it is not delivered again."""
    partition = SharePartition(0, limits=LIMITS._replace(delivery_count=2))
    for _ in range(2):
        acquire(partition, batches_of(0, 1))
        acknowledge(partition, (0, 0, RELEASE))
        write(partition)
    assert partition.start_offset == partition.end_offset == 1


def test_poison_is_isolated() -> None:
    """Records that failed often are delivered in halves, and alone before the end: good neighbours survive."""
    partition = SharePartition(0, limits=LIMITS._replace(delivery_count=5))
    sizes = []
    batches = batches_of(0, 16)
    for _ in range(200):
        if partition.start_offset == 16:
            break
        taken = acquire(partition, batches, most=16)
        sizes.append(sum(last - first + 1 for first, last, _ in taken))
        for first, last, _ in taken:
            acknowledge(partition, (first, last, RELEASE if first <= 5 <= last else ACCEPT))
        write(partition)
    assert partition.start_offset == 16
    assert sizes[:5] == [16, 16, 16, 8, 1]
    assert sizes[5] == 1


def test_poison_is_isolated_from_a_member_that_asks_for_all() -> None:
    """Its records are halved by their own number, which is less than what it asks for."""
    partition = SharePartition(0, limits=LIMITS._replace(delivery_count=5))
    sizes = []
    for _ in range(5):
        taken = acquire(partition, batches_of(0, 16), most=2**31 - 1)
        sizes.append(sum(last - first + 1 for first, last, _ in taken))
        for first, last, _ in taken:
            acknowledge(partition, (first, last, RELEASE))
        write(partition)
    assert sizes == [16, 16, 16, 8, 1]


def test_locks_are_limited_from_the_start_offset_on() -> None:
    """`share.partition.max.record.locks`: one stuck record holds up what follows, but not what is released."""
    partition = SharePartition(0, limits=LIMITS._replace(max_locks=20))
    batches = batches_of(0, 10, 20, 30)
    assert acquire(partition, batches) == [(0, 19, 1)]
    acknowledge(partition, (1, 19, ACCEPT))
    write(partition)
    assert partition.is_full
    assert acquire(partition, batches) == []
    acknowledge(partition, (0, 0, RELEASE))
    write(partition)
    assert not partition.is_full
    assert acquire(partition, batches) == [(0, 0, 2)]
    acknowledge(partition, (0, 0, ACCEPT))
    write(partition)
    assert not partition.is_full
    assert acquire(partition, batches) == [(20, 29, 1)]


def test_withheld_batches_are_archived() -> None:
    """read_committed: records of aborted transactions and control records are never delivered."""
    partition = SharePartition(0, limits=LIMITS)
    batches = [
        FetchedBatch(0, 4, True),
        FetchedBatch(5, 9),
        FetchedBatch(10, 14, True),
        FetchedBatch(15, 19, True),
    ]
    assert acquire(partition, batches) == [(5, 9, 1)]
    assert (partition.start_offset, partition.end_offset) == (5, 20)
    acknowledge(partition, (5, 9, ACCEPT))
    assert write(partition) == (20, [])


def test_batches_that_compaction_removed_are_archived() -> None:
    """KIP-932: a read that begins later than it was asked shows that the records before are gone."""
    partition = SharePartition(0, limits=LIMITS)
    assert acquire(partition, batches_of(5, 10)) == [(5, 9, 1)]
    assert partition.start_offset == 5
    partition.release_members({"a"})
    assert acquire(partition, batches_of(8, 12), most=3) == [(8, 9, 2), (10, 11, 1)]
    assert partition.start_offset == 8


def test_the_log_start_drops_what_is_before_it() -> None:
    """Its acknowledgements are answered without an error, after the new start offset is written."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10, 20))
    acknowledge(partition, (0, 4, ACCEPT))
    taken = partition.take_write()
    assert taken is not None
    partition.advance_log_start(15)
    partition.complete(taken, is_written=True)
    assert acknowledge(partition, (0, 4, ACCEPT)) is None, "that is written"
    assert acknowledge(partition, (5, 9, ACCEPT)) == 2
    assert write(partition) == (15, [])
    assert acknowledge(partition, (5, 14, ACCEPT)) is None
    assert acknowledge(partition, (10, 19, ACCEPT)) == 3
    assert write(partition) == (20, [])
    partition.advance_log_start(50)
    assert partition.start_offset == partition.next_fetch_offset() == 50
    assert partition.next_expiry_at >= 30.0


def test_the_next_leader_knows_what_was_written() -> None:
    """Acquired records are available to it, and so is what was never written, between the batches and after."""
    written = [
        StateBatch(0, 3, DeliveryState.ACKNOWLEDGED, 1),
        StateBatch(6, 7, DeliveryState.AVAILABLE, 3),
        StateBatch(8, 9, DeliveryState.ARCHIVING, 1),
    ]
    partition = SharePartition(0, written, limits=LIMITS)
    assert partition.start_offset == partition.next_fetch_offset() == 4
    assert partition.next_expiry_at == inf
    assert states(partition) == [(4, 6, "AVAILABLE", 0), (6, 8, "AVAILABLE", 3), (8, 10, "ARCHIVING", 1)]
    assert acquire(partition, batches_of(0, 20), most=3) == [(4, 5, 1)]


def test_the_completed_records_are_counted() -> None:
    """KIP-1226: a write says how many records after the start offset are done, for the lag."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    acknowledge(partition, (2, 4, ACCEPT), (7, 7, REJECT), (8, 8, RELEASE))
    taken = partition.take_write()
    assert taken is not None
    assert taken.delivery_complete_count == 4


def test_no_record_before_the_start_offset_counts_as_completed() -> None:
    """When all that is in flight is done, the start offset is past it; a count would lower the lag below the truth."""
    partition = SharePartition(0, limits=LIMITS)
    acquire(partition, batches_of(0, 10))
    acknowledge(partition, (0, 9, ACCEPT))
    taken = partition.take_write()
    assert taken is not None
    assert (taken.start_offset, taken.delivery_complete_count) == (10, 0)


@contextmanager
def counted_bytes() -> Iterator[list[int]]:
    """Fill a list with the growth of memory meanwhile."""
    grown: list[int] = []
    gc.collect()
    tracemalloc.start()
    yield grown
    gc.collect()
    grown.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()


def accept_each(partition: SharePartition, offsets: range) -> None:
    """Accept every offset of a step by an acknowledgement of its own."""
    for offset in offsets:
        acknowledge(partition, (offset, offset, ACCEPT))
    write(partition)


def test_a_lock_takes_few_bytes() -> None:
    """2,000 locks of a partition are one range of 400 bytes. If each differs from its neighbours, it takes 200."""
    partition, batches = SharePartition(0, limits=LIMITS), batches_of(0, 1, 2_000)
    with counted_bytes() as together:
        acquire(partition, batches)
    assert len(states(partition)) == 1
    with counted_bytes() as alone:
        accept_each(partition, range(1, 2_000, 2))
    assert len(states(partition)) == 2_000
    assert 0 < together[0] < 500
    assert 20 * 2_000 < alone[0] < 200 * 2_000
    accept_each(partition, range(2, 2_000, 2))
    assert len(states(partition)) == 2


def test_acquired_offsets_are_values() -> None:
    """The result holds no range of the machine."""
    partition = SharePartition(0, limits=LIMITS)
    found = partition.acquire(AcquireRequest("a", 5), batches_of(0, 10), fetch_offset=0, now=0.0)
    partition.release_members({"a"})
    assert found == [Acquired(0, 9, 1)]
