"""Members of a share group in a cluster of three nodes, with raw requests (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final
from uuid import UUID

import pytest

from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.controller import voters
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import build_batch, new_record
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
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
        message = self.fetch_request(*acks, epoch=self.epoch if epoch is None else epoch, **fields)
        answer = await self.ask(FETCH, message)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    def fetch_request(self, *acks: tuple[int, int, list[int]], epoch: int, **fields: Any) -> Any:
        """Return a request for three records of the partition, with some fields changed."""
        make = request_builders(FETCH, self.version)
        partition = make.FetchPartition(partition_index=0, acknowledgement_batches=_batches(make, acks))
        topic = make.FetchTopic(topic_id=self.topic_id, partitions=(partition,))
        if self.version > 1:
            fields = {"share_acquire_mode": 1} | fields
        usual = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 3, "batch_size": 3}
        given = usual | {"group_id": GROUP, "topics": (topic,)} | fields
        return make.ShareFetchRequest(member_id=self.name, share_session_epoch=epoch, **given)

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


async def produce(cluster: SimCluster, count: int, *, index: int = 0) -> None:
    """Append batches of BATCH records."""
    client = Client("producer", cluster.bootstrap)
    for number in range(count):
        values = [b"%d" % (number * BATCH + each) for each in range(BATCH)]
        batch = build_batch([new_record(None, each, timestamp=-1) for each in values])
        await client.refresh(TOPIC)
        answer = await client.ask_leader(
            TOPIC, index, PRODUCE, produce_request((TOPIC, index), batch, acks=-1)
        )
        assert int(answer.responses[0].partition_responses[0].error_code) == 0


def run_scenario(
    script: Callable[[SimCluster], Awaitable[None]], *, level: int = 1, seed: int = 0, partitions: int = 1
) -> None:
    async def program(loop: SimLoop) -> None:
        cluster = SimCluster(
            loop, 3, settings={"default.replication.factor": "3", "min.insync.replicas": "1"}
        )
        cluster.start()
        await cluster.until_ready()

        async def life() -> None:
            await SimpleClient(Client("admin", cluster.bootstrap)).create_topic(TOPIC, partitions=partitions)
            await cluster.until(lambda: cluster.state(TOPIC, 0) is not None, 10, "the topic")
            await script(cluster)

        await loop.host("client").start(life())
        cluster.check()

    with pytest.MonkeyPatch.context() as patch:
        if level == 0:
            patch.setattr(voters, "BEGUN_HIGHEST", (RAFTLOG_METADATA_VERSION,))
        simulate(program, seed=seed)


async def start(cluster: SimCluster, *names: str, version: int = VERSION) -> list[Member]:
    """Return members that have opened their sessions at the end of the log."""
    members = [Member(cluster, name, version=version) for name in names]
    for each in members:
        await each.join()
        each.find_leader()
        assert acquired(await each.fetch()) == []
    return members


def code_of(answer: Any) -> int:
    """Return the error of the partition that a ShareAcknowledge names."""
    return int(partition_of(answer).error_code)
