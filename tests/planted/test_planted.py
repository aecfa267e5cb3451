"""A few planted bugs that any seed shows, and what does not count as found. `make planted` hunts them all."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.replication.leader_role import LeaderRole
from raftlog_chaos.regressions import REGRESSIONS
from raftlog_chaos.simulator import SimLoop
from tests.kit.marks import taste
from tests.planted.hunt import BrokenPlant, Catch, hunt, run_test
from tests.planted.plant import Plant, all_plants, scenario_name

QUICK = (
    "ack-before-flush",
    "ack-on-resigning",
    "groups-read-back-in-part",
    "log-raises",
    "min-isr-ignored",
    "no-descriptor-fails-the-disk",
)
"""Plants that nearly every seed shows, and soon: a part of their scenario's time is enough."""
SHARE = 0.25
"""Of the time, for these."""
LONGER = (
    "cancel-keeps-added",
    "cut-off-not-known",
    "damage-taken-for-torn-tail",
    "forgotten-while-away",
    "generation-not-recorded",
    "given-before-given-up",
    "holes-not-noted",
    "leaders-share-for-all",
    "lost-broker-logged-first",
    "outcome-before-commit",
    "rights-one-takes-all",
    "stable-offset-one-too-high",
    "sync-not-begun-counts",
)
"""With them a plant for each kind of scenario."""


@pytest.mark.slow
@pytest.mark.parametrize("name", taste(QUICK, (*QUICK, *LONGER)))
def test_a_planted_bug_is_found(name: str) -> None:
    """Runs without a finding must be scenarios without a fault to find."""
    plant = all_plants()[name]
    seconds = plant.seconds * (SHARE if name in QUICK else 1.0)
    catch = hunt(plant._replace(seconds=seconds), range(1, 31))
    assert catch.seed is not None and catch.seen


def test_every_plant_fits_the_code() -> None:
    """The replaced name must be there: a plant for a dropped name would go unnoticed."""
    misfits = {}
    for name, each in all_plants().items():
        with pytest.MonkeyPatch.context() as patch:
            try:
                each.plant(patch)
            except Exception as error:
                misfits[name] = repr(error)
    assert not misfits


@pytest.mark.nightly
def test_a_unit_test_finds_a_plant_that_few_seeds_show() -> None:
    """It must fail with the plant and pass without."""
    found = all_plants()["told-once"]
    assert run_test(found).seed == 0
    blind = found._replace(test="tests/planted/test_planted.py::test_what_no_scenario_notices_is_not_found")
    with pytest.raises(BrokenPlant, match="ends with 0, and with 0"):
        run_test(blind)


async def harmless(loop: SimLoop, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def calls_the_leader(loop: SimLoop, seconds: float) -> None:
    LeaderRole.maybe_advance_high_watermark(None)  # type: ignore[arg-type]


async def fails(loop: SimLoop, seconds: float) -> None:
    raise AssertionError("always")


class LongRun:
    """A run that a plant keeps from ending."""

    ends = True


LONG_RUN = LongRun()


def nothing(patch: pytest.MonkeyPatch) -> None:
    """Plants no bug."""


def test_what_no_scenario_notices_is_not_found() -> None:
    """Neither are more seeds tried than the budget allows."""
    plant = Plant("none", "-", harmless, nothing, 1.0)
    assert hunt(plant, range(3))[:2] == (None, 3)
    assert hunt(plant, range(3), budget_s=0.0)[:2] == (None, 1)


def test_a_find_by_the_limit_is_distinguished_from_a_judges() -> None:
    """A run that never comes to its judges is a find too, but no judge saw a broken promise."""

    def never_end(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(LONG_RUN, "ends", False)

    async def a_long_run(loop: SimLoop, seconds: float) -> None:
        while not LONG_RUN.ends:
            await asyncio.sleep(seconds)

    catch = hunt(Plant("endless", "-", a_long_run, never_end, 100.0), [1])
    assert catch.seed == 1 and catch.by_limit
    assert not Catch(1, 1, 0.0, "node 1 went over the limit after 2 s").by_limit


def test_an_error_of_the_plant_itself_is_no_find() -> None:
    """A patch that no longer fits the code raises AttributeError or TypeError, and would be found by anything."""
    misfit = Plant(
        "misfit",
        "-",
        calls_the_leader,
        lambda patch: patch.setattr(LeaderRole, "maybe_advance_high_watermark", lambda: 0),
        1.0,
    )
    with pytest.raises(BrokenPlant, match="TypeError"):
        hunt(misfit, [1])


def test_a_scenario_that_fails_without_the_plant_finds_nothing() -> None:
    """The same seed must pass once the bug is gone."""
    with pytest.raises(BrokenPlant, match="seed 1 "):
        hunt(Plant("none", "-", fails, nothing, 1.0), [1])


def test_each_regression_names_a_planted_bug_of_its_scenario() -> None:
    """`python -m tests.planted --regressions` hunts it at the row's seed."""
    plants = all_plants()
    for row in REGRESSIONS:
        plant = plants[row.plant]
        assert (scenario_name(plant.scenario), plant.seconds) == (row.scenario, row.seconds), row
