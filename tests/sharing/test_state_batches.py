"""State batches are merged as Apache Kafka's PersisterStateBatchCombiner merges them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raftlog.sharing.delivery import DeliveryState, StateBatch
from raftlog.sharing.state_batches import combine

AVAILABLE, ACKNOWLEDGED, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVED,
)


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 30))
    last = first + draw(st.integers(0, 10))
    return StateBatch(
        first, last, draw(st.sampled_from((AVAILABLE, ACKNOWLEDGED, ARCHIVED))), draw(st.integers(1, 3))
    )


@given(st.lists(state_batches(), max_size=8), st.integers(0, 30))
def test_every_offset_has_the_strongest_of_its_batches(batches: list[StateBatch], start: int) -> None:
    """The higher count, then the later state. The result is in order, without overlaps, and as short as it can be."""
    expected: dict[int, tuple[int, DeliveryState]] = {}
    for each in batches:
        for offset in range(max(each.first_offset, start), each.last_offset + 1):
            found = (each.delivery_count, each.state)
            expected[offset] = max(expected.get(offset, found), found)
    combined = combine(batches, start_offset=start)
    actual = {
        offset: (each.delivery_count, each.state)
        for each in combined
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    assert actual == expected
    assert all(isinstance(each.state, DeliveryState) for each in combined)
    for before, after in pairwise(combined):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]


def test_a_late_write_takes_nothing_back() -> None:
    """An older state of the same delivery loses, also in the middle of a range."""
    before = [StateBatch(0, 9, ACKNOWLEDGED, 2)]
    late = [StateBatch(3, 5, AVAILABLE, 2), StateBatch(7, 7, AVAILABLE, 3)]
    assert combine([*before, *late], start_offset=0) == (
        StateBatch(0, 6, ACKNOWLEDGED, 2),
        StateBatch(7, 7, AVAILABLE, 3),
        StateBatch(8, 9, ACKNOWLEDGED, 2),
    )
