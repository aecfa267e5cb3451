"""Claims about the counts below bounds that metrics are made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.histogram import LATENCY_BOUNDS_S, SYNC_BOUNDS_S, Histogram


@given(st.lists(st.floats(min_value=0, max_value=100)))
def test_each_observation_is_counted_once_below_its_bounds(values: list[float]) -> None:
    """The counts grow with the bounds, and the last, infinity's, is all of them."""
    observed = Histogram(SYNC_BOUNDS_S)
    for value in values:
        observed.observe(value)
    assert dict(observed.cumulative()) == {
        bound: sum(value <= bound for value in values) for bound in (*SYNC_BOUNDS_S, float("inf"))
    }
    assert observed.count == len(values)


def test_bounds_of_buckets_ascend() -> None:
    """Bisection rests on it."""
    for bounds in (LATENCY_BOUNDS_S, SYNC_BOUNDS_S):
        assert list(bounds) == sorted(set(bounds))
