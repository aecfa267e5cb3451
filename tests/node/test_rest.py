"""Wakings of idle nodes, in virtual time: they are the cost of a node at rest, whatever each does."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster
from raftlog_chaos.simulator.hosts import Process

SETTLE_S = 5.0
MEASURED_S = 20.0
CHECKPOINTS = (
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "replica.high.watermark.checkpoint.interval.ms",
)
"""Simulated nodes have them all the time, production has them seldom."""
SEEDS = (1, 2, 3, 4, 5)
"""Clocks of machines differ by chance, and so do the wakings that a machine can share with another."""
ONE_WAKING_S = 0.001
"""A process that did something so recently has not gone to sleep since."""


def wakings_per_second(nodes: int, seed: int) -> tuple[float, list[float]]:
    """Return how often the leader of a quorum at rest wakes up, and each of the others."""

    async def program(loop: SimLoop) -> tuple[float, list[float]]:
        cluster = SimCluster(loop, nodes, settings=dict.fromkeys(CHECKPOINTS, "60000"))
        cluster.start()
        await cluster.until_ready()
        await asyncio.sleep(SETTLE_S)
        ran_at: dict[str, float] = {}
        wakings: Counter[str] = Counter()

        def observe(process: Process) -> None:
            now = loop.time()
            wakings[process.name] += now - ran_at.get(process.name, 0.0) > ONE_WAKING_S
            ran_at[process.name] = now

        loop.observer = observe
        await asyncio.sleep(MEASURED_S)
        loop.observer = None
        leader = cluster.leader_id()
        assert leader is not None
        rates = {
            node_id: wakings[each.host.process.name] / MEASURED_S for node_id, each in cluster.nodes.items()
        }
        return rates.pop(leader), sorted(rates.values())

    return simulate(program, seed=seed).result


def test_a_node_alone_wakes_up_for_all_its_recurring_work_together() -> None:
    """The controller looks at its sessions four times a second; all else that recurs comes with that."""
    leader, _ = wakings_per_second(1, SEEDS[0])
    assert leader <= 4.5


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_at_rest_wake_up_for_the_quorums_heartbeats_and_hardly_for_anything_else(seed: int) -> None:
    """The leader sends eight a second, and its own work is due with them. A follower wakes up for its own as well. The
    answers and the brokers' heartbeats come by the clocks of other machines.
    """
    leader, others = wakings_per_second(3, seed)
    assert leader <= 13
    assert max(others) <= 15.5
