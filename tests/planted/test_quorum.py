"""Some planted bugs of the quorum and the controller, at seeds known to show them; sound code passes the same ones."""

from __future__ import annotations

import pytest

from tests.planted.hunt import hunt
from tests.planted.plant import all_plants

QUICK = {
    "vote-not-synced": 4,
    "quorum-log-not-synced": 1,
    "truncation-filter-off": 1,
    "stale-answer-counts": 1,
    "no-pre-vote": 1,
    "own-pause-blamed": 1,
    "parked-replies-kept": 5,
}
"""Plants by a seed that shows them within a second or two."""


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    """And the same seed passes without it: `hunt` tells the story to sound code too."""
    catch = hunt(all_plants()[name], [QUICK[name]])
    assert catch.seed == QUICK[name] and catch.seen
