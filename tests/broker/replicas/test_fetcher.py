"""A fetcher against a scripted leader: what it asks, what it takes, what it leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from raftlog.base.config import load_config
from raftlog.base.types import EpochEnd
from raftlog.broker.replicas.fetcher import LeaderFetcher
from raftlog.broker.replicas.replication_quota import ReplicationQuota
from raftlog.metadata.image import PartitionState
from raftlog.protocol.codec import decode_header
from raftlog.protocol.fetch import FetchedPartition, FetchRequest, decode_fetch, encode_fetch_response
from raftlog.records.batch import build_batch, new_record
from raftlog.replication.partition import Partition
from tests.replication.replica_cluster import NOW_MS, TOPIC_ID, ReplicaNode, registrations

CONFIG = load_config(
    {
        "node.id": "2",
        "process.roles": "broker",
        "controller.quorum.voters": "9@node9:9093",
        "controller.listener.names": "CONTROLLER",
        "replica.fetch.backoff.ms": "40",
    }
)


class ScriptedLeader:
    """The other end of the channel: requests are kept until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, FetchRequest]] = []
        self.on_frame: Callable[[memoryview], None] = lambda view: None
        self.on_lost: Callable[[Exception | None], None] = lambda error: None
        self.connections = 0

    def send(self, frame: bytes) -> None:
        view = memoryview(frame)[4:]
        header, position = decode_header(view)
        self.asked.append((header.correlation_id, decode_fetch(view, position, header.api_version)))

    def close(self) -> None:
        self.on_lost(None)

    def answer(self, *results: FetchedPartition, number: int = -1, session: int = 77, error: int = 0) -> None:
        """Answer a request."""
        correlation_id, _ = self.asked[number]
        topics = [(TOPIC_ID, list(results))] if results else []
        buffers = encode_fetch_response(17, correlation_id, topics, session_id=session, error_code=error)
        self.on_frame(memoryview(b"".join(map(bytes, buffers)))[4:])

    def questions(self, number: int = -1) -> dict[int, tuple[int, int]]:
        """{partition: (leader epoch, offset)} of a request."""
        return {
            each.partition: (each.current_leader_epoch, each.fetch_offset)
            for _, partitions in self.asked[number][1].topics
            for each in partitions
        }


class FetcherSetup:
    """One follower with a few partitions, and its fetcher."""

    def __init__(self) -> None:
        self.leader = ScriptedLeader()
        self.lost: list[int] = []
        self.quota = ReplicationQuota(lambda: 0.0)
        self.registered = registrations((1, 2))
        self.node = ReplicaNode(2, self.registered)
        self.partition = self.node.partition
        self.lead(0)
        self.fetcher = LeaderFetcher(1, peers=self, config=CONFIG, loop=asyncio.get_running_loop())

    def lead(self, leader_epoch: int) -> Partition:
        state = PartitionState((1, 2), (1, 2), 1, leader_epoch, leader_epoch)
        self.partition.reconcile(state)
        return self.partition

    # what a fetcher asks of its broker

    def broker_epoch(self) -> int:
        return 10

    async def connect(self, leader: int, *, on_lost: Any) -> Any:
        self.leader.connections += 1
        self.leader.on_lost = on_lost
        return self.leader

    def leader_lost(self, leader: int) -> None:
        self.lost.append(leader)

    def flush(self, then: Callable[[], None]) -> bool:
        self.node.host.flush()
        return False


@asynccontextmanager
async def fetcher_setup() -> AsyncIterator[FetcherSetup]:
    made = FetcherSetup()
    try:
        yield made
    finally:
        await made.fetcher.close()


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def stamped(offset: int, epoch: int = 0) -> bytes:
    record = new_record(None, b"x", timestamp=NOW_MS)
    return build_batch([record], base_offset=offset, leader_epoch=epoch)


async def test_the_first_fetch_names_everything_and_the_next_only_what_changed() -> None:
    """KIP-227: incremental sessions; the first comes back at once so that a second may follow."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        first = it.leader.asked[0][1]
        assert (first.session_id, first.session_epoch, first.max_wait_ms) == (0, 0, 0)
        assert (first.replica_id, first.replica_epoch) == (2, 10)
        assert it.leader.questions() == {0: (0, 0)}
        it.leader.answer(FetchedPartition(0, records=stamped(0), high_watermark=0))
        await turns()
        second = it.leader.asked[1][1]
        assert (second.session_id, second.session_epoch, second.max_wait_ms) == (77, 1, 500)
        assert it.leader.questions() == {0: (0, 1)}
        it.leader.answer()
        await turns()
        assert (it.leader.asked[2][1].session_epoch, it.leader.questions()) == (2, {})


async def test_the_fetch_offset_is_only_what_is_flushed() -> None:
    """Its fetch offset is the proof: what it appended as another leader's follower is synced first."""
    async with fetcher_setup() as it:
        role: Any = it.partition.role
        role.append_fetched(memoryview(stamped(0)), leader_epoch=0, high_watermark=0, log_start_offset=0)
        it.node.host.dirty.clear()
        it.fetcher.follow(it.partition)
        await turns()
        assert it.partition.log.flushed_end_offset == 1
        assert it.leader.questions() == {0: (0, 1)}


