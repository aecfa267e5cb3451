"""raftlog_chaos.testbeds.testbed: what a cluster looks like from outside, and what is wrong with it."""

from __future__ import annotations

from raftlog_chaos.testbeds.testbed import ClusterState, PartitionView

ALL = frozenset({1, 2, 3})


def view(
    ready: frozenset[int] = ALL, controller: int | None = 2, **partitions: PartitionView
) -> ClusterState:
    return ClusterState(ALL, frozenset(), ready, controller, partitions)


def test_a_whole_cluster_lacks_nothing() -> None:
    """All nodes ready, a controller is active, all replicas are in sync."""
    assert view(words=PartitionView(1, ALL, ALL)).lacks(ALL) == []


def test_only_what_is_missing_is_reported() -> None:
    """A person looks for one line among forty partitions."""
    lacks = view(
        frozenset({1, 3}),
        None,
        well=PartitionView(1, ALL, ALL),
        short=PartitionView(2, frozenset({3, 2}), ALL),
        orphan=PartitionView(None, ALL, ALL),
    ).lacks(ALL)
    assert lacks == [
        "nodes [2] are not ready",
        "there is no controller",
        "short: leader 2, ISR [2, 3] of [1, 2, 3]",
        "orphan: leader None, ISR [1, 2, 3] of [1, 2, 3]",
    ]
    assert view().lacks(ALL) == ["there are no partitions"]
