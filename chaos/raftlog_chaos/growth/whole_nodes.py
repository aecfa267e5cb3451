"""Counts the steps of three whole nodes in the simulator: at rest, for a record, for a question about a topic.

Intervals are shorter than a production's, so that ten seconds hold each chore.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from raftlog.metadata.controller_api import CreateTopics, NewTopic
from raftlog_chaos.growth.steps import StepCounter
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.workloads.raw_client import FIND_COORDINATOR, METADATA, OFFSET_COMMIT, Client, shapes
from raftlog_chaos.workloads.simple import NotNow, SimpleClient

NODES: Final = 3
PER_TOPIC: Final = 10
TOPICS_AT_ONCE: Final = 100
SETTLED_S: Final = 25.0
"""After this all pending writes of the created objects are done, virtual seconds."""
REST_S: Final = 10.0
REQUESTS: Final = 20
SETTINGS: Final = {
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "10000",
    "log.flush.start.offset.checkpoint.interval.ms": "10000",
    "log.retention.check.interval.ms": "10000",
    "log.segment.bytes": "1073741824",
    "log.index.interval.bytes": "4096",
    "raftlog.group.max.groups": "100000",
}
COORDINATOR_NOT_YET: Final = (14, 15, 16)
CHECKPOINTS: Final = "offset_checkpoint._write_kept"
"""Names every log of a directory, away from the loop, as often as an interval says: no part of one record's cost."""


class NodeSteps(NamedTuple):
    """Steps of all three nodes together."""

    idle: float
    """In a second at rest, of each node."""
    record: float
    """For a record with acks=all, beyond rest."""
    metadata: float
    """For a Metadata request about one topic, beyond rest."""
    checkpoints: float
    """For the checkpoint files of all three nodes after a record."""


def count_nodes(*, partitions: int = PER_TOPIC, groups: int = 0) -> NodeSteps:
    """Count on a new cluster with so many partitions and groups. Only `checkpoints` has the steps for these files."""
    return simulate(lambda loop: _counted(loop, partitions, groups), seed=1).result


async def _counted(loop: SimLoop, partitions: int, groups: int) -> NodeSteps:
    cluster = SimCluster(loop, NODES, settings=SETTINGS)
    loop.observer = _ignore  # invariants look at every partition after each step
    cluster.start()
    await cluster.until_ready()
    await _create_topics(cluster, partitions // PER_TOPIC)
    client = Client("counted", cluster.bootstrap, timeout_s=30.0)
    simple = SimpleClient(client)
    if groups:
        await _commit_for(client, groups)
    await _produce(simple, 1)
    await _ask_metadata(client, 1)
    await asyncio.sleep(SETTLED_S)
    counter = StepCounter()
    with counter.counting():
        await asyncio.sleep(REST_S)
    idle = (counter.total - counter.steps[CHECKPOINTS]) / REST_S
    figures = []
    for work in (_produce(simple, REQUESTS), _ask_metadata(client, REQUESTS)):
        counter.clear()
        began_at = loop.time()
        with counter.counting():
            await work
            await asyncio.sleep(1.0)
        steps = counter.total - counter.steps[CHECKPOINTS]
        figures.append((steps - idle * (loop.time() - began_at)) / REQUESTS)
    counter.clear()
    with counter.counting():
        await _produce(simple, 1)
        await asyncio.sleep(REST_S)
    client.close()
    record, metadata = figures
    return NodeSteps(idle / NODES, record, metadata, counter.steps[CHECKPOINTS])


def _ignore(*_: Any) -> None:
    pass


async def _create_topics(cluster: SimCluster, topics: int) -> None:
    node = cluster.nodes[1].node
    assert node is not None

    async def create() -> None:
        for first in range(0, topics, TOPICS_AT_ONCE):
            names = range(first, min(first + TOPICS_AT_ONCE, topics))
            await node.control.submit(
                CreateTopics(tuple(NewTopic(f"topic-{each}", PER_TOPIC, NODES) for each in names)),
                timeout=60.0,
            )

    cluster.nodes[1].host.start(create())

    def are_there() -> bool:
        return all(
            each.node is not None
            and each.node.broker is not None
            and len(each.node.broker.replicas.partitions) >= topics * PER_TOPIC
            for each in cluster.nodes.values()
        )

    await cluster.until(are_there, 600.0, "every replica")


async def _produce(client: SimpleClient, records: int) -> None:
    for number in range(records):
        while True:
            try:
                await client.produce("topic-0", 0, b"%d" % number)
                break
            except NotNow:
                await asyncio.sleep(0.1)


async def _ask_metadata(client: Client, times: int) -> None:
    for _ in range(times):
        make = shapes(METADATA)
        topic = make.MetadataRequestTopic(topic_id=None, name="topic-0")
        await client.ask_any(
            METADATA,
            make.MetadataRequest(topics=(topic,), allow_auto_topic_creation=False),
        )


async def _commit_for(client: Client, groups: int) -> None:
    """Let groups without members commit an offset each: they exist from then on."""
    for number in range(groups):
        committed = False
        while not committed:
            committed = await _commit(client, f"group-{number}")
            await asyncio.sleep(0.0 if committed else 0.1)


async def _commit(client: Client, group: str) -> bool:
    find = shapes(FIND_COORDINATOR)
    found = await client.ask_any(FIND_COORDINATOR, find.FindCoordinatorRequest(key=group, key_type=0))
    if found.error_code:
        assert int(found.error_code) in COORDINATOR_NOT_YET, found
        return False
    make = shapes(OFFSET_COMMIT)
    partition = make.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    answer = await client.ask(
        (found.host, found.port),
        OFFSET_COMMIT,
        make.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(make.OffsetCommitRequestTopic(name="topic-0", partitions=(partition,)),),
        ),
    )
    return int(answer.topics[0].partitions[0].error_code) == 0
