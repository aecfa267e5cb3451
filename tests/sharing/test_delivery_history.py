"""raftlog.sharing: the counts and the history of deliveries, and a share partition in numbers."""

from __future__ import annotations

from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    DeliveryState,
    FetchedBatch,
    ShareLimits,
)
from raftlog.sharing.delivery_history import (
    CountsByGroup,
    DeliveryCounts,
    DeliveryEnd,
    DeliveryHistory,
    EndedDelivery,
    PastDelivery,
)
from raftlog.sharing.in_flight_summary import InFlightSummary, summarize
from raftlog.sharing.share_partition import SharePartition

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
AVAILABLE, ACKNOWLEDGED, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVED,
)


class Queue:
    """Ten records, of which members acquire a number from the first available on."""

    def __init__(self, *, delivery_count: int = 5) -> None:
        self.counts = DeliveryCounts()
        limits = ShareLimits(lock_s=30, delivery_count=delivery_count)
        self.machine = SharePartition(0, limits=limits, counts=self.counts)

    def acquire(self, member_id: str, count: int, *, now: float) -> None:
        request = AcquireRequest(member_id, count, is_record_limit=True)
        offset = self.machine.next_fetch_offset()
        self.machine.acquire(request, [FetchedBatch(offset, 9)], fetch_offset=offset, now=now)

    def acknowledge(
        self, member_id: str, first: int, last: int, type_: AcknowledgeType, *, now: float
    ) -> None:
        self.machine.acknowledge(member_id, [Acknowledgement(first, last, (type_,))], now=now)
        write = self.machine.take_write()
        assert write is not None
        self.machine.complete(write, is_written=True)


def test_deliveries_are_reported_once_they_end_each_with_its_member_and_its_end() -> None:
    """A lock that expires, a session that ends, and words of members."""
    queue = Queue()
    queue.acquire("m1", 4, now=1)
    queue.acquire("m2", 2, now=2)
    assert queue.machine.take_ended() == []
    queue.acknowledge("m1", 0, 0, ACCEPT, now=3)
    queue.acknowledge("m1", 1, 1, REJECT, now=3)
    assert queue.machine.take_ended() == [
        EndedDelivery(0, 0, 1, "m1", 1, DeliveryEnd.ACKNOWLEDGED, ACKNOWLEDGED),
        EndedDelivery(1, 1, 1, "m1", 1, DeliveryEnd.ACKNOWLEDGED, ARCHIVED),
    ]
    queue.machine.release_members({"m2"})
    queue.machine.expire(31)
    assert queue.machine.take_ended() == [
        EndedDelivery(4, 5, 1, "m2", 2, DeliveryEnd.SESSION_OVER, AVAILABLE),
        EndedDelivery(2, 3, 1, "m1", 1, DeliveryEnd.LOCK_OVER, AVAILABLE),
    ]
    queue.acquire("m3", 1, now=32)
    queue.machine.give_up_all()
    assert queue.machine.take_ended() == [
        EndedDelivery(2, 2, 2, "m3", 32, DeliveryEnd.LEADER_OVER, AVAILABLE)
    ]


def test_an_acknowledgement_that_is_not_written_ends_no_delivery() -> None:
    """The member holds the records still, and none is counted as acknowledged until a write succeeds."""
    queue = Queue(delivery_count=1)
    queue.acquire("m1", 2, now=1)
    both = [Acknowledgement(0, 1, (ACCEPT, RELEASE))]
    queue.machine.acknowledge("m1", both, now=2)
    write = queue.machine.take_write()
    assert write is not None
    queue.machine.complete(write, is_written=False)
    assert queue.machine.take_ended() == []
    assert (queue.counts.archived, sum(queue.counts.acknowledged)) == (0, 0)
    queue.machine.acknowledge("m1", both, now=3)
    write = queue.machine.take_write()
    assert write is not None and sum(queue.counts.acknowledged) == 0
    queue.machine.complete(write, is_written=True)
    assert (queue.counts.archived, queue.counts.acknowledged[ACCEPT]) == (1, 1)


def test_records_are_counted_by_what_became_of_them() -> None:
    """Each failed last delivery counts as archived: by a lock that expires, and by a release."""
    queue = Queue(delivery_count=2)
    queue.acquire("m1", 4, now=0)
    queue.acknowledge("m1", 0, 1, ACCEPT, now=1)
    queue.acknowledge("m1", 2, 2, RELEASE, now=1)
    queue.machine.expire(30)
    counts = queue.counts
    assert (counts.acquired, counts.redelivered, counts.lock_timeouts, counts.archived) == (4, 0, 1, 0)
    queue.acquire("m2", 1, now=31)
    queue.acknowledge("m2", 2, 2, RELEASE, now=32)
    queue.acquire("m2", 1, now=33)
    queue.machine.expire(90)
    assert (counts.acquired, counts.redelivered, counts.lock_timeouts, counts.archived) == (6, 2, 2, 2)
    assert (counts.acknowledged[ACCEPT], counts.acknowledged[RELEASE], sum(counts.acknowledged)) == (2, 2, 4)


