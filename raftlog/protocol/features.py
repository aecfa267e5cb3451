"""Features: protocols of several APIs that a client may use as a whole, by level (KIP-584).

A feature is advertised once every API that it rests on is served; its level is the same on all brokers of a version.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple


class Feature(NamedTuple):
    """One feature: the levels that raftlog knows, the one in force, and the keys of the APIs that it needs."""

    name: str
    lowest: int
    highest: int
    finalized: int
    needs: frozenset[int]


FEATURES: Final = (
    # KIP-890: Produce 12, EndTxn 5 and TxnOffsetCommit 5 as Java's producer uses them.
    Feature("transaction.version", 0, 2, 2, frozenset({0, 22, 24, 25, 26, 27, 28})),
)


def features(served: Collection[int]) -> tuple[Feature, ...]:
    """Return the features that can be used where these APIs are served."""
    return tuple(each for each in FEATURES if each.needs <= frozenset(served))
