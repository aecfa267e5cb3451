"""A leader's share partition: answers after commits, one write at a time, fenced for good (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from raftlog.base.config import GroupConfig
from raftlog.base.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    InvalidRecordState,
    InvalidRequest,
    KafkaError,
    UnknownServerError,
)
from raftlog.broker.coordination.led_share_partition import (
    GATHER_MAX_S,
    GATHER_SHARE,
    MOST_BATCHES,
    RETRY_S,
    LedSharePartition,
    fetched_batches,
)
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.broker.coordination.share_state_client import StoredState
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.records.batch import (
    EndTransactionMarker,
    ProducerIdAndSequence,
    build_batch,
    build_end_marker,
    new_record,
)
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.sharing.delivery import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    ByHand,
    DeliveryState,
    FetchedBatch,
    StateBatch,
    StateWrite,
)
from raftlog.sharing.share_partition import SharePartition
from raftlog.sharing.share_sessions import ShareSessionKey, ShareSessions
from raftlog_chaos.simulator import SimLoop, simulate

KEY = SharePartitionKey("g", UUID(int=8), 0)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LOG = [FetchedBatch(0, 9), FetchedBatch(10, 19)]


class FakeStore:
    """A share coordinator that answers a write when the test says so."""

    def __init__(self) -> None:
        self.stored: StoredState | KafkaError = StoredState(3, 0, ())
        self.writes: list[StateWrite] = []
        self.epochs: list[tuple[int, int]] = []
        self._answers: list[asyncio.Future[None]] = []

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> StoredState:
        assert (key, leader_epoch) == (KEY, 7)
        if isinstance(self.stored, KafkaError):
            raise self.stored
        return self.stored

    async def write(
        self, key: SharePartitionKey, write: StateWrite, *, state_epoch: int, leader_epoch: int
    ) -> None:
        self.writes.append(write)
        self.epochs.append((state_epoch, leader_epoch))
        self._answers.append(asyncio.get_running_loop().create_future())
        await self._answers[-1]

    def answer(self, error: KafkaError | None = None) -> None:
        """Answer the last write."""
        if error is None:
            self._answers[-1].set_result(None)
        else:
            self._answers[-1].set_exception(error)


class Leader:
    """A loaded share partition."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.store = FakeStore()
        self.changes = 0
        self.config = GroupConfig()
        self.led = LedSharePartition(KEY, 7, self.store, config=lambda: self.config, changed=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def load(self, first_offset: int = 0) -> None:
        async def find_first_offset() -> int:
            return first_offset

        await self.led.load(find_first_offset)

    def acquire(self, member: str = "a") -> list[tuple[int, int, int]]:
        fetch_offset = self.led.machine.next_fetch_offset()
        batches = [each for each in LOG if each.last_offset >= fetch_offset]
        found = self.led.acquire(AcquireRequest(member, 10), batches, fetch_offset=fetch_offset)
        return [tuple(each) for each in found]

    def acknowledge(
        self, first: int, last: int, type_: AcknowledgeType = ACCEPT, member: str = "a"
    ) -> asyncio.Future[None]:
        said = [Acknowledgement(first, last, [type_])]
        return asyncio.ensure_future(self.led.acknowledge(member, said))

    async def pass_time(self, seconds: float = 0.01) -> None:
        over = asyncio.Event()
        self._loop.call_later(seconds, over.set)
        await over.wait()


def run_scenario(scenario: Callable[[Leader], Awaitable[None]]) -> None:
    async def program(loop: SimLoop) -> None:
        host = loop.host("b1")
        await host.start(scenario(Leader(loop)))

    simulate(program)


def test_an_acknowledgement_is_answered_after_its_commit() -> None:
    """One write at a time: what comes meanwhile goes together with the next."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        assert leader.acquire() == [(0, 9, 1)]
        first = leader.acknowledge(0, 4)
        await leader.pass_time()
        others = [leader.acknowledge(5, 6), leader.acknowledge(7, 9)]
        await leader.pass_time()
        assert not first.done() and len(leader.store.writes) == 1
        leader.store.answer()
        await leader.pass_time()
        assert first.done() and not any(each.done() for each in others)
        leader.store.answer()
        await leader.pass_time()
        assert all(each.done() for each in others)
        assert [each.start_offset for each in leader.store.writes] == [5, 10]
        assert leader.acquire() == [(10, 19, 1)]
        last = leader.acknowledge(10, 19)
        await leader.pass_time()
        leader.store.answer()
        await last
        assert leader.store.epochs == [(3, 7)] * 3

    run_scenario(scenario)


def test_members_that_acknowledge_in_turns_share_the_next_write() -> None:
    """It waits a little for the answered member, and no acknowledgement is answered with the write before its own."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        assert leader.acquire() == [(0, 9, 1)] and leader.acquire("b") == [(10, 19, 1)]
        first, other = leader.acknowledge(0, 0), leader.acknowledge(10, 10, member="b")
        await leader.pass_time()
        assert [each.pending for each in leader.store.writes] == [((0, 1), (10, 11))]
        third = leader.acknowledge(11, 11, member="b")
        await leader.pass_time(GATHER_MAX_S / GATHER_SHARE)
        leader.store.answer()
        await leader.pass_time(0.001)
        assert first.done() and other.done() and not third.done() and len(leader.store.writes) == 1
        fourth = leader.acknowledge(1, 1)
        await leader.pass_time(GATHER_MAX_S)
        assert [each.pending for each in leader.store.writes[1:]] == [((1, 2), (11, 12))]
        assert not third.done() and not fourth.done()
        leader.store.answer()
        await asyncio.gather(third, fourth)

    run_scenario(scenario)


def test_a_member_alone_waits_for_no_other() -> None:
    """Its next acknowledgement is written at once."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        for offset in range(3):
            acknowledged = leader.acknowledge(offset, offset)
            await leader.pass_time(0.0001)
            assert len(leader.store.writes) == offset + 1
            await leader.pass_time()
            leader.store.answer()
            await acknowledged

    run_scenario(scenario)


def test_an_accepted_record_wakes_only_a_full_partition() -> None:
    """Of many members that wait, none looks again after each acknowledgement of another."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        for first, max_locks, changes in ((0, 2_000, 0), (2, 8, 1), (4, 8, 1)):
            leader.config = GroupConfig(share_partition_max_record_locks=max_locks)
            accepted = leader.acknowledge(first, first + 1)
            await leader.pass_time()
            leader.store.answer()
            await accepted
            assert leader.changes == changes

    run_scenario(scenario)


def test_a_released_record_wakes_whatever_waits() -> None:
    """Once the write of its release is committed."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        released = leader.acknowledge(3, 3, RELEASE)
        await leader.pass_time()
        assert leader.changes == 0
        leader.store.answer()
        await released
        assert leader.changes == 1

    run_scenario(scenario)


def test_a_new_log_start_wakes_whatever_waits() -> None:
    """The partition was full of locks that the log no longer has."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        leader.led.advance_log_start(0)
        assert leader.changes == 0
        leader.led.advance_log_start(5)
        assert leader.changes == 1

    run_scenario(scenario)


def test_a_failed_write_fails_its_requests_only() -> None:
    """The member keeps its lock, and may acknowledge again."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        failed = leader.acknowledge(0, 9)
        await leader.pass_time()
        leader.store.answer(CoordinatorNotAvailable())
        with pytest.raises(CoordinatorNotAvailable):
            await failed
        again = leader.acknowledge(0, 9)
        await leader.pass_time(2 * RETRY_S)
        leader.store.answer()
        await again
        assert leader.led.machine.start_offset == 10

    run_scenario(scenario)


def test_a_hand_is_answered_after_its_commit() -> None:
    """The member loses the record at once. After a failed write the operator hears of it, and it is written again."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()

        def by_hand(first: int) -> asyncio.Future[ByHand]:
            return asyncio.ensure_future(leader.led.acknowledge_by_hand(REJECT, first, first))

        first = by_hand(1)
        await leader.pass_time()
        assert not first.done() and leader.changes == 1
        with pytest.raises(InvalidRecordState):
            await leader.acknowledge(0, 1)
        leader.store.answer(CoordinatorNotAvailable())
        with pytest.raises(CoordinatorNotAvailable):
            await first
        again = by_hand(1)
        await leader.pass_time(RETRY_S + 0.01)
        assert not again.done() and leader.store.writes[-1].batches == (
            StateBatch(1, 1, DeliveryState.ARCHIVED, 1),
        )
        leader.store.answer()
        assert await again == ByHand(done=1)
        rest = asyncio.ensure_future(leader.led.acknowledge_by_hand(RELEASE, 0, 9))
        await leader.pass_time()
        leader.store.answer(FencedLeaderEpoch())
        with pytest.raises(FencedLeaderEpoch):
            await rest
        assert leader.led.over is not None

    run_scenario(scenario)


def test_counts_are_written_until_a_write_succeeds() -> None:
    """The locks of a session that ended are given up at once, whatever becomes of their writes."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        leader.led.release_members({"a"})
        assert leader.changes == 1
        assert leader.acquire("b") == [(0, 9, 2)]
        for number in range(1, 4):
            await leader.pass_time(2 * RETRY_S)
            leader.store.answer(CoordinatorNotAvailable())
            await leader.pass_time(RETRY_S / 2)
            assert len(leader.store.writes) == number, "there is a pause"
        await leader.pass_time(2 * RETRY_S)
        leader.store.answer()
        await leader.pass_time(2 * RETRY_S)
        assert [each.batches for each in leader.store.writes] == [
            (StateBatch(0, 9, DeliveryState.AVAILABLE, 1),)
        ] * 4

    run_scenario(scenario)


def test_locks_expire_by_themselves() -> None:
    """A timer gives them up, and whoever waits for records looks again."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        await leader.pass_time(10.0)
        renewed = leader.acknowledge(0, 4, AcknowledgeType.RENEW)
        await leader.pass_time(19.0)
        assert renewed.done() and leader.changes == 0
        await leader.pass_time(2.0)
        assert leader.changes == 1
        assert leader.led.machine.next_fetch_offset() == 5
        with pytest.raises(InvalidRecordState):
            await leader.acknowledge(5, 9)
        await leader.pass_time(10.0)
        assert leader.led.machine.next_fetch_offset() == 0

    run_scenario(scenario)


def test_members_look_again_if_a_request_comes_before_the_timer() -> None:
    """The request has given up the locks already when the timer is due."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        leader.led.machine.expire(10**9)
        assert leader.changes == 0
        await leader.pass_time(31.0)
        assert leader.changes == 1

    run_scenario(scenario)


def test_a_lock_that_is_taken_back_expires_at_its_time() -> None:
    """The write failed after the lock's end: the records are available at once."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        failed = leader.acknowledge(0, 9)
        await leader.pass_time(40.0)
        leader.store.answer(CoordinatorNotAvailable())
        with pytest.raises(CoordinatorNotAvailable):
            await failed
        await leader.pass_time()
        assert leader.led.machine.next_fetch_offset() == 0
        await leader.pass_time(2 * RETRY_S)
        assert leader.store.writes[-1].batches == (StateBatch(0, 9, DeliveryState.AVAILABLE, 1),)

    run_scenario(scenario)


def test_a_fenced_leader_is_finished() -> None:
    """Requests that wait and further requests get the error, and no write follows."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        waiting = [leader.acknowledge(0, 4)]
        await leader.pass_time()
        waiting.append(leader.acknowledge(5, 9))
        await leader.pass_time()
        leader.store.answer(FencedLeaderEpoch())
        for each in waiting:
            with pytest.raises(FencedLeaderEpoch):
                await each
        with pytest.raises(FencedLeaderEpoch):
            leader.acquire()
        await leader.pass_time(60.0)
        assert len(leader.store.writes) == 1 and leader.changes == 1

    run_scenario(scenario)


def test_a_leader_begins_with_what_is_stored() -> None:
    """It reads the state back once, and tries again after an error that may pass."""

    async def scenario(leader: Leader) -> None:
        leader.store.stored = CoordinatorNotAvailable()
        with pytest.raises(CoordinatorNotAvailable):
            await leader.load()
        assert leader.led.over is None and not leader.led.is_loaded
        leader.store.stored = StoredState(3, 4, (StateBatch(4, 5, DeliveryState.ACKNOWLEDGED, 1),))
        await leader.load(17)
        assert leader.led.machine.start_offset == 6
        leader.store.stored = StoredState(3, 9, ())
        await leader.load()
        assert leader.led.machine.start_offset == 6 and leader.led.is_loaded

    run_scenario(scenario)


def test_a_group_begins_where_its_config_says() -> None:
    """share.auto.offset.reset, if no leader has written a start offset; the log may begin later.

    It is written before a record is delivered: the next leader's log may have another end.
    """

    async def find_another() -> int:
        return 99

    async def scenario(leader: Leader) -> None:
        leader.store.stored = StoredState(3, -1, ())
        loading = asyncio.ensure_future(leader.load(17))
        await leader.pass_time()
        assert [each.start_offset for each in leader.store.writes] == [17] and not leader.led.is_loaded
        leader.store.answer(CoordinatorNotAvailable())
        with pytest.raises(CoordinatorNotAvailable):
            await loading
        loading = asyncio.ensure_future(leader.load(18))
        await leader.pass_time()
        leader.store.answer()
        await loading
        assert leader.led.machine.start_offset == 18
        leader.store.stored = StoredState(3, 17, ())
        again = LedSharePartition(KEY, 7, leader.store, config=GroupConfig, changed=lambda: None)
        await again.load(find_another)
        assert again.machine.start_offset == 17
        leader.led.advance_log_start(20)
        assert leader.led.machine.next_fetch_offset() == 20

    run_scenario(scenario)


def test_a_state_that_is_not_initialized_is_no_state() -> None:
    """The object is finished: only another may load it later."""

    async def scenario(leader: Leader) -> None:
        leader.store.stored = InvalidRequest()
        with pytest.raises(InvalidRequest):
            await leader.load()
        assert isinstance(leader.led.over, InvalidRequest)

    run_scenario(scenario)


def test_a_broken_write_costs_this_share_partition_only() -> None:
    """The exception goes no further, and the requests get UNKNOWN_SERVER_ERROR."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        leader.acquire()
        waiting = leader.acknowledge(0, 4)
        await leader.pass_time()
        leader.store._answers[-1].set_exception(ZeroDivisionError())
        with pytest.raises(UnknownServerError):
            await waiting

    run_scenario(scenario)


def test_aborted_and_control_batches_are_withheld() -> None:
    """read_committed: from the first offset of an aborted transaction to its marker, for that producer only."""

    def data(offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
        records = [new_record(None, b"v", timestamp=1), new_record(None, b"v", timestamp=1)]
        producer = ProducerIdAndSequence(producer_id, 0, 0)
        bits = TRANSACTIONAL_BIT if transactional else 0
        return build_batch(records, base_offset=offset, producer=producer, attributes=bits)

    def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
        built = bytearray(build_end_marker(producer_id, 0, marker=EndTransactionMarker(commit, 0)))
        built[:8] = offset.to_bytes(8, "big")
        return bytes(built)

    log = b"".join(
        (
            data(0, 1),
            data(2, 2),
            data(4, 3, transactional=False),
            marker(6, 1, commit=False),
            data(7, 1),
            marker(9, 2, commit=True),
            marker(10, 1, commit=True),
        )
    )
    read = fetched_batches(log, [(1, 0)], read_committed=True)
    assert [(each.first_offset, each.is_withheld) for each in read] == [
        (0, True),
        (2, False),
        (4, False),
        (6, True),
        (7, False),
        (9, True),
        (10, True),
    ]
    assert not any(each.is_withheld for each in fetched_batches(log, None, read_committed=False))
    overlapping = data(0, 2) + data(2, 1) + marker(4, 1, commit=False) + marker(5, 2, commit=False)
    in_order_of_their_ends = [(1, 2), (2, 0)]
    read = fetched_batches(overlapping, in_order_of_their_ends, read_committed=True)
    assert all(each.is_withheld for each in read)


def test_a_read_of_very_many_batches_is_looked_at_in_part() -> None:
    """A turn of the loop looks at so many batches; the next fetch goes on behind them."""
    batch = build_batch([new_record(None, b"", timestamp=1)])
    log = b"".join(offset.to_bytes(8, "big") + batch[8:] for offset in range(MOST_BATCHES + 5))
    assert fetched_batches(log, None, read_committed=False)[-1].last_offset == MOST_BATCHES - 1


def test_locks_are_renewed_only_where_the_group_allows_it() -> None:
    """share.renew.acknowledge.enable=false: INVALID_RECORD_STATE, as in Apache Kafka (KIP-1222)."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        assert leader.acquire() == [(0, 9, 1)]
        await leader.acknowledge(0, 4, AcknowledgeType.RENEW)
        leader.config = GroupConfig(share_renew_acknowledge_enable=False)
        with pytest.raises(InvalidRecordState):
            await leader.acknowledge(0, 4, AcknowledgeType.RENEW)

    run_scenario(scenario)


def test_a_share_partition_is_idle_without_locks_and_writes() -> None:
    """Only then may it make room for another: what it holds is written."""

    async def scenario(leader: Leader) -> None:
        await leader.load()
        assert leader.led.is_idle
        leader.acquire()
        assert not leader.led.is_idle
        said = leader.acknowledge(0, 9)
        await leader.pass_time()
        assert not leader.led.is_idle
        leader.store.answer()
        await said
        await leader.pass_time()
        assert leader.led.is_idle

    run_scenario(scenario)


def test_a_connection_with_very_many_sessions_ends_with_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each share partition is looked at once, however many members were on the connection."""
    looks: list[int] = []

    def release_members(machine: SharePartition, member_ids: set[str]) -> bool:
        looks.append(len(member_ids))
        return False

    async def scenario(leader: Leader) -> None:
        await leader.load()
        partitions = LedSharePartitions.__new__(LedSharePartitions)
        partitions.sessions, partitions._led = ShareSessions(2_000, 400_000), {KEY: leader.led}
        wire = object()
        for number in range(1_000):
            partitions.sessions.open(ShareSessionKey("g", f"m{number}"), wire, acknowledges=False)
        partitions.connection_closed(wire)

    monkeypatch.setattr(SharePartition, "release_members", release_members)
    run_scenario(scenario)
    assert looks == [1_000]
