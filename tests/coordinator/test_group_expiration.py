"""Groups change with time: a bounded part of it at each call, however large a group is."""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any

import pytest

from raftlog.base.errors import NotEnoughReplicas
from raftlog.coordinator import group_expiration
from raftlog.coordinator.group import CommittedOffset, Group
from raftlog.coordinator.group_expiration import GROUPS_PER_SWEEP, RECORDS_PER_GROUP, SWEPT_OFFSETS
from raftlog.coordinator.group_requests import DeleteGroup, OffsetCommit
from raftlog.coordinator.offsets import decide_expire_offsets
from raftlog.coordinator.pending_deletion import RETRY_S, TOMBSTONES_PER_BATCH, next_tombstone_batch
from raftlog.coordinator.record_fields import KeyValue
from tests.coordinator.group_coordinator_setup import Answers, GroupCoordinatorSetup, gone

DAY_S = 86_400.0


def commit_many(bench: GroupCoordinatorSetup, topics: int, partitions: int, group_id: str = "g") -> None:
    for number in range(topics):
        commits = tuple(
            OffsetCommit(f"t{number}", index, CommittedOffset(1, -1, "", bench.now_ms))
            for index in range(partitions)
        )
        assert set(bench.commit_offset(0, group_id=group_id, commits=commits)) == {0}


def sweep(bench: GroupCoordinatorSetup) -> int:
    return bench.coordinator.sweep(bench.moment, most=GROUPS_PER_SWEEP)


def test_a_large_group_is_looked_through_some_topics_at_a_time():
    """Twenty thousand offsets are not gone through between two turns of the loop, and none is left out."""
    bench = GroupCoordinatorSetup()
    commit_many(bench, 40, 500)
    commit_many(bench, 1, 1, "small")
    bench.now += 8 * DAY_S
    most = GROUPS_PER_SWEEP * RECORDS_PER_GROUP + SWEPT_OFFSETS + TOMBSTONES_PER_BATCH
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
    """Every offset that is looked at counts, whether it has expired or not, and the next call goes on from there."""
    bench, looks = GroupCoordinatorSetup(), []
    commit_many(bench, 40, 500)

    def noting(group: Group, *, topics: tuple[str, ...], **rest: Any) -> Any:
        looks.append(topics)
        return decide_expire_offsets(group, topics=topics, **rest)

    monkeypatch.setattr(group_expiration, "decide_expire_offsets", noting)
    bench.now += 700.0
    rounds = 0
    while counted := sweep(bench):
        assert counted <= GROUPS_PER_SWEEP + SWEPT_OFFSETS // RECORDS_PER_GROUP + 1
        rounds += 1
    assert rounds > 3
    assert sorted(chain(*looks)) == sorted(f"t{number}" for number in range(40))
    assert max(map(len, looks)) * 500 <= SWEPT_OFFSETS


def test_a_slice_looks_at_no_more_than_it_takes():
    """A million offsets are not gone through to take a thousand of them."""
    seen = 0

    def topic_partitions():  # type: ignore[no-untyped-def]
        nonlocal seen
        for index in range(10**6):
            seen += 1
            yield "t", index

    batch = next_tombstone_batch("g", topic_partitions())
    assert (len(batch.topic_partitions), batch.is_all) == (TOMBSTONES_PER_BATCH, False)
    assert seen == TOMBSTONES_PER_BATCH + 1
    assert next_tombstone_batch("g", [("t", 0)]) == ([("t", 0)], True)
    assert next_tombstone_batch("g", [("t" * 10**6, 0), ("t", 0)]).topic_partitions == [("t" * 10**6, 0)], (
        "at least one"
    )


def test_groups_are_listed_while_one_of_them_is_deleted():
    """It is as good as gone, and no reason to list no groups."""
    bench, answers = GroupCoordinatorSetup(), Answers()
    commit_many(bench, 3, 1_000, "large")
    commit_many(bench, 1, 1, "small")
    bench.coordinator.delete(DeleteGroup("large"), answers, at=bench.moment)
    listed = bench.ask(bench.coordinator.read_some, bench.coordinator.group_ids())
    assert not answers and [each.group_id for each in listed] == ["small"]
    assert bench.ask(bench.coordinator.read_some, ["large"]) == ()
    bench.run_deletions()
    assert answers == [None]


