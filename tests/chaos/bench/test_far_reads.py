"""How soon a consumer reads at the follower in its rack (KIP-392)."""

from __future__ import annotations

import pytest

from raftlog_chaos.bench.far_reads import RECORDS, measure_far_reads


@pytest.mark.parametrize("seed", [1, 2])
def test_a_consumer_at_a_follower_is_one_round_behind_the_producer_at_most(seed: int) -> None:
    """With racks 2 ms and 40 ms apart, and each record is read at the follower."""
    near, far = measure_far_reads(seed)
    assert near.consumed_s <= near.bound_s and far.consumed_s <= far.bound_s, (near, far)
    assert near.at_follower == far.at_follower == RECORDS
    assert far.produced_s >= far.round_s, "acks=all waits for the farther replica"
