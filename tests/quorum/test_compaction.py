"""Claims about when a voter takes a snapshot (metadata.log.max.record.bytes.between.snapshots and …interval.ms)."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from tests.quorum.test_quorum import run_scenario

NEVER = SnapshotPolicy(entries=1_000_000, size_bytes=1 << 40, interval_s=0)


def snapshots(cluster: QuorumCluster, node: int = 1) -> list[int]:
    """Return the indexes at which a voter's snapshots are."""
    return cluster.nodes[node].driver.journal.snapshot_files.indexes()


async def append(cluster: QuorumCluster, count: int, size: int = 10) -> None:
    for _ in range(count):
        await cluster.commit(b"%d%s" % (len(cluster.oracle.committed), b"." * size), 1)


async def pass_time(cluster: QuorumCluster, seconds: float) -> None:
    """Let virtual time pass."""
    end = cluster.loop.time() + seconds
    while cluster.loop.time() < end:
        await asyncio.sleep(1)


@pytest.mark.parametrize("voters", [1, 3])
def test_a_snapshot_is_taken_after_so_many_bytes_of_records(voters: int) -> None:
    """Counted from the last snapshot on, also where the log was not cut yet."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.leader()
        await append(cluster, 9, 1_000)
        assert snapshots(cluster) == []
        await append(cluster, 3, 1_000)
        await cluster.until(lambda: snapshots(cluster))
        (first,) = snapshots(cluster)
        await append(cluster, 5, 1_000)
        assert snapshots(cluster) == [first]
        await append(cluster, 7, 1_000)
        await cluster.until(lambda: snapshots(cluster)[-1] > first)

    run_scenario(script, voters, compaction=NEVER._replace(size_bytes=10_000))


@pytest.mark.parametrize("voters", [1, 3])
def test_what_is_new_is_in_a_snapshot_after_the_interval_and_nothing_else_makes_one(voters: int) -> None:
    """Also in an idle quorum; without changes there is no new snapshot."""

    async def script(cluster: QuorumCluster) -> None:
        await cluster.leader()
        await append(cluster, 3)
        await pass_time(cluster, 50)
        assert snapshots(cluster) == []
        await pass_time(cluster, 20)
        (first,) = snapshots(cluster)
        await pass_time(cluster, 200)
        assert snapshots(cluster) == [first]
        await append(cluster, 1)
        await pass_time(cluster, 70)
        assert snapshots(cluster)[-1] > first

    run_scenario(script, voters, compaction=NEVER._replace(interval_s=60))


def test_zero_means_never_by_time() -> None:
    """As Kafka's."""

    async def script(cluster: QuorumCluster) -> None:
        await append(cluster, 3)
        await pass_time(cluster, 3_000)
        assert snapshots(cluster) == []

    run_scenario(script, 1, compaction=NEVER)
