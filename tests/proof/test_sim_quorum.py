"""The three-node quorum in virtual time: one seed is one run, whatever the interpreter's hashes are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from raftlog.proof.simulator import SimLoop, simulate
from raftlog.quorum.compaction import Compaction
from tests.quorum.world import World

ENTRIES = 20
"""Entries between two snapshots: few, so that a node that was away needs one."""


async def story(loop: SimLoop) -> tuple[int, int]:
    """Elect, commit, lose the leader's power, elect again, outrun the lost node, take it back with a snapshot."""
    world = World(loop, 3, compaction=Compaction(entries=ENTRIES))
    world.boot()
    first = await world.leader()
    await world.commit(b"before")
    world.crash(first)
    second = await world.leader(among=[node for node in world.hosts if node != first])
    assert second != first
    for number in range(4 * ENTRIES):
        await world.commit(b"away-%d" % number, *world.nodes)
    await world.until(lambda: world.hosts[second].disk.listdir("/data/quorum") != ["quorum.wal"])
    world.boot(first)
    await world.settle(b"after")
    assert world.machines[first].data == world.oracle.committed
    return first, len(world.oracle.leaders)


def test_a_node_that_was_away_comes_back_by_a_snapshot_after_an_election() -> None:
    """Raft §5.2 and §7, with power loss: all three machines hold everything that was ever committed."""
    run = simulate(story, seed=3)
    assert run.result[1] >= 2


def test_the_same_seed_elects_and_commits_the_same() -> None:
    """Nothing of the quorum reads a real clock, real chance or the order of a set."""
    first, again, other = simulate(story, seed=3), simulate(story, seed=3), simulate(story, seed=4)
    assert first == again
    assert first.digest != other.digest


async def election(loop: SimLoop) -> int:
    """Short, for interpreters of their own."""
    world = World(loop, 3)
    world.boot()
    await world.commit(b"one")
    world.crash(await world.leader())
    leader = await world.leader(among=world.nodes)
    await asyncio.sleep(1)
    return leader


@pytest.mark.slow
def test_an_election_does_not_depend_on_hash_randomisation() -> None:
    """Equal digests across PYTHONHASHSEED, in fresh interpreters."""
    program = "from tests.proof.test_sim_quorum import *; print(simulate(election, seed=1).digest)"
    digests = set()
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        digests.add(done.stdout.splitlines()[-1])
    assert len(digests) == 1
