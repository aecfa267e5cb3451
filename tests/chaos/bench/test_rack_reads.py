"""Reading in the own rack with real racks: network namespaces, slow links, and stock consumers (KIP-392)."""

from __future__ import annotations

import pytest

from raftlog.testing.network import has_netem
from raftlog.testing.progress import patient
from raftlog_chaos.bench.rack_reads import measure_rack_reads

BUSY_S = 0.01
"""Processes wait this long for a core of a busy machine."""


@pytest.mark.nightly
@pytest.mark.clients
@pytest.mark.slow
def test_consumers_in_far_racks_read_in_time_and_at_their_followers() -> None:
    """At most one round after the acknowledgement, and few bytes cross the racks."""
    try:
        found = measure_rack_reads()
    except OSError as error:
        pytest.skip(str(error))
    for each in found.reads:
        assert each.at_follower_s <= each.bound_s + patient(BUSY_S)
        assert each.produced_s >= max(read.round_s for read in found.reads), (
            "acks=all waits for the farther replica"
        )
    if not has_netem():
        assert found.crossed.without_rack > found.crossed.read / 2 > 10 * found.crossed.with_rack
