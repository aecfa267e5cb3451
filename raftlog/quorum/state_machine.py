"""The contract between the journal and the state machine that gives its bytes a meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class StateMachine(Protocol):
    """Called on the loop, one call at a time; `append` may be called from inside any of these."""

    def apply(self, data: bytes) -> None:
        """Take one committed batch; every node gets the same ones in the same order. Raising stops the node."""

    def snapshot(self) -> Callable[[], bytes]:
        """Capture the state as it is now; what is returned encodes it later, on any thread."""

    def restore(self, data: bytes) -> None:
        """Replace the state by a snapshot. Raising stops the node."""

    def leadership_changed(self, leader_id: int | None, term: int, leading: bool) -> None:
        """Learn who leads. `leading`: we do, and everything committed before our term has been applied.

        Loss is told before anything is applied or restored that another leader committed.
        """
