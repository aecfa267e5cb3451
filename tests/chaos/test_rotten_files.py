"""Bits of a node's small files rot while it is down: no acknowledged record is lost, no file is deleted elsewhere."""

from __future__ import annotations

import pytest

from raftlog_chaos.scenarios.rotten_files import rotten_files
from raftlog_chaos.simulator import simulate
from tests.kit.marks import nightly

ALL_NIGHT_S = 160.0
"""Virtual seconds in which more than a hundred bits flip singly: three in four seconds, at least."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "seconds", "flips"),
    [(1, 2.0, 1), *(nightly(seed, ALL_NIGHT_S, 100, id=f"{seed}-all") for seed in range(1, 11))],
)
def test_a_flipped_bit_of_a_small_file_costs_nothing_that_was_acknowledged(
    seed: int, seconds: float, flips: int
) -> None:
    """Checkpoints, marks, identities, indexes, the metadata log and its snapshots: 1,000 flips at night."""
    run = simulate(lambda loop: rotten_files(loop, seconds, most=1), seed=seed, limit_s=seconds + 600)
    assert run.result.acked > 0 and run.result.faults["flip"] >= flips
