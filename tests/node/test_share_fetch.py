"""ShareFetch and ShareAcknowledge in a cluster of three nodes, through raw requests (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from uuid import UUID

import pytest

from raftlog.base.errors import (
    GroupAuthorizationFailed,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnsupportedVersion,
)
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.metadata import features
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
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
        self.unknown = False
        """Whether it names a topic that no broker knows."""

    @property
    def topic_id(self) -> Any:
        return UUID(int=99) if self.unknown else self.cluster.last_image().topics[TOPIC].topic_id

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


def context_of(cluster: SimCluster, node_id: int) -> BrokerContext:
    node = cluster.nodes[node_id].node
    assert node is not None and node.broker is not None
    return node.broker.context


def share_partitions(cluster: SimCluster, node_id: int) -> LedSharePartitions:
    return context_of(cluster, node_id).share_partitions


def deny(cluster: SimCluster, node_id: int, resource_type: ResourceType, name: str) -> None:
    """Deny all clients of a node to read a resource."""
    context = context_of(cluster, node_id)
    if context.authorizer is None:
        context.authorizer = Authorizer(super_users=(), allow_if_no_rule=True)
    acl = Acl(resource_type, name, PatternType.LITERAL, "User:*", "*", Operation.READ, Permission.DENY)
    context.authorizer.change(added=[acl], removed=[])


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


def code_of(answer: Any) -> int:
    """Return the error of the partition that a ShareAcknowledge names."""
    return int(partition_of(answer).error_code)


def test_sessions_have_epochs() -> None:
    """122 without a session, 123 for another epoch, 42 for acknowledgements that open one, and 133 for one too many."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        b = Member(cluster, "b")
        b.find_leader()
        assert (await b.fetch(epoch=1)).error_code == ShareSessionNotFound.code
        assert (await b.acknowledge(epoch=1)).error_code == ShareSessionNotFound.code
        assert (await b.acknowledge(epoch=0)).error_code == InvalidShareSessionEpoch.code
        assert (await b.fetch((0, 0, [ACCEPT]), epoch=0)).error_code == InvalidRequest.code
        assert (await a.fetch(epoch=2)).error_code == InvalidShareSessionEpoch.code
        assert (await a.acknowledge(epoch=7)).error_code == InvalidShareSessionEpoch.code
        sessions = share_partitions(cluster, a.leader).sessions
        sessions.most = 1
        assert (await b.fetch(epoch=0)).error_code == ShareSessionLimitReached.code
        assert (await a.acknowledge(epoch=-1)).error_code == 0
        assert (await a.acknowledge(epoch=1)).error_code == ShareSessionNotFound.code
        assert acquired(await b.fetch()) == [] and len(sessions) == 1
        b.name = ""
        assert (await b.fetch(epoch=0)).error_code == InvalidRequest.code

    run_scenario(scenario)


def test_acknowledgements_are_checked() -> None:
    """42 for what is malformed or was never fetched, 121 for what the member does not hold; nothing of it counts."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 2)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        for acks in (
            [(0, 0, [RENEW])],
            [(0, 0, [5])],
            [(0, 0, [-1])],
            [(0, 0, [])],
            [(1, 0, [ACCEPT])],
            [(0, 2, [ACCEPT, ACCEPT])],
            [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
            [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
            [(0, 9, [ACCEPT])],
        ):
            assert code_of(await a.acknowledge(*acks)) == InvalidRequest.code, acks
        assert code_of(await b.acknowledge((0, 0, [ACCEPT]))) == InvalidRecordState.code
        assert code_of(await a.acknowledge((0, 2, [ACCEPT]))) == 0
        answer = await a.fetch((0, 9, [ACCEPT]))
        assert partition_of(answer).acknowledge_error_code == InvalidRequest.code
        assert acquired(answer) == [(3, 5, 1)]

    run_scenario(scenario)


def test_the_end_of_a_session_gives_up_its_records() -> None:
    """The final epoch and the end of a connection give up what the member has not acknowledged."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 2)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        answer = await a.fetch((0, 0, [ACCEPT]), epoch=-1)
        assert partition_of(answer).acknowledge_error_code == 0 and acquired(answer) == []
        assert acquired(await b.fetch(max_records=2)) == [(1, 2, 2)]
        b.client.close()
        a.epoch = 0
        assert acquired(await a.fetch(max_wait=4_000, max_records=2)) == [(1, 2, 3)]
        assert code_of(await a.acknowledge((1, 2, [ACCEPT]))) == 0
        waiting = asyncio.ensure_future(a.fetch(max_wait=4_000, min_bytes=1 << 20))
        await asyncio.sleep(0.5)
        a.client.close()
        with pytest.raises(AWAY):
            await waiting
        await asyncio.sleep(0.1)
        assert len(share_partitions(cluster, a.leader).sessions) == 0
        assert share_partitions(cluster, a.leader).watched == 0
        replica = cluster.replica(a.leader, TOPIC, 0)
        assert replica is not None and not replica.waiting_consumers

    run_scenario(scenario)


