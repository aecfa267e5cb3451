"""The levels of the metadata that nodes support. A node that lacks the cluster's level is refused by each other one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of the metadata that a node supports, both inclusive, and the one that the cluster has finalized."""

    lowest: int = 0
    highest: int = 0
    finalized: Callable[[], int | None] = lambda: None
    """None: not known yet."""


def why_too_old(ours: Levels, node_id: int, theirs: tuple[int, int]) -> str | None:
    """Return the reason to refuse a peer whose release does not support the cluster's level, or None."""
    finalized, (lowest, highest) = ours.finalized(), theirs
    if finalized is None or lowest <= finalized <= highest:
        return None
    return (
        f"node {node_id} supports levels {lowest} to {highest} of raftlog.metadata.version, "
        f"and the cluster's is {finalized}: install the cluster's release on node {node_id}"
    )
