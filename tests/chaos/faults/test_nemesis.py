"""Claims about faults and their plans: all are healed, the last copy is never destroyed, skips are reported."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from raftlog_chaos.faults import FAULTS
from raftlog_chaos.faults.nemesis import Nemesis, RotatingMix, Step, Steps
from raftlog_chaos.simulator.loop import SimLoop, simulate
from raftlog_chaos.testbeds.testbed import Ability
from tests.chaos.faults.model import EVERYTHING, ModelTestbed

T = TypeVar("T")
DESTROYING = [name for name, fault in FAULTS.items() if fault.destructive]


def play(scenario: Callable[[SimLoop], Awaitable[T]], seed: int = 1) -> T:
    """Run a scenario in virtual time."""
    return simulate(scenario, seed=seed, limit_s=4000).result  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_does_something_and_its_healing_undoes_it(name):
    """With the name that it is registered by; healing twice is healing once."""

    async def scenario(_loop: SimLoop) -> None:
        testbed, fault = ModelTestbed(), FAULTS[name]()
        assert fault.name == name
        assert await fault.inject(testbed, random.Random(1))
        assert testbed.deeds
        await fault.heal(testbed)
        assert testbed.is_well()
        healed = list(testbed.deeds)
        await fault.heal(testbed)
        assert testbed.deeds == healed

    play(scenario)


def test_there_are_the_faults_that_suites_name():
    """The vocabulary is that of the command line, of HTTP and of suites: it does not shrink."""
    assert len(FAULTS) == 38
    assert DESTROYING == ["flip-bit", "wipe-follower", "roll-back-follower"]


def test_in_a_ring_of_majorities_no_node_lacks_a_majority_and_not_every_node_hears_all():
    """From five nodes on no two hear the same; of three one node hears all, or another would hear too few."""

    async def scenario(_loop: SimLoop) -> None:
        for nodes in (3, 5, 6, 7, 8, 9):
            testbed = ModelTestbed(nodes)
            await FAULTS["majorities-ring"]().inject(testbed, random.Random(2))
            heard = [
                frozenset(each for each in testbed.nodes if (each, node) not in testbed.cuts)
                for node in testbed.nodes
            ]
            assert nodes // 2 + 1 <= min(map(len, heard)) <= nodes // 2 + 2
            assert len(set(heard)) == nodes

    play(scenario)


@pytest.mark.parametrize(
    ("name", "nodes"), [("majorities-ring", 2), ("isolate-one", 1), ("slow-link", 1), ("lossy-link", 1)]
)
def test_a_fault_of_links_that_finds_no_link_struck_no_node(name, nodes):
    """Else it would be counted as run, and passed."""

    async def scenario(_loop: SimLoop) -> None:
        testbed = ModelTestbed(nodes)
        assert await FAULTS[name]().inject(testbed, random.Random(1)) == ""
        assert not testbed.deeds

    play(scenario)


@pytest.mark.parametrize("name", DESTROYING)
def test_nothing_is_destroyed_while_another_replica_is_behind(name):
    """Data that only one node has is not taken from it."""

    async def scenario(_loop: SimLoop) -> None:
        for behind in (1, 2, 3):
            testbed = ModelTestbed()
            testbed.out_of_sync = {behind}
            for seed in range(20):
                await FAULTS[name]().inject(testbed, random.Random(seed))
            assert {node for _, node in testbed.deeds} <= {behind}

    play(scenario)


def test_only_one_nodes_disk_rots_in_a_run():
    """Data that is not read is not repaired: rot on two disks could hit the same record."""

    async def scenario(_loop: SimLoop) -> list[int]:
        testbed = ModelTestbed()
        nemesis = Nemesis(testbed, random.Random(3), RotatingMix(5, 0.0, DESTROYING))
        await nemesis.run(300)
        return [node for deed, node in testbed.deeds if deed == "flip_bit"]

    flipped = play(scenario)
    assert len(flipped) > 10
    assert len(set(flipped)) == 1


def test_what_a_place_cannot_do_is_noted_as_not_run():
    """And the rest is run."""

    async def scenario(_loop: SimLoop) -> Counter[tuple[str, str]]:
        testbed = ModelTestbed(abilities=EVERYTHING - {Ability.CUT, Ability.POWER_CUT})
        steps = [Step("cut-pair", 1, 1), Step("kill", 1, 1), Step("blackout", 1, 1)]
        nemesis = Nemesis(testbed, random.Random(1), Steps(steps))
        await nemesis.run(10)
        assert nemesis.timeline[0][1:] == ("not run", "cut-pair", "model lacks cut")
        return Counter((each.event, each.fault) for each in nemesis.timeline)

    seen = play(scenario)
    assert seen["not run", "cut-pair"] == seen["not run", "blackout"] == 1
    assert seen["inject", "kill"] == seen["heal", "kill"] == 3
    assert len(seen) == 4


def test_steps_follow_one_another_and_begin_again():
    """Each for its time, healed before the next."""

    async def scenario(loop: SimLoop) -> list[tuple[float, str, str]]:
        steps = Steps([Step("kill", 2, 1), Step("pause", 3, 0)])
        nemesis = Nemesis(ModelTestbed(), random.Random(1), steps)
        began_at = loop.time()
        await nemesis.run(9)
        return [(round(each.at_s - began_at, 1), each.event, each.fault) for each in nemesis.timeline]

    assert play(scenario) == [
        (0, "inject", "kill"),
        (2, "heal", "kill"),
        (3, "inject", "pause"),
        (6, "heal", "pause"),
        (6, "inject", "kill"),
        (8, "heal", "kill"),
    ]


def test_a_step_waits_for_the_node_that_the_one_before_it_killed():
    """Else two of three are down on a slow machine, and the majority that is missing is blamed on the second fault."""

    async def scenario(loop: SimLoop) -> list[tuple[float, str]]:
        testbed = ModelTestbed()
        testbed.start_s = 5.0
        nemesis = Nemesis(testbed, random.Random(1), Steps([Step("kill", 2, 1)]))
        began_at = loop.time()
        await nemesis.run(12)
        return [(round(each.at_s - began_at), each.event) for each in nemesis.timeline]

    assert play(scenario) == [(0, "inject"), (2, "heal"), (7, "inject"), (9, "heal")]


def test_a_rotating_mix_has_quiet_periods():
    """About the configured share. Pauses heal at once, so each period takes its ten seconds and no more."""

    async def scenario(loop: SimLoop) -> float:
        nemesis = Nemesis(ModelTestbed(), random.Random(5), RotatingMix(10, 0.25, ("pause",)))
        began_at = loop.time()
        await nemesis.run(3900)
        struck = {int((each.at_s - began_at) / 10) for each in nemesis.timeline if each.event == "inject"}
        return 1 - len(struck) / 390

    assert 0.15 < play(scenario) < 0.35


def test_a_rotating_mix_has_changing_faults():
    """Over a long run every fault comes up."""

    async def scenario(_loop: SimLoop) -> set[str]:
        nemesis = Nemesis(ModelTestbed(), random.Random(5), RotatingMix(10, 0.25, tuple(FAULTS)))
        await nemesis.run(2000)
        return {each.fault for each in nemesis.timeline}

    assert play(scenario) == set(FAULTS)


@pytest.mark.parametrize("seed", range(5))
def test_after_calm_everything_is_well_whenever_the_run_was_broken_off(seed):
    """Healed in order of injection; nodes stopped by others are started as well."""

    async def scenario(_loop: SimLoop) -> ModelTestbed:
        testbed = ModelTestbed()
        nemesis = Nemesis(testbed, random.Random(seed), RotatingMix(5, 0.1, tuple(FAULTS)))
        try:
            async with asyncio.timeout(20 + seed):
                await nemesis.run(1000)
        except TimeoutError:
            testbed.running.discard(3)
            await nemesis.calm()
        return testbed

    assert play(scenario, seed).is_well()
