"""Moves one member towards its target: partitions to give up first, partitions to get, partitions that others still
hold.

Law (KIP-848): a member gets a partition only when no other member reads it or still has to give it up. A member enters
the epoch of its target only when it has given up all other partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from uuid import UUID

import msgspec

from raftlog.coordinator.consumer.consumer_membership import (
    NO_PARTITIONS,
    AssignmentEpochs,
    CurrentAssignment,
    MemberState,
    Partitions,
)


def next_assignment(
    current: CurrentAssignment,
    target: Partitions,
    *,
    target_epoch: int,
    owned: Partitions | None,
    held: Callable[[Partitions], Partitions],
) -> CurrentAssignment:
    """Return the member's next assignment; `current` itself if unchanged.

    `owned`: the partitions that it reports, or None. `held`: filters the partitions that other members hold.
    """
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, current.revoking):
        return current
    kept = intersection(current.assigned, target)
    surplus = difference(current.assigned, target)
    if _owns_any(owned, surplus):
        return _moved(current, MemberState.UNREVOKED_PARTITIONS, current.epoch, kept, revoking=surplus)
    missing = difference(target, kept)
    free = difference(missing, held(missing))
    waits = count(free) < count(missing)
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(current, state, target_epoch, union(kept, free))


def _moved(
    current: CurrentAssignment,
    state: MemberState,
    epoch: int,
    assigned: Partitions,
    *,
    revoking: Partitions = NO_PARTITIONS,
) -> CurrentAssignment:
    assert state is not MemberState.UNKNOWN
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    since = _assigned_before(current, epoch, union(assigned, revoking))
    moved = CurrentAssignment(epoch, previous, state, assigned, revoking, since)
    return current if moved == current else moved


def _assigned_before(current: CurrentAssignment, epoch: int, held: Partitions) -> AssignmentEpochs:
    """Return the epochs of the partitions that the member keeps, except those that equal `epoch`."""
    had = intersection(current.assigned, held)
    if revoked := intersection(current.revoking, held):
        had = union(had, revoked)
    since = {was: both for was, partitions in current.since if (both := intersection(partitions, had))}
    if rest := difference(had, union_all(since.values())):
        since[current.default_epoch] = rest
    since.pop(epoch, None)
    return tuple(sorted(since.items(), key=_by_epoch))


def _by_epoch(assigned: tuple[int, Partitions]) -> int:
    return assigned[0]


def _owns_any(owned: Partitions | None, partitions: Partitions) -> bool:
    """Return whether a member still has any of these; without a report, it has."""
    if not partitions:
        return False
    return owned is None or any(
        owned.get(topic_id, frozenset()) & those for topic_id, those in partitions.items()
    )


def rejoined(current: CurrentAssignment) -> CurrentAssignment:
    """Return the assignment of a member that came back without partitions: epochs begin anew, its partitions wait for
    it.
    """
    since = _assigned_before(current, 0, union(current.assigned, current.revoking))
    return msgspec.structs.replace(current, epoch=0, previous_epoch=0, since=since)


# -- sets of partitions ----------------------------------------------------------------------------------


def intersection(some: Partitions, others: Partitions) -> Partitions:
    return {each: both for each, indexes in some.items() if (both := indexes & others.get(each, frozenset()))}


def difference(some: Partitions, others: Partitions) -> Partitions:
    return {each: rest for each, indexes in some.items() if (rest := indexes - others.get(each, frozenset()))}


def union(some: Partitions, others: Partitions) -> Partitions:
    return {each: some.get(each, frozenset()) | others.get(each, frozenset()) for each in (*some, *others)}


def union_all(each: Iterable[Partitions]) -> Partitions:
    """Return the union of many."""
    found: dict[UUID, set[int]] = defaultdict(set)
    for partitions in each:
        for topic_id, indexes in partitions.items():
            found[topic_id] |= indexes
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def is_subset(some: Partitions, others: Partitions) -> bool:
    """Return whether all of `some` is in `others`."""
    return not difference(some, others)


def count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))
