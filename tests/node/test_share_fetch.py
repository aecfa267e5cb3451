"""ShareFetch and ShareAcknowledge in a cluster of three nodes, through raw requests (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import pytest

from raftlog.base.errors import (
    InvalidRecordState,
    UnsupportedVersion,
)
from raftlog.metadata import features
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import build_batch, iter_records, new_record
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import PORT, SimCluster
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import AWAY, FIND_COORDINATOR, PRODUCE, Client, shapes
from raftlog_chaos.workloads.simple import SimpleClient

GROUP, TOPIC = "work", "t"
VERSION: Final = 2
FETCH, ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
BATCH = 5
"""Records of each batch in the log."""
LONGEST_S = 60.0


class Member:
    """A member of a share group, with a connection of its own to each broker."""

    def __init__(self, cluster: SimCluster, name: str, *, version: int = VERSION) -> None:
        self.cluster = cluster
        self.name = name
        self.version = version
        self.client = Client(name, cluster.bootstrap, timeout_s=5.0)
        self.epoch = 0
        self.leader = -1

    @property
    def topic_id(self) -> Any:
        return self.cluster.last_image().topics[TOPIC].topic_id

    async def join(self) -> None:
        """Send heartbeats to the group's coordinator until this member has its partition."""
        make = request_builders(ApiKey.SHARE_GROUP_HEARTBEAT, 1)
        epoch = 0
        while True:
            message = make.ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.name,
                member_epoch=epoch,
                subscribed_topic_names=(TOPIC,) if epoch == 0 else None,
            )
            where = await self.client.ask_any(
                FIND_COORDINATOR, shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=GROUP, key_type=0)
            )
            if where.error_code == 0:
                address = where.host, where.port
                beat = await self.client.ask(address, ApiKey.SHARE_GROUP_HEARTBEAT, message, version=1)
                if beat.error_code == 0:
                    epoch = beat.member_epoch
                    if beat.assignment is not None and beat.assignment.topic_partitions:
                        return
            await asyncio.sleep(0.5)

    async def ask(self, api_key: int, message: Any) -> Any:
        """Send a request to the leader that this member knows."""
        return await self.client.ask((f"node{self.leader}", PORT), api_key, message, version=self.version)

    def find_leader(self) -> None:
        """Begin a session with the leader of now."""
        state = self.cluster.state(TOPIC, 0)
        self.leader, self.epoch = -1 if state is None else state.leader, 0

    async def fetch(self, *acks: tuple[int, int, list[int]], epoch: int | None = None, **fields: Any) -> Any:
        """Fetch with acknowledgements; return the response."""
        make = request_builders(FETCH, self.version)
        partition = make.FetchPartition(partition_index=0, acknowledgement_batches=_batches(make, acks))
        topic = make.FetchTopic(topic_id=self.topic_id, partitions=(partition,))
        given: dict[str, Any] = {
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 3,
            "batch_size": 3,
        }
        given |= {"share_acquire_mode": 1, "topics": (topic,)} | fields
        message = make.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            **{
                name: value
                for name, value in given.items()
                if self.version > 1 or name != "share_acquire_mode"
            },
        )
        answer = await self.ask(FETCH, message)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    async def acknowledge(
        self, *acks: tuple[int, int, list[int]], epoch: int | None = None, **fields: Any
    ) -> Any:
        make = request_builders(ACKNOWLEDGE, self.version)
        partition = make.AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(make, acks))
        topic = make.AcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,))
        message = make.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=(topic,),
            **fields,
        )
        answer = await self.ask(ACKNOWLEDGE, message)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer


def _batches(make: Any, acks: Iterable[tuple[int, int, list[int]]]) -> tuple[Any, ...]:
    return tuple(
        make.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
        for first, last, types in acks
    )


def partition_of(answer: Any) -> Any:
    assert answer.error_code == 0, answer
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """Return the offsets that a response locks, with their delivery counts."""
    assert answer.error_code == 0, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


