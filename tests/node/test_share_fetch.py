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
from raftlog_chaos.workloads.raw_client import FIND_COORDINATOR, PRODUCE, Client, shapes
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


def run_scenario(script: Callable[[SimCluster], Awaitable[None]], *, level: int = 1) -> None:
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
        simulate(program)


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
