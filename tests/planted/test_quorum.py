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
    "own-pause-blamed",
    "stale-quotas",
)
"""Plants that an early seed shows within a second or two; every change of a scenario changes the seed."""


@pytest.mark.parametrize("name", taste({*QUICK} - {"own-pause-blamed"}, QUICK))
def test_a_planted_bug_is_found(name: str) -> None:
    """And the same seed passes without it: `hunt` runs the scenario with sound code too."""
    catch = hunt(all_plants()[name], SEEDS)
    assert catch.seed is not None and catch.seen
