"""Maps of places: they behave as maps do, and a copy costs what it changes (counted, not timed)."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.coordinator.group import (
    CommittedOffset,
    Group,
    OffsetCommitted,
    TransactionalOffsetCommitted,
    apply,
)
from raftlog.coordinator.partition_map import PartitionMap

TOPIC_PARTITIONS = st.tuples(st.sampled_from("tuv"), st.integers(0, 3))
CHANGES = st.lists(st.tuples(TOPIC_PARTITIONS, st.none() | st.integers()), max_size=20)


def change(offsets: Any, changes: list[Any]) -> None:
    for tp, value in changes:
        if value is None:
            offsets.pop(tp, None)
        else:
            offsets[tp] = value


@given(first=CHANGES, second=CHANGES, third=CHANGES)
def test_copies_are_maps_of_their_own(first: Any, second: Any, third: Any):
    """A change in a copy, or in the copy of a copy, leaves the original as it was."""
    plain: list[dict[Any, int]] = [{}]
    maps: list[PartitionMap[int]] = [PartitionMap()]
    for changes in (first, second, third):
        plain.append(dict(plain[-1]))
        maps.append(PartitionMap(maps[-1]))
        change(plain[-1], changes)
        change(maps[-1], changes)
    for expected, found in zip(plain, maps, strict=True):
        assert found == expected
        assert len(found) == len(expected) and set(found) == expected.keys()
        assert found.topics() == {topic for topic, _ in expected}
        rest = found.without(["u", "none"], lambda topic, value: value % 2 == 0)
        assert rest == {tp: each for tp, each in expected.items() if tp[0] != "u" or each % 2}
        assert len(rest) == len(list(rest))


def test_what_is_not_there_is_missed():
    """As in any map."""
    offsets = PartitionMap({("t", 1): 5})
    assert ("t", 2) not in offsets and ("u", 1) not in offsets and offsets.get(("u", 1)) is None
    for missing in (("t", 2), ("u", 1)):
        with pytest.raises(KeyError):
            del offsets[missing]
        with pytest.raises(KeyError):
            _ = offsets[missing]
    assert offsets.of_topic("t") == {1: 5} and not offsets.of_topic("u")


def lines_of(call: Any) -> int:
    """Lines of Python that a call runs: the same on every machine."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("pends", [False, True])
def test_a_commit_costs_the_same_in_a_group_of_very_many_offsets(pends: bool):
    """No offset of another topic is looked at, and no map of another topic is copied."""
    committed = CommittedOffset(1)
    record = (
        TransactionalOffsetCommitted("g", "t", 0, committed, 5, 0)
        if pends
        else OffsetCommitted("g", "t", 0, committed)
    )
    small, large = (
        Group(
            "g",
            offsets=PartitionMap({(f"t{number}", 0): committed for number in range(count)}),
            pending={6: PartitionMap({(f"t{number}", 0): committed for number in range(count)})},
        )
        for count in (10, 3_000)
    )
    after = apply(large, (record,))
    assert lines_of(lambda: apply(large, (record,))) == lines_of(lambda: apply(small, (record,)))
    shared = [
        after.offsets.of_topic(f"t{number}") is large.offsets.of_topic(f"t{number}") for number in range(9)
    ]
    assert all(shared)
