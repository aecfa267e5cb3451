"""Faults aimed at coordinators: the leaders of the partitions with their state, and no other nodes."""

from __future__ import annotations

import random

from raftlog_chaos.faults.fault import AtCoordinator
from raftlog_chaos.faults.links import CutFromCoordinator
from raftlog_chaos.testbeds.testbed import ClusterState, PartitionView

ALL = frozenset({1, 2, 3})


def led_by(leader: int | None) -> PartitionView:
    return PartitionView(leader, ALL, ALL)


def view(paused: frozenset[int] = frozenset(), **internal: int | None) -> ClusterState:
    named = {f"__{name}": led_by(leader) for name, leader in internal.items()}
    return ClusterState(ALL, paused, ALL - paused, 1, {"t-0": led_by(1)}, named)


def coordinator(seen, seed):
    """Return the node that a fault of coordinators picks; it looks at the cluster, never at the testbed."""
    return AtCoordinator().pick(seen, None, random.Random(seed))


def test_without_transactions_and_groups_there_is_no_coordinator():
    """A leader of other partitions is no coordinator."""
    assert coordinator(view(), 1) is None


def test_either_kind_of_coordinator_is_found_as_often():
    """However many partitions the other topic has."""
    many = {f"consumer_offsets-{index}": 2 for index in range(50)}
    found = [coordinator(view(**{"transaction_state-0": 3}, **many), each) for each in range(100)]
    assert 30 < found.count(3) < 70
    assert 30 < found.count(2) < 70


def test_a_coordinator_that_is_paused_already_is_left_alone():
    """And a partition without a leader has no coordinator."""
    seen = view(frozenset({2}), **{"transaction_state-0": 2, "transaction_state-1": None})
    assert coordinator(seen, 1) is None


def test_a_leader_is_cut_from_a_coordinator_on_another_node():
    """Both ways; from another node, if the coordinator leads every partition. A cluster of one has no such link."""

    def links(seen):
        return list(CutFromCoordinator().pick_links(seen, None, random.Random(1))[1])

    assert sorted(links(view(**{"share_group_state-0": 3}))) == [(1, 3), (3, 1)]
    alone = view(**{"share_group_state-0": 1})
    assert {each for pair in links(alone) for each in pair} in ({1, 2}, {1, 3})
    assert links(alone._replace(running=frozenset({1}))) == links(view()) == []


def test_a_cluster_whose_coordinators_partitions_are_not_in_sync_is_not_whole():
    """Neither for the end of a run, nor for a fault that would destroy a replica of theirs."""
    short = PartitionView(1, frozenset({1, 2}), ALL)
    seen = view()._replace(internal={"__transaction_state-0": short})
    assert seen.lacks(ALL) == ["__transaction_state-0: leader 1, ISR [1, 2] of [1, 2, 3]"]
    assert seen.is_whole_without(3)
    assert not seen.is_whole_without(1)
