"""What members of a share group are promised when the leader of their partition dies (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from raftlog.base.errors import (
    InvalidRecordState,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.workloads.raw_client import AWAY, Client, delete_topic
from raftlog_chaos.workloads.share_member import ACCEPT, RELEASE
from tests.node.share_members import (
    BATCH,
    LONGEST_S,
    TOPIC,
    Member,
    acquired,
    partition_of,
    produce,
    run_scenario,
    share_partitions,
    start,
)


def test_a_fetch_that_waits_hears_of_the_next_leader() -> None:
    """A broker that stops moves its leaderships on; a fetch there ends with the leader and its address."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        waiting = asyncio.ensure_future(a.fetch(max_wait=4_500))
        await asyncio.sleep(0.5)
        cluster.leave(a.leader)
        partition = partition_of(answer := await waiting)
        assert partition.error_code == NotLeaderOrFollower.code
        state = cluster.state(TOPIC, 0)
        assert state is not None and partition.current_leader.leader_id == state.leader != a.leader
        assert partition.current_leader.leader_epoch == state.leader_epoch
        assert [each.node_id for each in answer.node_endpoints] == [state.leader]

    run_scenario(scenario)


def test_share_partitions_end_with_their_topic() -> None:
    """A fetch that waits is answered, and the broker drops the share partition."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        held = share_partitions(cluster, a.leader)
        assert len(held) == 1
        waiting = asyncio.ensure_future(a.fetch(max_wait=4_500))
        await asyncio.sleep(0.5)
        await delete_topic(Client("admin", cluster.bootstrap), TOPIC)
        answer = await waiting
        codes = [each.error_code for it in answer.responses for each in it.partitions]
        assert codes and codes[0] in (UnknownTopicId.code, UnknownTopicOrPartition.code)
        assert len(held) == 0 and held.watched == 0

    run_scenario(scenario)


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


def test_a_group_without_members_begins_where_its_offsets_are_set() -> None:
    """AlterShareGroupOffsets: the leader has no change to write, and reads the state again when a member comes."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await produce(cluster, 1)
        assert acquired(await a.fetch(max_records=5)) == [(0, 4, 1)]
        assert partition_of(await a.acknowledge((0, 4, [ACCEPT]))).error_code == 0
        await a.leave()
        assert (await a.fetch(epoch=-1)).error_code == 0
        await a.alter_offset(2)
        a.epoch = 0
        assert acquired(await a.fetch()) == [(2, 4, 1)]

    run_scenario(scenario)