def test_a_summary_counts_what_is_held_done_and_delivered_before() -> None:
    """An offset that is done counts once another before it is not."""
    queue = Queue()
    queue.acquire("m1", 6, now=1)
    queue.acknowledge("m1", 1, 2, ACCEPT, now=2)
    queue.acknowledge("m1", 3, 3, RELEASE, now=2)
    queue.acquire("m2", 1, now=5)
    assert summarize(queue.machine) == InFlightSummary(0, 6, 4, 2, 1, {1: 3, 2: 1})
    queue.machine.release_members({"m1", "m2"})
    assert summarize(queue.machine) == InFlightSummary(0, 6, 0, 2, None, {1: 3, 2: 1})


def test_a_renewed_lock_is_as_old_as_its_oldest_record() -> None:
    """Records that are renewed together become one range, though they were not acquired together."""
    queue = Queue()
    queue.acquire("m1", 1, now=1)
    queue.acquire("m2", 1, now=1)
    queue.acknowledge("m2", 1, 1, RELEASE, now=2)
    queue.acquire("m2", 1, now=3)
    queue.acknowledge("m1", 0, 0, RELEASE, now=4)
    queue.acquire("m2", 1, now=5)
    renewed = [Acknowledgement(0, 1, (AcknowledgeType.RENEW,))]
    assert queue.machine.acknowledge("m2", renewed, now=6) is None
    assert queue.machine.range_count == 1
    assert summarize(queue.machine).oldest_acquired_at == 3


def past(first: int, last: int, at_ms: int, state: DeliveryState = AVAILABLE) -> PastDelivery:
    end = DeliveryEnd.LOCK_OVER if state is AVAILABLE else DeliveryEnd.ACKNOWLEDGED
    return PastDelivery(EndedDelivery(first, last, 1, "m", 0, end, state), at_ms, at_ms)


def look(history: DeliveryHistory, offset: int) -> list[PastDelivery]:
    """Return the deliveries of a record of the share partition p."""
    steps = history.look("p", offset)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[PastDelivery] = end.value
            return found


def test_the_history_of_a_record_is_in_order_and_accepted_records_do_not_evict_others() -> None:
    """Of each kind the newest are kept."""
    history = DeliveryHistory(most=3)
    failed, accepted = past(0, 9, 1), past(5, 5, 7, ACKNOWLEDGED)
    history.add("p", failed)
    history.add("other", past(5, 5, 2))
    for number in range(5):
        history.add("p", past(number, number, 3, ACKNOWLEDGED))
    history.add("p", accepted)
    assert look(history, 5) == [failed, accepted]
    assert look(history, 2) == [failed]
    assert look(history, 10) == []
    for number in range(3):
        history.add("p", past(20 + number, 20 + number, 9))
    assert look(history, 0) == []


def test_locks_that_end_with_their_leader_do_not_evict_failures() -> None:
    """A broker that gives up its leaderships ends thousands of locks at once."""
    history = DeliveryHistory(most=3)
    failed = past(0, 0, 1)
    history.add("p", failed)
    for number in range(5):
        over = EndedDelivery(number, number, 2, "m", 0, DeliveryEnd.LEADER_OVER, AVAILABLE)
        history.add("p", PastDelivery(over, 2, 2))
    assert look(history, 0) == [failed] and history.evicted_ms == 0


def test_the_history_of_a_record_is_looked_up_in_steps() -> None:
    """Others go on between them, and deliveries that end meanwhile are not part of it."""
    history = DeliveryHistory(most=3)
    for number in range(3):
        history.add("p", past(number, number, 1))
        history.add("p", past(number, number, 2, ACKNOWLEDGED))
    steps = history.look("p", 2)
    next(steps)
    history.add("p", past(2, 2, 3))
    assert sum(1 for _ in steps) == 5


def test_groups_beyond_the_limit_are_counted_together_until_others_have_left() -> None:
    """No count gets lost, so that sums never go back."""
    in_use = {"a", "b"}
    counts = CountsByGroup(in_use.__contains__, most=2)
    for each in ("a", "b", "c"):
        counts.of(each).acquired += 1
    assert {group: each.acquired for group, each in counts.all().items()} == {"a": 1, "b": 1, "": 1}
    in_use.remove("a")
    counts.of("d").acquired += 1
    assert {group: each.acquired for group, each in counts.all().items()} == {"b": 1, "d": 1, "": 2}
