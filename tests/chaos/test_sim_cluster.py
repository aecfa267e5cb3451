"""Whole nodes in virtual time: storms of crashes, power losses, pauses and cuts lose, double or reorder no record.

A failure names its seed; `raftlog sim --seconds S --seed N --log` replays it.
"""

from __future__ import annotations

import asyncio

import pytest

from raftlog_chaos.chronicle import Chronicle
from raftlog_chaos.regressions import REGRESSIONS, Regression
from raftlog_chaos.scenarios import endurance
from raftlog_chaos.scenarios.blackouts import blackouts
from raftlog_chaos.scenarios.endurance import Endurance, endure
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.sweep import ScenarioRun, run_seed
from tests.kit.marks import taste

STORM_S = 4.0
QUICK = [each for each in REGRESSIONS if each.scenario in ("retry", "made-up-producers")]
"""`raftlog sim --regressions` runs all of them, as do the nightly tests."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", taste([0], range(8)))
def test_a_storm_breaks_no_promise(seed: int) -> None:
    """Acknowledged records are there once, in order, at their offsets, on replicas that are equal and in sync again."""
    report = endurance.run(seed, STORM_S).result
    assert report.acked > 0 and any(report.faults.values()), "the storm was none"


@pytest.mark.slow
@pytest.mark.parametrize("known", taste(QUICK, REGRESSIONS), ids=lambda each: f"{each.scenario}-{each.seed}")
def test_a_seed_that_finds_a_planted_bug_finds_none_in_sound_code(known: Regression) -> None:
    """The code does not have a bug like the plant that the seed finds."""
    outcome = run_seed(ScenarioRun(known.scenario, known.seed, known.seconds))
    assert not outcome.failure, f"{known.plant}: {outcome.failure}"


@pytest.mark.slow
def test_the_same_seed_is_the_same_storm_even_when_it_is_watched_closely() -> None:
    """Every callback of every node and client, in the same order at the same time: a replay explains any failure.

    A chronicle has every step looked at. At this seed the nodes' order of closing connections once depended on
    addresses in memory.
    """
    chronicles: list[Chronicle | None] = []

    async def told(loop: SimLoop) -> endurance.Report:
        if not chronicles:
            loop.keep_chronicle()
        chronicles.append(loop.chronicle)
        return await endure(loop, 1.5)

    assert simulate(told, seed=5) == simulate(told, seed=5)
    assert chronicles[0] is not None and chronicles[1] is None


async def in_fair_weather(loop: SimLoop) -> endurance.Report:
    scenario = Endurance(loop)
    await scenario.begin()
    await asyncio.sleep(1.0)
    recovery_s = await scenario.finish()
    assert not (faults := scenario.judge()), faults
    return scenario.report(recovery_s)


def test_in_fair_weather_leaders_stay_and_everything_is_acknowledged() -> None:
    """Without a fault no partition changes its leader, and all is in sync within moments."""
    report = simulate(in_fair_weather, seed=7).result
    assert report.acked > 30
    assert report.elections == 0
    assert report.recovery_s < 2.0


@pytest.mark.slow
def test_the_power_loss_of_all_nodes_loses_nothing_that_was_acknowledged() -> None:
    """Acknowledged means: on disk on every member of the ISR (log.flush.policy=commit)."""
    assert simulate(blackouts, seed=11).result.acked > 50


@pytest.mark.slow
def test_a_failure_names_its_seed_and_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without judges would be green for ever."""
    monkeypatch.setattr(Endurance, "judge", lambda scenario: [f"seed {scenario.loop.seed} lost everything"])
    with pytest.raises(AssertionError, match="seed 5 lost everything"):
        simulate(lambda loop: endure(loop, 0.1), seed=5)
