"""What becomes of groups with time: a bounded part of it at each call, however large a group is."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from raftlog.coordinator import upkeep
from raftlog.coordinator.chores import SLICE_RECORDS, first_slice
from raftlog.coordinator.group import CommittedOffset, Group
from raftlog.coordinator.offsets import decide_expire_offsets
from raftlog.coordinator.requests import OffsetCommit
from raftlog.coordinator.upkeep import RECORDS_PER_GROUP, SWEPT_AT_ONCE, SWEPT_OFFSETS
from tests.coordinator.journals import Answers, Bench

DAY_S = 86_400.0


def commit_many(bench: Bench, topics: int, partitions: int, group_id: str = "g") -> None:
    for number in range(topics):
        commits = tuple(
            OffsetCommit(f"t{number}", index, CommittedOffset(1, -1, "", bench.now_ms))
            for index in range(partitions)
        )
        assert set(bench.commit_offset(0, group_id=group_id, commits=commits)) == {0}


def sweep(bench: Bench) -> int:
    return bench.coordinator.sweep(now=bench.now, now_ms=bench.now_ms, most=SWEPT_AT_ONCE)


def test_a_large_group_is_looked_through_some_topics_at_a_time():
    """Twenty thousand offsets are not gone through between two turns of the loop, and none is left out."""
    bench = Bench()
    commit_many(bench, 40, 500)
    commit_many(bench, 1, 1, "small")
    bench.now += 8 * DAY_S
    most = SWEPT_AT_ONCE * RECORDS_PER_GROUP + SWEPT_OFFSETS + SLICE_RECORDS
    left = [len(bench.read().offsets)]
    while bench.coordinator.group_ids():
        sweep(bench)
        bench.commit()
        group = bench.read()
        left.append(len(group.offsets))
        assert left[-2] - left[-1] <= most
    assert len(left) > 5
    assert bench.replayed() == {}


def test_looking_for_nothing_costs_as_much_as_was_looked_at(monkeypatch: pytest.MonkeyPatch):
    """What is looked through counts, whether it has expired or not, and the next call goes on from there."""
    bench, looks = Bench(), []
    commit_many(bench, 40, 500)

    def noting(group: Group, *, topics: tuple[str, ...], **rest: Any) -> Any:
        looks.append(topics)
        return decide_expire_offsets(group, topics=topics, **rest)

    monkeypatch.setattr(upkeep, "decide_expire_offsets", noting)
    bench.now += 700.0
    rounds = 0
    while counted := sweep(bench):
        assert counted <= SWEPT_AT_ONCE + SWEPT_OFFSETS // RECORDS_PER_GROUP + 1
        rounds += 1
    assert rounds > 3
    assert sorted(chain(*looks)) == sorted(f"t{number}" for number in range(40))
    assert max(map(len, looks)) * 500 <= SWEPT_OFFSETS


def test_a_slice_looks_at_no_more_than_it_takes():
    """A million offsets are not gone through to take a thousand of them."""
    seen = 0

    def places():  # type: ignore[no-untyped-def]
        nonlocal seen
        for index in range(10**6):
            seen += 1
            yield "t", index

    batch = first_slice("g", places())
    assert (len(batch.places), batch.is_all) == (SLICE_RECORDS, False)
    assert seen == SLICE_RECORDS + 1
    assert first_slice("g", [("t", 0)]) == ([("t", 0)], True)
    assert first_slice("g", [("t" * 10**6, 0), ("t", 0)]).places == [("t" * 10**6, 0)], "at least one"


def test_groups_are_listed_while_one_of_them_is_deleted():
    """It is as good as gone, and no reason to tell of none."""
    bench, answers = Bench(), Answers()
    commit_many(bench, 3, 1_000, "large")
    commit_many(bench, 1, 1, "small")
    bench.coordinator.delete("large", answers)
    listed = bench.ask(bench.coordinator.read_some, bench.coordinator.group_ids())
    assert not answers and [each.group_id for each in listed] == ["small"]
    assert bench.ask(bench.coordinator.read_some, ["large"]) == ()
    bench.work_off()
    assert answers == [None]