async def test_a_partition_that_comes_during_a_long_poll_is_asked_for_at_once() -> None:
    """A second request goes behind the waiting request, and never a third."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        it.leader.answer()
        await turns()
        assert len(it.leader.asked) == 2
        it.fetcher.follow(it.lead(1))
        await turns()
        assert (len(it.leader.asked), it.leader.questions()) == (3, {0: (1, 0)})
        it.fetcher.follow(it.lead(2))
        await turns()
        assert len(it.leader.asked) == 3
        it.leader.answer(number=1)
        await turns()
        assert it.leader.questions() == {0: (2, 0)}


async def test_an_answer_to_a_superseded_question_is_dropped() -> None:
    """The leader epoch moved on while it was under way: its records are not appended."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        it.leader.answer()
        await turns()
        it.fetcher.follow(it.lead(1))
        await turns()
        it.leader.answer(FetchedPartition(0, records=stamped(0), high_watermark=1), number=1)
        assert it.partition.log_end_offset == 0
        it.leader.answer(FetchedPartition(0, records=stamped(0, 1), high_watermark=1), number=2)
        assert it.partition.log_end_offset == 1


async def test_an_answer_sent_before_the_offset_moved_is_not_appended_twice() -> None:
    """The request behind it did not repeat the partition, so the leader may send the same records again."""
    async with fetcher_setup() as it:
        other = ReplicaNode(2, it.registered).partition
        other.index = 1
        other.reconcile(PartitionState((1, 2), (1, 2), 1))
        it.fetcher.follow(it.partition)
        it.fetcher.follow(other)
        await turns()
        it.leader.answer()
        await turns()
        it.fetcher.unfollow(other)
        await turns()
        assert it.leader.asked[2][1].forgotten == [(TOPIC_ID, (1,))]
        again = FetchedPartition(0, records=stamped(0), high_watermark=0)
        it.leader.answer(again, number=1)
        it.leader.answer(again, number=2)
        await turns()
        assert it.partition.log_end_offset == 1
        assert it.leader.questions() == {0: (0, 1)}


async def test_a_refused_partition_is_left_out_for_a_while() -> None:
    """It leaves the session, where its error would be answered at once again and again, and returns after a while."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        it.leader.answer(FetchedPartition(0, error_code=6))
        await turns()
        assert it.leader.asked[1][1].forgotten == [(TOPIC_ID, (0,))]
        assert it.leader.questions(1) == {}
        while len(it.leader.asked) < 3:
            await asyncio.sleep(0.001)
        assert it.leader.questions() == {0: (0, 0)}


async def test_a_lost_session_begins_again_with_everything() -> None:
    """FETCH_SESSION_ID_NOT_FOUND: the leader restarted or dropped it."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        it.leader.answer()
        await turns()
        it.leader.answer(error=70, session=0)
        await turns()
        assert (it.leader.asked[2][1].session_id, it.leader.questions()) == (0, {0: (0, 0)})


async def test_a_lost_connection_is_made_again() -> None:
    """After a short backoff, with a session of its own."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        it.leader.answer()
        it.leader.close()
        while it.leader.connections < 2 or it.leader.asked[-1][1].session_id:
            await asyncio.sleep(0.001)
        assert (it.leader.asked[-1][1].session_id, it.leader.questions()) == (0, {0: (0, 0)})
        assert it.lost == [1]


async def test_hanging_up_ourselves_is_no_loss_of_the_leader() -> None:
    """Only a connection that the leader's side ended says something of the leader."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        it.leader.answer()
        it.fetcher.reconnect()
        while it.leader.connections < 2:
            await asyncio.sleep(0.001)
        assert it.lost == []


async def test_a_diverging_log_is_cut_and_asked_for_again() -> None:
    """KIP-595, with the epoch that remains."""
    async with fetcher_setup() as it:
        role: Any = it.partition.role
        for offset in (0, 1):
            role.append_fetched(
                memoryview(stamped(offset, 0)), leader_epoch=0, high_watermark=0, log_start_offset=0
            )
        it.fetcher.follow(it.lead(3))
        await turns()
        it.leader.answer(FetchedPartition(0, diverging_epoch=(0, 1)))  # type: ignore[arg-type]
        await turns()
        assert it.partition.log_end_offset == 1
        assert it.leader.questions() == {0: (3, 1)}


async def test_a_log_that_parted_before_the_leaders_log_start_begins_anew_there() -> None:
    """The leader's log start comes from its answer: neither 0 nor where this log begins is in its place."""
    async with fetcher_setup() as it:
        role: Any = it.partition.role
        for offset in range(6):
            role.append_fetched(
                memoryview(stamped(offset, 0)), leader_epoch=0, high_watermark=1, log_start_offset=1
            )
        assert it.partition.log_start_offset == 1
        it.fetcher.follow(it.lead(3))
        await turns()
        it.leader.answer(FetchedPartition(0, diverging_epoch=EpochEnd(0, 4), log_start_offset=4))
        await turns()
        assert (it.partition.log_start_offset, it.partition.log_end_offset) == (4, 4)
        assert it.leader.questions() == {0: (3, 4)}


async def test_a_corrupt_batch_is_asked_for_again_later() -> None:
    """The follower appends none of its records and goes on with the other partitions meanwhile."""
    async with fetcher_setup() as it:
        it.fetcher.follow(it.partition)
        await turns()
        bad = bytearray(stamped(0))
        bad[-1] ^= 1
        it.leader.answer(FetchedPartition(0, records=bytes(bad), high_watermark=0))
        await turns()
        assert it.partition.log_end_offset == 0
        assert it.leader.asked[1][1].forgotten == [(TOPIC_ID, (0,))]
