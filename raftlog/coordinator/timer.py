"""Soft state: the deadlines of sessions, pending member ids and rebalances.

A new coordinator starts anew and gives every member a whole session. `*_at` is loop seconds.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

MAX_PENDING_JOINS: Final = 5_000
"""Pending member ids per group: allocated, and not yet used."""

PENDING_JOIN_BYTES: Final = 300
"""The memory of a pending id beside its text: its entries and its key."""

MIN_STALE_ENTRIES: Final = 1_000
"""Heap entries of ended sessions that are never worth a clean-up."""


class Moment(NamedTuple):
    """A point in time: on the loop's clock (seconds) and on the wall's (ms)."""

    now: float
    now_ms: int


class TimerKind(IntEnum):
    """The kind of a deadline."""

    SESSION = 0
    PENDING_JOIN = 1
    """An id was allocated, and no member has joined with it yet."""
    REBALANCE = 2
    """The time to join again, or to sync; `member_id` is empty. In a consumer group each member has its own: to give up
    partitions, or to join or sync.
    """


class TimerKey(NamedTuple):
    """The owner of the deadline."""

    group_id: str
    member_id: str
    kind: TimerKind = TimerKind.SESSION


def _bytes_of(key: TimerKey) -> int:
    return PENDING_JOIN_BYTES + len(key.member_id)


def _always() -> bool:
    return True


class CoordinatorTimer:
    """A heap of deadlines. A renewal only writes to a dictionary: the heap entry is corrected when it comes up."""

    __slots__ = ("_expected_counts", "_expires_at", "_heap", "may_add_pending_join", "pending_join_bytes")

    def __init__(self, may_expect: Callable[[], bool] = _always) -> None:
        self.may_add_pending_join = may_expect
        """Whether the broker has room for one more pending id."""
        self.pending_join_bytes = 0
        """About how many bytes the pending ids take."""
        self._expires_at: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, TimerKey]] = []
        self._expected_counts: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many heap entries there are, stale entries included."""
        return len(self._heap)

    def schedule(self, key: TimerKey, expires_at: float) -> None:
        """Start a deadline, or move it."""
        before = self._expires_at.get(key)
        if before is None and key.kind is TimerKind.PENDING_JOIN:
            self._expected_counts[key.group_id] = self.pending_join_count(key.group_id) + 1
            self.pending_join_bytes += _bytes_of(key)
        self._expires_at[key] = expires_at
        if before is None or expires_at < before:
            heapq.heappush(self._heap, (expires_at, key))
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Rebuild the heap if most entries are stale: each would stay until its deadline."""
        if len(self._heap) > 2 * len(self._expires_at) + MIN_STALE_ENTRIES:
            self._heap = [(at, key) for key, at in self._expires_at.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        """Cancel a deadline; it need not exist."""
        if self._expires_at.pop(key, None) is not None and key.kind is TimerKind.PENDING_JOIN:
            self.pending_join_bytes -= _bytes_of(key)
            left = self._expected_counts[key.group_id] - 1
            if left:
                self._expected_counts[key.group_id] = left
            else:
                del self._expected_counts[key.group_id]

    def is_scheduled(self, key: TimerKey) -> bool:
        return key in self._expires_at

    def is_pending_join(self, group_id: str, member_id: str) -> bool:
        return TimerKey(group_id, member_id, TimerKind.PENDING_JOIN) in self._expires_at

    def pending_join_count(self, group_id: str) -> int:
        return self._expected_counts.get(group_id, 0)

    def next_expiry_at(self) -> float | None:
        """Return when to call `pop_expired` next; it may then be empty."""
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now: float, most: int = sys.maxsize) -> list[TimerKey]:
        """Remove and return the deadlines up to `now`, at most `most`."""
        ended: list[TimerKey] = []
        while self._heap and self._heap[0][0] <= now and len(ended) < most:
            _, key = heapq.heappop(self._heap)
            expires_at = self._expires_at.get(key)
            if expires_at is None:
                continue
            if expires_at > now:
                heapq.heappush(self._heap, (expires_at, key))
            else:
                ended.append(key)
                self.cancel(key)
        return ended

    def postpone_all(self, seconds: float) -> None:
        """Extend all deadlines after a stall of the coordinator's own loop."""
        self._expires_at = {key: at + seconds for key, at in self._expires_at.items()}
        self._heap = [(at + seconds, key) for at, key in self._heap]