class FailingGroupWrites(GroupCoordinatorSetup):
    """A setup with a journal that cannot encode records of groups called bad."""

    is_broken = True

    def append(self, records: tuple[KeyValue, ...]) -> int:
        if self.is_broken and any(b"bad" in key for key, _ in records):
            raise struct.error("argument out of range")
        return super().append(records)


def failing(bench: GroupCoordinatorSetup) -> list[tuple[str, str]]:
    return [(each.chore, each.subject) for each in bench.coordinator.failures]


def test_a_group_whose_offsets_cannot_expire_stops_no_other_group() -> None:
    """It is named, and tried again with the next sweep; an exception there once ended the broker."""
    bench = FailingGroupWrites()
    bench.is_broken = False
    for group_id in ("a", "bad", "z"):
        commit_many(bench, 1, 3, group_id)
    bench.is_broken = True
    bench.now += 8 * DAY_S
    sweep(bench)
    bench.commit()
    assert bench.coordinator.group_ids() == ["bad"]
    assert failing(bench) == [("offset_expiry", "bad")]
    bench.is_broken = False
    bench.now += 700.0
    sweep(bench)
    bench.commit()
    assert bench.coordinator.group_ids() == [] and failing(bench) == []


def test_a_group_that_cannot_go_stops_no_other_group() -> None:
    """Neither offsets of deleted topics nor whole groups wait for it, and a client that deleted others gets its
    response.
    """
    bench, answers = FailingGroupWrites(), Answers()
    bench.is_broken = False
    for group_id in ("bad", "large", "other"):
        commit_many(bench, 3, 1_000, group_id)
    bench.is_broken = True
    bench.coordinator.on_topics_deleted(gone("t0"))
    bench.coordinator.delete(DeleteGroup("large"), answers, at=bench.moment)
    bench.run_deletions()
    bench.commit()
    assert answers == [None]
    assert sorted(bench.coordinator.group_ids()) == ["bad", "other"]
    assert len(bench.ask(bench.coordinator.read, "other").offsets) == 2_000
    assert failing(bench) == [("group_removal", "bad")]
    bench.is_broken = False
    bench.now += 3_601.0
    bench.run_deletions()
    assert len(bench.replayed()["bad"].offsets) == 2_000 and failing(bench) == []


def test_a_journal_that_refuses_one_groups_slice_is_offered_anothers_next() -> None:
    """The first in the row would else be tried for ever, and all others wait."""
    bench = GroupCoordinatorSetup()
    for group_id in ("first", "second"):
        commit_many(bench, 1, 10, group_id)
    tried: list[bytes] = []
    append = bench.append

    def refuse(records: tuple[KeyValue, ...]) -> int:
        tried.append(records[0][0])
        raise NotEnoughReplicas

    bench.append = refuse  # type: ignore[method-assign]
    bench.coordinator = bench.new_coordinator()
    bench.coordinator.load(bench.replayed().values(), now=bench.now)
    bench.coordinator.on_topics_deleted(gone("t0"))
    for _ in range(4):
        bench.now += RETRY_S
        sweep(bench)
    assert [b"first" in each for each in tried] in ([True, False, True, False], [False, True, False, True])
    bench.append = append  # type: ignore[method-assign]


def test_a_group_whose_members_cannot_go_stops_no_other_group() -> None:
    """Sessions that end together are ended for the others, and once more for that group."""
    bench = FailingGroupWrites()
    bench.is_broken = False
    for group_id in ("bad", "good"):
        for _ in range(2):
            bench.consumer_group_heartbeat("m-" + group_id, 0, group_id=group_id)
    bench.is_broken = True
    bench.now += 46.0
    tick(bench)
    bench.commit()
    assert [bool(bench.replayed()[each].consumer.members) for each in ("bad", "good")] == [True, False]  # type: ignore[union-attr]
    assert failing(bench) == [("group_sessions", "bad")]
    bench.is_broken = False
    bench.now += 60.0
    tick(bench)
    assert not bench.replayed()["bad"].consumer.members and failing(bench) == []  # type: ignore[union-attr]


def tick(bench: GroupCoordinatorSetup) -> int:
    return bench.coordinator.tick(bench.moment, most=100)