def test_a_fetch_waits_for_records() -> None:
    """It waits for new records, for records that another member gives up, and for MinBytes until MaxWaitMs."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        waiting = asyncio.ensure_future(a.fetch(max_wait=4_000))
        await asyncio.sleep(1.0)
        await produce(cluster, 1)
        assert acquired(await waiting) == [(0, 2, 1)] and loop.time() - began_at < 2.0
        assert acquired(await b.fetch()) == [(3, 4, 1)]
        waiting = asyncio.ensure_future(b.fetch(max_wait=4_000))
        await asyncio.sleep(0.5)
        began_at = loop.time()
        assert code_of(await a.acknowledge((0, 2, [RELEASE]))) == 0
        assert acquired(await waiting) == [(0, 2, 2)] and loop.time() - began_at < 1.0
        await produce(cluster, 1)
        began_at = loop.time()
        assert acquired(await a.fetch(max_wait=3_000, min_bytes=1 << 20)) == [(5, 7, 1)]
        assert loop.time() - began_at >= 3.0
        began_at = loop.time()
        assert acquired(await a.fetch(max_wait=3_000, max_records=0)) == []
        assert loop.time() - began_at >= 3.0

    run_scenario(scenario)


def test_max_records_is_exact_in_mode_1() -> None:
    """Mode 0 ends where record batches end, and is split by BatchSize; mode 1 has MaxRecords and not one more."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        await produce(cluster, 6)
        assert (await a.fetch(share_acquire_mode=2, epoch=1)).error_code == InvalidRequest.code
        assert acquired(await a.fetch(share_acquire_mode=0)) == [(0, 4, 1)]
        answer = await a.fetch(share_acquire_mode=0, max_records=12, batch_size=5)
        assert acquired(answer) == [(5, 9, 1), (10, 14, 1), (15, 19, 1)]
        headers = iter_headers(memoryview(partition_of(answer).records))
        assert [each.base_offset for _, each in headers] == [5, 10, 15]
        assert acquired(await a.fetch(max_records=6, batch_size=2)) == [(20, 25, 1)]

    run_scenario(scenario)


def test_locks_are_renewed() -> None:
    """A lock that is renewed lasts longer; the others' records go to another member (KIP-1222)."""

    async def scenario(cluster: SimCluster) -> None:
        a, b = await start(cluster, "a", "b")
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 2, 1)]
        await asyncio.sleep(20.0)
        assert code_of(await a.acknowledge((0, 0, [RENEW]), is_renew_ack=True)) == 0
        refused = await a.fetch((0, 0, [RENEW]), is_renew_ack=True, epoch=a.epoch)
        assert refused.error_code == InvalidRequest.code
        nothing = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        answer = await a.fetch((1, 1, [RENEW]), is_renew_ack=True, **nothing)
        assert partition_of(answer).acknowledge_error_code == 0 and acquired(answer) == []
        await asyncio.sleep(15.0)
        assert acquired(await b.fetch(max_records=5)) == [(2, 2, 2), (3, 4, 1)]
        assert code_of(await a.acknowledge((0, 1, [ACCEPT]))) == 0

    run_scenario(scenario)


def test_version_1_has_no_modes() -> None:
    """Without modes and renewals: a whole batch is acquired, and type 4 is unknown."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a", version=1)
        await produce(cluster, 1)
        assert acquired(await a.fetch()) == [(0, 4, 1)]
        assert code_of(await a.acknowledge((0, 0, [RENEW]))) == InvalidRequest.code
        assert code_of(await a.acknowledge((0, 4, [ACCEPT]))) == 0

    run_scenario(scenario)


def test_rights_and_topics() -> None:
    """READ on the group, and READ on each topic; a topic id that is unknown is an error of its own."""

    async def scenario(cluster: SimCluster) -> None:
        (a,) = await start(cluster, "a")
        a.unknown = True
        assert code_of(await a.acknowledge((0, 0, [ACCEPT]))) == UnknownTopicId.code
        answer = await a.fetch((0, 0, [ACCEPT]))
        errors = {
            (each.error_code, each.acknowledge_error_code)
            for it in answer.responses
            for each in it.partitions
        }
        assert errors == {(UnknownTopicId.code, UnknownTopicId.code)}
        a.unknown = False
        deny(cluster, a.leader, ResourceType.TOPIC, TOPIC)
        assert code_of(await a.acknowledge((0, 0, [ACCEPT]))) == TopicAuthorizationFailed.code
        answer = await a.fetch((0, 0, [ACCEPT]))
        codes = [
            (each.error_code, each.acknowledge_error_code)
            for it in answer.responses
            for each in it.partitions
            if it.topic_id == a.topic_id
        ]
        assert codes == [(TopicAuthorizationFailed.code,) * 2]
        deny(cluster, a.leader, ResourceType.GROUP, GROUP)
        assert (await a.fetch()).error_code == GroupAuthorizationFailed.code
        assert (await a.acknowledge()).error_code == GroupAuthorizationFailed.code

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
