"""A share coordinator that cannot commit to its log, beside a sound one of the same broker (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from raftlog.base.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable
from raftlog.base.types import SHARE_GROUP_STATE_TOPIC
from raftlog.broker.coordination.shards import share_coordinator
from raftlog.broker.coordination.share_state_client import GRACE_S, ShareStateClient
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.coordinator.share_state.share_state_coordinator import ShareStateCoordinator
from raftlog.coordinator.share_state.share_state_requests import InitializeState, WriteState
from raftlog.sharing.delivery import StateWrite
from raftlog_chaos.simulator.cluster import SimCluster
from tests.node.share_members import TOPIC, context_of, run_scenario

ASKING, ASKED = 1, 2
WRITE_TIMEOUT_S = 2.0
"""Less than `offsets.commit.timeout.ms`, which bounds the commits of other coordinators."""


def coordinated_keys(cluster: SimCluster) -> Iterator[SharePartitionKey]:
    """Yield share partitions that one broker coordinates."""
    image = cluster.last_image()
    for number in range(1_000):
        key = SharePartitionKey(f"group{number}", image.topics[TOPIC].topic_id, 0)
        if share_coordinator(image, str(key)) == ASKED:
            yield key


def client_of(cluster: SimCluster) -> ShareStateClient:
    context = context_of(cluster, ASKING)
    return ShareStateClient(context, context.share_states.write)


async def write_one(cluster: SimCluster, key: SharePartitionKey, start_offset: int) -> None:
    await client_of(cluster).write(
        key, StateWrite(1, start_offset, (), 0, (), ()), state_epoch=1, leader_epoch=0
    )


def test_a_write_that_does_not_commit_fails_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator answers in time that it is not committed, so the broker that asks keeps its connection."""
    write = ShareStateCoordinator.write
    stuck: list[SharePartitionKey] = []

    def write_unless_stuck(
        coordinator: ShareStateCoordinator, request: WriteState, *args: Any, **options: Any
    ) -> None:
        if request.key not in stuck:
            write(coordinator, request, *args, **options)

    monkeypatch.setattr(ShareStateCoordinator, "write", write_unless_stuck)

    async def scenario(cluster: SimCluster) -> None:
        loop = asyncio.get_running_loop()
        asking, asked = cluster.nodes[ASKING].host, cluster.nodes[ASKED].host
        await asking.start(
            context_of(cluster, ASKING).share_states.find(SharePartitionKey("g", UUID(int=5), 0))
        )
        await cluster.until(
            lambda: SHARE_GROUP_STATE_TOPIC in cluster.last_image().topics, 10, "the topic of states"
        )
        keys = coordinated_keys(cluster)
        bad, good = next(keys), next(keys)
        for key in (bad, good):
            await asked.start(_initialize(cluster, key))
            await asking.start(client_of(cluster).read(key, leader_epoch=0))
        stuck.append(bad)
        began_at = loop.time()
        first = asking.start(write_one(cluster, bad, 1))
        await asyncio.sleep(WRITE_TIMEOUT_S / 2)
        second = asking.start(write_one(cluster, good, 2))
        with pytest.raises(CoordinatorNotAvailable):
            await first
        assert WRITE_TIMEOUT_S < loop.time() - began_at < WRITE_TIMEOUT_S + GRACE_S / 2
        await second

    run_scenario(scenario, settings={"share.coordinator.write.timeout.ms": str(int(WRITE_TIMEOUT_S * 1000))})


async def _initialize(cluster: SimCluster, key: SharePartitionKey) -> None:
    """Begin a state, once the coordinator has read its log."""
    for _ in range(100):
        try:
            return await context_of(cluster, ASKED).share_states.initialize(InitializeState(key, 1))
        except CoordinatorLoadInProgress:
            await asyncio.sleep(0.1)
