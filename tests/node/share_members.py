"""Members of a share group in a cluster of three nodes, with raw requests (KIP-932)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import UUID

import pytest

from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
from raftlog.controller import voters
from raftlog.metadata.controller_api import AlterConfigs, ConfigAlteration, ConfigOp, Request
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.records.batch import build_batch, new_record
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import PORT, SimCluster
from raftlog_chaos.workloads.producer import produce_request
from raftlog_chaos.workloads.raw_client import PRODUCE, Client
from raftlog_chaos.workloads.share_member import NEWEST, ShareMember
from raftlog_chaos.workloads.simple import SimpleClient

GROUP, TOPIC = "work", "t"
BATCH: Final = 5
"""Records of each batch in the log."""
LONGEST_S = 60.0


class Member(ShareMember):
    """A member of a share group, with a connection of its own to each broker."""

    def __init__(self, cluster: SimCluster, name: str, *, version: int = NEWEST) -> None:
        client = Client(name, cluster.bootstrap, timeout_s=5.0)
        super().__init__(client, name, (TOPIC, 0), group=GROUP, version=version)
        self.cluster = cluster
        self.leader = -1
        self.unknown = False
        """Whether it names a topic that no broker knows."""

    @property
    def topic_id(self) -> UUID:
        return UUID(int=99) if self.unknown else self.cluster.last_image().topics[TOPIC].topic_id

    @property
    def address(self) -> tuple[str, int]:
        return f"node{self.leader}", PORT

    def find_leader(self) -> None:
        """Begin a session with the leader of now."""
        state = self.cluster.state(TOPIC, 0)
        self.leader, self.epoch = -1 if state is None else state.leader, 0


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
    client, now_ms = Client("producer", cluster.bootstrap), cluster.nodes[1].host.wall_clock_ms()
    for number in range(count):
        values = [b"%d" % (number * BATCH + each) for each in range(BATCH)]
        batch = build_batch([new_record(None, each, timestamp=now_ms) for each in values])
        await client.refresh(TOPIC)
        answer = await client.ask_leader(
            TOPIC, index, PRODUCE, produce_request((TOPIC, index), batch, acks=-1)
        )
        assert int(answer.responses[0].partition_responses[0].error_code) == 0


def run_scenario(
    script: Callable[[SimCluster], Awaitable[None]],
    *,
    level: int = 1,
    seed: int = 0,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    async def program(loop: SimLoop) -> None:
        common = {"default.replication.factor": "3", "min.insync.replicas": "1"}
        cluster = SimCluster(loop, 3, settings={**common, **(settings or {})})
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


async def set_group_config(cluster: SimCluster, **values: str) -> None:
    """Set configs of the group, with _ for the dots, and wait until all brokers have them."""
    ops = tuple(ConfigOp(name.replace("_", "."), value) for name, value in values.items())
    await submit(cluster, AlterConfigs((ConfigAlteration("group", GROUP, ops),)))


async def submit(cluster: SimCluster, request: Request) -> None:
    """Have the controller carry out a request, and wait until all brokers know it."""
    node = cluster.nodes[1].node
    assert node is not None
    await cluster.nodes[1].host.start(node.control.submit(request))
    offset = cluster.last_image().offset
    await cluster.until(
        lambda: all(each.node and each.node.metadata.image.offset >= offset for each in cluster.running()),
        10,
        "all brokers know it",
    )


async def start(cluster: SimCluster, *names: str, version: int = NEWEST) -> list[Member]:
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
