"""Large groups are deleted bit by bit: which offsets, in what order, and what is shown of them meanwhile."""

from __future__ import annotations

from uuid import UUID

from raftlog.base.machine import Decision
from raftlog.coordinator.committed_offsets import PendingOffset
from raftlog.coordinator.group import CommittedOffset, Group, OffsetCommitted, apply
from raftlog.coordinator.partition_map import PartitionKey, PartitionMap
from raftlog.coordinator.pending_deletion import TOMBSTONES_PER_BATCH, PendingDeletion

ONE = CommittedOffset(1)


def group_of(*topic_partitions: PartitionKey, pending: tuple[PartitionKey, ...] = ()) -> Group:
    pends = {5: PartitionMap({each: PendingOffset(ONE, 0) for each in pending})} if pending else {}
    return Group(
        "g", offsets=PartitionMap(dict.fromkeys(topic_partitions, ONE)), pending=pends, next_pending_number=1
    )


def named(*names: str) -> dict[str, frozenset[UUID | None]]:
    """Deleted topics, of which no offset says the id."""
    return dict.fromkeys(names, frozenset({None}))


def worked_off(chore: PendingDeletion, group: Group) -> tuple[Group, list[int]]:
    """The group once the chore is done, and how many records each slice had."""
    slices: list[int] = []
    while not chore.is_done(group):
        assert len(slices) < 10
        decision: Decision = chore.decide_next_batch(group)
        assert decision.records, "a slice takes something"
        group = apply(group, decision.records)
        slices.append(len(decision.records))
    return group, slices


def test_topics_go_with_what_pends_and_nothing_else_does() -> None:
    """A transaction that is open would bring the offset of a deleted topic back."""
    group = group_of(("t", 0), ("u", 0), pending=(("t", 1), ("u", 1)))
    left, _ = worked_off(PendingDeletion(topics=named("t", "none")), group)
    assert set(left.partitions()) == {("u", 0), ("u", 1)}


def test_a_group_ends_with_its_last_slice() -> None:
    """Each slice fits into a batch; until the last slice the group is there."""
    topic_partitions = [("t", index) for index in range(2 * TOMBSTONES_PER_BATCH + 5)]
    left, slices = worked_off(
        PendingDeletion(deletes_group=True), group_of(*topic_partitions, pending=(("p", 0), ("t", 0)))
    )
    assert slices == [TOMBSTONES_PER_BATCH, TOMBSTONES_PER_BATCH, 6]
    assert not left.exists


def test_offsets_that_await_deletion_are_not_listed() -> None:
    """As if it were gone already; a group without such offsets is shown as the very value it is."""
    group = group_of(("t", 0), ("u", 0), pending=(("t", 1),))
    shown = PendingDeletion(topics=named("t")).without_deleted(group)
    assert dict(shown.offsets) == {("u", 0): ONE} and not shown.pending
    assert len(group.offsets) == 2, "the group itself is as it was"
    assert PendingDeletion(topics=named("x")).without_deleted(group) is group


def test_a_refused_end_leaves_what_else_has_to_go() -> None:
    """The client that wanted the end gets the error, once; the deleted topics' offsets still go."""
    told: list[object] = []
    chore = PendingDeletion(topics=named("t"), deletes_group=True, answers=[told.append])
    chore.cancel_group_deletion().answer("refused")
    chore.answer("again")
    assert told == ["refused"]
    (record,) = chore.decide_next_batch(group_of(("t", 0), ("u", 0))).records
    assert record == OffsetCommitted("g", "t", 0, None)
