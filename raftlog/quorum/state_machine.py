"""The contract between the journal and the state machine that gives its bytes a meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class StateMachine(Protocol):
    """Called on the loop, one call at a time. Each may call `Quorum.append`."""

    def apply(self, data: bytes) -> None:
        """Apply one committed batch; all nodes get the same batches in the same order. An exception stops the node."""

    def snapshot(self) -> Callable[[], bytes]:
        """Capture the present state; the returned call encodes it later, on any thread."""

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. An exception stops the node."""

    def leadership_changed(self, leader_id: int | None, term: int, leading: bool) -> None:
        """Note the leader. `leading`: this node leads, and has applied everything committed before its term.

        A loss of leadership comes before any batch or snapshot that another leader committed.
        """
