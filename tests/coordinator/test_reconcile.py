"""A member's next step to its target: no partition has two owners, in any order of heartbeats (KIP-848)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.coordinator.consumer.consumer_membership import (
    ConsumerMembership,
    CurrentAssignment,
    MemberState,
    Partitions,
)
from raftlog.coordinator.consumer.decision_builder import PartitionsOfOthers
from raftlog.coordinator.consumer.reconcile import difference, next_assignment, union, union_all
from tests.coordinator.group_coordinator_setup import topic_id

T = topic_id("t")
TOPIC_PARTITIONS = 6


def share(*indexes: int) -> Partitions:
    return {T: frozenset(indexes)} if indexes else {}


OWNERS = st.lists(st.sampled_from("abc"), min_size=TOPIC_PARTITIONS, max_size=TOPIC_PARTITIONS)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40)


def targets_of(owners: list[str]) -> dict[str, Partitions]:
    return {who: share(*(index for index, owner in enumerate(owners) if owner == who)) for who in "abc"}


@given(rounds=st.lists(st.tuples(OWNERS, STEPS), min_size=1, max_size=4))
@settings(deadline=None)
def test_no_partition_has_two_owners_and_every_assignment_is_reached(
    rounds: list[tuple[list[str], list[tuple[str, bool]]]],
) -> None:
    """Members come in any order, and revoke at once or later."""
    currents = dict.fromkeys("abc", CurrentAssignment())
    owned: dict[str, Partitions] = {"a": {}, "b": {}, "c": {}}

    def step(who: str, epoch: int, targets: dict[str, Partitions], *, obeys: bool) -> None:
        if obeys:
            owned[who] = currents[who].assigned
        state = ConsumerMembership(current_assignments=currents)
        currents[who] = next_assignment(
            currents[who],
            targets[who],
            target_epoch=epoch,
            owned=owned[who],
            held=PartitionsOfOthers(state, but=who),
        )
        hands = [union(each.assigned, each.revoking) for each in currents.values()]
        assert sum(len(each.get(T, ())) for each in hands) == len(union_all(hands).get(T, ()))
        for each in "abc":
            assert not difference(owned[each], union(currents[each].assigned, currents[each].revoking))

    for epoch, (owners, steps) in enumerate(rounds, 1):
        targets = targets_of(owners)
        for who, obeys in steps:
            step(who, epoch, targets, obeys=obeys)
    for _ in range(3):
        for who in "abc":
            step(who, len(rounds), targets, obeys=True)
    for who, current in currents.items():
        assert (current.epoch, current.state) == (len(rounds), MemberState.STABLE)
        assert current.assigned == targets[who] and not current.revoking


def test_a_heartbeat_without_partitions_means_that_the_member_still_owns_all() -> None:
    """Most heartbeats have no partitions: that does not confirm a revocation."""
    current = CurrentAssignment(1, 0, MemberState.STABLE, share(0, 1))
    told = next_assignment(current, share(0), target_epoch=2, owned=None, held=lambda _: {})
    assert (told.state, told.epoch, told.revoking) == (MemberState.UNREVOKED_PARTITIONS, 1, share(1))
    assert next_assignment(told, share(0), target_epoch=2, owned=None, held=lambda _: {}) is told
    done = next_assignment(told, share(0), target_epoch=2, owned=share(0), held=lambda _: {})
    assert (done.state, done.epoch, done.previous_epoch) == (MemberState.STABLE, 2, 1)
