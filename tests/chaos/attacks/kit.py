"""Measurements of an unharmed cluster, to be changed by tests, and a session without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raftlog_chaos.attacks.registry import Attack, Shape
from raftlog_chaos.attacks.session import Closing
from raftlog_chaos.attacks.verdict import (
    MIB,
    ClusterObservation,
    Limits,
    NodeObservation,
    Outcome,
    Times,
    conclude,
)

LIMITS = Limits()
NODES = (1, 2, 3)


def an_attack(name: str = "one", shape: Shape = "usual") -> Attack:
    return Attack(name, "It does nothing.", "kafka", 1.0, lambda _: "", shape=shape)


def calm(**changes: Any) -> ClusterObservation:
    """Return an unharmed cluster with the changes of a test."""
    nodes = {
        node: NodeObservation(
            idle_bytes=90 * MIB,
            peak_bytes=100 * MIB,
            rest_bytes=92 * MIB,
            idle_files=50,
            rest_files=52,
            stall_s=0.01,
        )
        for node in NODES
    }
    given = {
        "nodes": nodes,
        "sends": Times(500, 0.02, 0.05),
        "reads": Times(500, 0.03, 0.06),
        "answered": "closed",
    }
    return ClusterObservation(**(given | changes))


def with_node(node: int, **changes: Any) -> ClusterObservation:
    """Return the same with changes to one node that has not settled in time."""
    seen = calm(settled_s=None)
    for name, value in changes.items():
        setattr(seen.nodes[node], name, value)
    return seen


@dataclass
class FakeSession:
    """Strikes with outcomes from a test, by attack and by the attacks before it."""

    seen_of: Callable[[Attack, list[str]], ClusterObservation]
    closing_of: Callable[[list[str]], Closing] = lambda _: Closing([], [])
    struck: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def open(self, *, warm: bool) -> None:
        self.log.append("open" if warm else "open cold")

    def strike(self, attack: Attack) -> Outcome:
        seen = self.seen_of(attack, list(self.struck))
        self.struck.append(attack.name)
        self.log.append(attack.name)
        return conclude(attack, seen, LIMITS)

    def close(self) -> Closing:
        self.log.append("close")
        return self.closing_of(self.struck)

    def abandon(self) -> None:
        self.log.append("abandon")
