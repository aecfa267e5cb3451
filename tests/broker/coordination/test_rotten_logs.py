"""Rot in the header of a batch that a coordinator reads back: it keeps its state, or it coordinates no group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.config import TopicConfig
from raftlog.base.errors import CoordinatorLoadInProgress, NotCoordinator
from raftlog.base.types import TopicPartition
from raftlog.records.header import HEADER_BYTES, iter_headers
from raftlog.replication.partition import Partition
from raftlog.storage.log import Log
from raftlog_chaos.simulator import SimLoop, simulate
from tests.broker.coordination.group_broker import OFFSETS_ID, PARTITIONS, GroupBroker, LoopHost
from tests.broker.coordination.test_group_coordinators import commit_of
from tests.broker.coordination.test_transaction_coordinators import T0, begin, end
from tests.broker.coordination.transaction_broker import TransactionBroker

PATIENCE_S = 1.0
STEPS_AT_MOST = 20_000
CONFIG = TopicConfig(segment_bytes=400)
"""So few that a segment holds three batches or so."""


class RottenLogHost(LoopHost):
    """A stand-in for the broker of a partition with a damaged log."""

    def log_damaged(self, partition: Partition) -> None:
        """Damage is not repaired."""


class GroupStory:
    """Commits of a group."""

    broker = GroupBroker

    async def write(self, node: Any) -> None:
        for offset in (5, 6, 7, 8):
            assert await node.groups.commit(commit_of(offset, topic=f"t{offset % 3}")) == (0,)

    async def read(self, node: Any) -> Any:
        return (await node.groups.read("g")).offsets


class TransactionStory:
    """Two transactions of an id."""

    broker = TransactionBroker

    async def write(self, node: Any) -> None:
        for commit in (True, False):
            await end(node, await begin(node, T0), commit=commit)

    async def read(self, node: Any) -> Any:
        return await node.transactions.read("x")


async def read_back(node: Any, story: Any) -> Any:
    """Return the coordinator's state after it has read its log back, None if it coordinates no group."""
    deadline = node.loop.time() + PATIENCE_S
    while node.loop.time() < deadline:
        try:
            return await story.read(node)
        except CoordinatorLoadInProgress:
            await node.pass_time(0.1)
        except NotCoordinator:
            return None
    raise AssertionError("the coordinator is loading for ever")


def open_again(node: Any, index: int, position: int) -> int:
    """Close a log, let a byte rot in a header of each older segment, and open it; returns how many rotted.

    A start after a clean stop checks the last segment only, so the coordinator is the first to read the others.
    """
    written = node.replicas.partitions[index].log
    written.close(clean=True)
    folder = f"/data/{node.topic}-{index}"
    paths = [f"{each.path}.log" for each in written.segments[:-1]]
    for path in paths:
        at = [at for at, _ in iter_headers(node.disk.read_file(path))][-1]
        node.disk.flip_bit(path, at + position, position % 8)
    log = Log.open(
        node.disk,
        folder,
        config=CONFIG,
        recovery_point=written.log_end_offset,
        clean=True,
        topic_id=OFFSETS_ID,
        now_ms=node.broker.env.wall_clock_ms(),
    )
    name, host = TopicPartition(node.topic, index), RottenLogHost(node.loop)
    node.replicas.partitions[index] = Partition(name, OFFSETS_ID, log=log, host=host)
    return len(paths)


@pytest.mark.parametrize("story", [GroupStory(), TransactionStory()], ids=lambda each: type(each).__name__)
def test_a_rotten_header_misleads_no_coordinator(story: Any) -> None:
    """Kafka's coordinators believe headers: a flag would have commits passed over as a marker of a transaction."""
    unread = []

    async def program(loop: SimLoop, position: int) -> None:
        loop.max_steps = STEPS_AT_MOST

        async def life() -> None:
            node = story.broker(host)
            await asyncio.sleep(0.1)
            for partition in node.replicas.partitions.values():
                partition.log.config = CONFIG
            await story.write(node)
            before = await story.read(node)
            node.publish(leader=2)
            assert sum(open_again(node, index, position) for index in range(PARTITIONS))
            node.publish(leader=1)
            after = await read_back(node, story)
            assert after in (None, before), f"byte {position} rotted"
            if after is None:
                unread.append(position)

        host = loop.host("b1")
        await host.start(life())

    for position in range(HEADER_BYTES):
        simulate(lambda loop, position=position: program(loop, position))  # type: ignore[misc]
    assert len(unread) == HEADER_BYTES, "no byte of a header may rot unseen"