async def produce(cluster: SimCluster, count: int) -> None:
    """Append batches of BATCH records."""
    client = Client("producer", cluster.bootstrap)
    for number in range(count):
        values = [b"%d" % (number * BATCH + each) for each in range(BATCH)]
        batch = build_batch([new_record(None, each, timestamp=-1) for each in values])
        await client.refresh(TOPIC)
        answer = await client.ask_leader(TOPIC, 0, PRODUCE, produce_request((TOPIC, 0), batch, acks=-1))
        assert int(answer.responses[0].partition_responses[0].error_code) == 0


def run_scenario(script: Callable[[SimCluster], Awaitable[None]], *, level: int = 1, seed: int = 0) -> None:
    async def program(loop: SimLoop) -> None:
        cluster = SimCluster(
            loop, 3, settings={"default.replication.factor": "3", "min.insync.replicas": "1"}
        )
        cluster.start()
        await cluster.until_ready()

        async def life() -> None:
            await SimpleClient(Client("admin", cluster.bootstrap)).create_topic(TOPIC)
            await cluster.until(lambda: cluster.state(TOPIC, 0) is not None, 10, "the topic")
            await script(cluster)

        await loop.host("client").start(life())
        cluster.check()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(features._INITIAL, features.SHARE_VERSION, level)
        simulate(program, seed=seed)


async def start(cluster: SimCluster, *names: str, version: int = VERSION) -> list[Member]:
    """Return members that have opened their sessions at the end of the log."""
    members = [Member(cluster, name, version=version) for name in names]
    for each in members:
        await each.join()
        each.find_leader()
        assert acquired(await each.fetch()) == []
    return members


def test_a_member_fetches_and_acknowledges() -> None:
    """Records come once, with their delivery counts; what is released comes again, and accepted records do not."""

    async def scenario(cluster: SimCluster) -> None:
        (a, b) = await start(cluster, "a", "b")
        await produce(cluster, 2)
        answer = await a.fetch()
        assert acquired(answer) == [(0, 2, 1)] and answer.acquisition_lock_timeout == 30_000
        values = [each.value for each in iter_records(memoryview(partition_of(answer).records))]
        assert values == [b"0", b"1", b"2", b"3", b"4"]
        assert acquired(await b.fetch()) == [(3, 5, 1)]
        assert partition_of(await a.acknowledge((0, 1, [ACCEPT]), (2, 2, [RELEASE]))).error_code == 0
        answer = await b.fetch((3, 5, [ACCEPT, REJECT, ACCEPT]))
        assert partition_of(answer).acknowledge_error_code == 0
        assert acquired(answer) == [(2, 2, 2), (6, 7, 1)]
        assert partition_of(await a.acknowledge((2, 2, [ACCEPT]))).error_code == InvalidRecordState.code

    run_scenario(scenario)


def test_off_at_level_0() -> None:
    """share.version 0: UNSUPPORTED_VERSION."""

    async def scenario(cluster: SimCluster) -> None:
        member = Member(cluster, "a")
        member.find_leader()
        assert (await member.fetch()).error_code == UnsupportedVersion.code
        assert (await member.acknowledge(epoch=1)).error_code == UnsupportedVersion.code

    run_scenario(scenario, level=0)


class Watched:
    """The answers about each record that the members of a group had. It raises on the first broken promise."""

    def __init__(self) -> None:
        self.accepted: dict[int, str] = {}
        """The offsets that were answered as accepted, with the member."""
        self.doubtful: set[int] = set()
        """The offsets that a member accepted without an answer: they may be written or not."""
        self.deliveries = 0
        self.again = 0
        """Deliveries of records that were delivered before."""
        self._counts: dict[int, tuple[int, int]] = {}
        """The leader and the count of each offset's last delivery."""
        self._released: dict[int, int] = {}
        """The delivery counts that were written with a release."""

    def delivered(self, offset: int, count: int, *, leader_epoch: int) -> None:
        self.deliveries += 1
        assert offset not in self.accepted, f"{offset} was accepted by {self.accepted[offset]}"
        assert count > self._released.get(offset, 0), f"{offset}: a written delivery count was lost"
        former, last = self._counts.get(offset, (-1, 0))
        assert former != leader_epoch or count > last, f"{offset}: delivered twice for the {count}th time"
        self.again += former >= 0
        self._counts[offset] = leader_epoch, count

    def answered(self, offset: int, kind: int, count: int, member: str) -> None:
        if kind == ACCEPT:
            assert offset not in self.accepted, f"{offset} was accepted twice"
            self.accepted[offset] = member
        else:
            self._released[offset] = max(count, self._released.get(offset, 0))


