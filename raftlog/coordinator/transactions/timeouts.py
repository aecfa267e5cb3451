"""Soft state: the deadline of each open transaction; a new coordinator starts anew. `*_at`: loop seconds.

`TransactionCoordinator.tick` takes the due ids, and `decisions.decide_timeout` aborts them.
"""

from __future__ import annotations

import heapq
from typing import Final

MIN_STALE_ENTRIES: Final = 1_000
"""Heap entries of transactions that ended in time which are never worth a clean-up."""


class Timeouts:
    """Deadlines by transactional id. Cancelled deadlines leave the heap when they come up, or are too many."""

    __slots__ = ("_due_at", "_heap")

    def __init__(self) -> None:
        self._due_at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._due_at

    def __len__(self) -> int:
        """How many heap entries there are, cancelled deadlines included."""
        return len(self._heap)

    def set(self, transactional_id: str, due_at: float) -> None:
        """Set a deadline in place of any other of this id."""
        self._due_at[transactional_id] = due_at
        heapq.heappush(self._heap, (due_at, transactional_id))
        if len(self._heap) > 2 * len(self._due_at) + MIN_STALE_ENTRIES:
            self._heap = [(at, each) for each, at in self._due_at.items()]
            heapq.heapify(self._heap)

    def cancel(self, transactional_id: str) -> None:
        """Cancel a deadline; it need not exist."""
        self._due_at.pop(transactional_id, None)

    def pop_due(self, now: float, *, most: int) -> list[str]:
        """Remove and return at most `most` ids with an expired deadline."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(found) < most:
            at, transactional_id = heapq.heappop(self._heap)
            if self._due_at.get(transactional_id) == at:
                del self._due_at[transactional_id]
                found.append(transactional_id)
        return found
