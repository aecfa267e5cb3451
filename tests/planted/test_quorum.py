"""Some planted bugs of the quorum and the controller, that few seeds show; sound code passes the same seeds."""

from __future__ import annotations

import pytest

from tests.kit.marks import taste
from tests.planted.hunt import hunt
from tests.planted.plant import all_plants

SEEDS = range(1, 31)
QUICK = (
    "quorum-log-not-synced",
    "truncation-filter-off",
    "stale-answer-counts",
    "no-pre-vote",
    "stale-quotas",
)
"""Plants that an early seed shows in a part of their scenario's time; every change of a scenario changes the seed."""
SHARE = 0.25
"""Of the time, for these."""
LONGER = ("own-pause-blamed",)


@pytest.mark.parametrize("name", taste(QUICK, (*QUICK, *LONGER)))
def test_a_planted_bug_is_found(name: str) -> None:
    """And the same seed passes without it: `hunt` runs the scenario with sound code too."""
    plant = all_plants()[name]
    seconds = plant.seconds * (SHARE if name in QUICK else 1.0)
    catch = hunt(plant._replace(seconds=seconds), SEEDS)
    assert catch.seed is not None and catch.seen
