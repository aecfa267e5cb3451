"""The whole quorum under seeded faults, in virtual time."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.quorum.world import World

from raftlog.proof.simulator import SimLoop, simulate
from raftlog.quorum import seams
from raftlog.quorum.compaction import Compaction


async def storm(loop: SimLoop, voters: int, rounds: int) -> str:
    """Crash, pause, cut and clog at random while batches are appended; then heal, and hold all to the oracle."""
    world = World(loop, voters, compaction=Compaction(entries=40))
    chance = random.Random(loop.stream("storm").random())
    world.boot()
    number = 0
    down: set[int] = set()
    paused: set[int] = set()
    for _ in range(rounds):
        for _ in range(chance.randrange(0, 40)):
            number += 1
            world.append(b"%d" % number, chance.choice([None, *world.nodes]))
        await asyncio.sleep(chance.choice([0.0, 0.005, 0.05, 0.5, 1.5]))
        node, other = chance.sample(sorted(world.hosts), 2)
        fault = chance.randrange(9)
        if fault == 0 and node not in down:
            world.crash(node, power_loss=chance.random() < 0.8)
            down.add(node)
            paused.discard(node)
        elif fault == 1 and down:
            world.boot(back := chance.choice(sorted(down)))
            down.discard(back)
        elif fault == 2 and node not in down | paused:
            world.hosts[node].pause()
            paused.add(node)
        elif fault == 3 and paused:
            world.hosts[awake := chance.choice(sorted(paused))].resume()
            paused.discard(awake)
        elif fault == 4:
            loop.cut(world.hosts[node], world.hosts[other])
        elif fault == 5:
            loop.clog(world.hosts[node], world.hosts[other])
        elif fault == 6 and chance.random() < 0.3:
            everyone = [each for each in world.hosts if each not in down]
            world.crash(*everyone)
            down, paused = set(world.hosts), set()
        elif fault > 6:
            loop.heal()
        world.check()
    loop.heal()
    for node in sorted(paused):
        world.hosts[node].resume()
    for node in sorted(down):
        world.boot(node)
    await asyncio.sleep(1)
    await world.settle(b"the end")
    return f"{len(world.oracle.committed)} of {number} committed, {len(world.oracle.leaders)} leaders"


@pytest.mark.parametrize("seed", range(6))
def test_a_storm_loses_nothing_that_was_committed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes with power loss, pauses and partitions break no promise of Raft's figure 3, and it converges after."""
    monkeypatch.setattr(seams, "BATCH_BYTES", 40)
    voters = 5 if seed % 3 == 2 else 3
    run = simulate(lambda loop: storm(loop, voters, 60), seed=seed)
    print(seed, run.result, round(run.seconds), "s", run.steps, "steps")


def test_the_same_seed_gives_the_same_trace() -> None:
    """Nothing in the room reads real time, real chance or hash order."""
    runs = [simulate(lambda loop: storm(loop, 3, 30), seed=99) for _ in range(2)]
    assert runs[0].digest == runs[1].digest