class Worker:
    """A member that fetches three records at a time, accepts most, and releases some at their first delivery."""

    def __init__(self, member: Member, watched: Watched) -> None:
        self.member = member
        self.watched = watched
        self.leader_epoch = -1

    async def work(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._turn()
            except AWAY:
                self.member.leader = -1
            if self.member.leader < 0:
                await asyncio.sleep(0.3)
                self._look_up()

    def _look_up(self) -> None:
        state = self.member.cluster.state(TOPIC, 0)
        self.member.find_leader()
        self.leader_epoch = -1 if state is None else state.leader_epoch

    async def _turn(self) -> None:
        if self.member.leader < 0:
            return
        answer = await self.member.fetch()
        if answer.error_code or any(each.error_code for it in answer.responses for each in it.partitions):
            self.member.leader = -1
            return
        for first, last, count in acquired(answer):
            for offset in range(first, last + 1):
                self.watched.delivered(offset, count, leader_epoch=self.leader_epoch)
        for first, last, count in acquired(answer):
            kinds = [RELEASE if each % 4 == 1 and count == 1 else ACCEPT for each in range(first, last + 1)]
            await self._say(first, kinds, count)

    async def _say(self, first: int, kinds: list[int], count: int) -> None:
        accepts = {first + each for each, kind in enumerate(kinds) if kind == ACCEPT}
        self.watched.doubtful |= accepts
        answer = await self.member.acknowledge((first, first + len(kinds) - 1, kinds))
        if answer.error_code or (error_code := partition_of(answer).error_code):
            self.member.leader = -1
            if not answer.error_code and error_code == InvalidRecordState.code:
                self.watched.doubtful -= accepts
            return
        for offset, kind in enumerate(kinds, first):
            self.watched.answered(offset, kind, count, self.member.name)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_accepted_outlives_the_leader(seed: int) -> None:
    """Three members; the leader dies amid acknowledgements. What was accepted never comes again, all else does."""
    count = 24 * BATCH

    async def scenario(cluster: SimCluster) -> None:
        members, watched = await start(cluster, "a", "b", "c"), Watched()
        await produce(cluster, count // BATCH)
        leader = members[0].leader
        loop, until = asyncio.get_running_loop(), asyncio.get_running_loop().time() + LONGEST_S * 3
        workers = [Worker(each, watched) for each in members]
        over = asyncio.Event()
        for each in workers:
            each._look_up()
        tasks = [loop.create_task(each.work(over.is_set)) for each in workers]
        await cluster.until(lambda: len(watched.accepted) >= count // 4, LONGEST_S, "some are accepted")
        assert len(watched.accepted) < count
        cluster.crash(leader)
        await asyncio.sleep(20.0)
        cluster.restart(leader)
        settled = watched.accepted.keys() | watched.doubtful
        while loop.time() < until and len(settled) < count:
            await asyncio.sleep(1.0)
            settled = watched.accepted.keys() | watched.doubtful
        await asyncio.sleep(40.0)  # longer than a lock
        over.set()
        await asyncio.gather(*tasks)
        assert watched.accepted.keys() | watched.doubtful == set(range(count))
        assert len(watched.accepted) >= count - 9, "at most what three members held has no answer"
        assert watched.again > 0

    run_scenario(scenario, seed=seed)
