"""The three-node quorum in virtual time: one seed is one run, whatever the interpreter's hashes are."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.quorum.snapshot_generator import SnapshotPolicy
from raftlog_chaos.scenarios import SCENARIOS
from raftlog_chaos.scenarios.quorum_cluster import QuorumCluster
from raftlog_chaos.simulator import SimLoop, simulate

ENTRIES = 20
"""Entries between two snapshots: few, so that a node that was away needs a snapshot."""


async def scenario(loop: SimLoop) -> tuple[int, int]:
    """Elect, commit, lose the leader's power, elect again, outrun the lost node, take it back with a snapshot."""
    cluster = QuorumCluster(loop, 3, compaction=SnapshotPolicy(entries=ENTRIES))
    cluster.boot()
    first = await cluster.leader()
    await cluster.commit(b"before")
    cluster.crash(first)
    second = await cluster.leader(among=[node for node in cluster.hosts if node != first])
    assert second != first
    for number in range(4 * ENTRIES):
        await cluster.commit(b"away-%d" % number, *cluster.nodes)
    await cluster.until(lambda: cluster.hosts[second].disk.listdir("/data/quorum") != ["quorum.wal"])
    cluster.boot(first)
    await cluster.settle(b"after")
    assert cluster.machines[first].data == cluster.oracle.committed
    return first, len(cluster.oracle.leaders)


def test_a_node_that_was_away_comes_back_by_a_snapshot_after_an_election() -> None:
    """Raft §5.2 and §7, with power loss: all three machines hold everything that was ever committed."""
    run = simulate(scenario, seed=3)
    assert run.result[1] >= 2


def test_the_same_seed_elects_and_commits_the_same() -> None:
    """The quorum reads no real clock, no real randomness and no order of a set."""
    first, again, other = simulate(scenario, seed=3), simulate(scenario, seed=3), simulate(scenario, seed=4)
    assert first == again
    assert first.digest != other.digest


async def vote_and_lose_power(loop: SimLoop) -> None:
    """A voter for a candidate loses its power before the leader's first message, and then gets another candidate's
    request.
    """
    cluster = QuorumCluster(loop, 3)
    loop.network.latency_s = (0.03, 0.04)
    cluster.boot(1, 2)
    while not any(node.term for node in cluster.nodes.values()):
        await asyncio.sleep(0.001)
    leader = next(number for number, node in cluster.nodes.items() if node.term)
    voter = 3 - leader
    while not cluster.nodes[voter].term:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.045)  # the vote has arrived, the leader's first word has not
    cluster.crash(voter)
    for away in (voter, 3):
        loop.cut(cluster.hosts[leader], cluster.hosts[away])
    cluster.boot(voter, 3)
    leaders: dict[int, int] = {}
    for _ in range(300):
        await asyncio.sleep(0.01)
        for node in cluster.nodes.values():
            known = leaders.setdefault(node.term, node.leader_id) if node.leader_id else None
            assert known == node.leader_id, f"{known} and {node.leader_id} lead term {node.term}"
    loop.heal()
    await cluster.settle(b"after")


@pytest.mark.parametrize("seed", range(12))
def test_a_vote_outlives_a_power_loss(seed: int) -> None:
    """Raft §5.2: a node votes once in a term, so that no term has two leaders."""
    simulate(vote_and_lose_power, seed=seed)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("quorum", 3.0),
        ("quorum-calm", 3.0),
        ("quorum-hidden-minority", 3.0),
        ("quorum-rivals", 3.0),
        ("controller", 1.0),
    ],
)
def test_the_same_seed_is_the_same_run(name: str, seconds: float) -> None:
    """No set, no clock and no leftover of an earlier run has a say in it, and sound code passes."""
    first, again = (simulate(lambda loop: SCENARIOS[name](loop, seconds), seed=2) for _ in range(2))
    assert first == again
    assert first.result.acked > 0 and first.result.elections > 0


async def election(loop: SimLoop) -> int:
    """A short run: `test_hash_seeds` repeats it in other interpreters."""
    cluster = QuorumCluster(loop, 3)
    cluster.boot()
    await cluster.commit(b"one")
    cluster.crash(await cluster.leader())
    leader = await cluster.leader(among=cluster.nodes)
    await asyncio.sleep(1)
    return leader
