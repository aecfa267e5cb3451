"""One member on its way to its target: what it must give up first, what it may have, what others still hold.

Law (KIP-848): a partition is given to a member only when no other has it, neither to read nor still to give up. A
member enters the epoch of its target only when it has given up what the target does not hold.
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
    """Return what the member has next; `current` itself if nothing changes.

    `owned`: what it says that it has, None if it does not say. `held`: which of some partitions others have.
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
    """Return when the member was assigned what it had and has, but for what counts as assigned in `epoch`."""
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
    """Whether a member still has some of these; who does not say, has."""
    if not partitions:
        return False
    return owned is None or any(
        owned.get(topic_id, frozenset()) & those for topic_id, those in partitions.items()
    )


def rejoined(current: CurrentAssignment) -> CurrentAssignment:
    """The assignment of a member that came back without anything: the epochs begin anew, its partitions wait for it."""
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
    """The union of many."""
    found: dict[UUID, set[int]] = defaultdict(set)
    for partitions in each:
        for topic_id, indexes in partitions.items():
            found[topic_id] |= indexes
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def is_subset(some: Partitions, others: Partitions) -> bool:
    """Whether all of `some` is in `others`."""
    return not difference(some, others)


def count(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))
