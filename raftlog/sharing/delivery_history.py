"""The outcomes of deliveries, for operators: counts since the process began, and the last deliveries that ended.

Deliveries after which a record was accepted, or that ended with their leader, are kept apart, so that they do not evict
failed ones. A record that fails again and again can then be explained long after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable
from enum import StrEnum
from typing import Final, NamedTuple

from raftlog.sharing.delivery import AcknowledgeType, DeliveryState

MOST_ENDED: Final = 10_000
"""Ranges of failed deliveries that are remembered, and as many of others; about 200 bytes each."""

MOST_GROUPS: Final = 1_000
"""Groups that are counted by themselves. All others share one count."""


class DeliveryEnd(StrEnum):
    """The end of a delivery."""

    ACKNOWLEDGED = "acknowledged"
    LOCK_OVER = "lock_over"
    SESSION_OVER = "session_over"
    LEADER_OVER = "leader_over"
    """Another broker leads, or this one begins again from the written state."""
    BY_HAND = "by_hand"
    """An operator released or archived the record."""


class EndedDelivery(NamedTuple):
    """A delivery of a range of offsets; `acquired_at` is in seconds of the machine's clock. `state`: from then on."""

    first_offset: int
    last_offset: int
    delivery_count: int
    member_id: str
    acquired_at: float
    end: DeliveryEnd
    state: DeliveryState


class PastDelivery(NamedTuple):
    """An ended delivery with wall-clock times in ms."""

    delivery: EndedDelivery
    acquired_ms: int
    ended_ms: int


class DeliveryCounts:
    """Counts of records. `archived`: after their last delivery failed, so not by a member's word.

    `letters`: dead letters written; `lost_letters`: given up; `failed_letters`: attempts that failed.
    """

    __slots__ = (
        "acknowledged",
        "acquired",
        "archived",
        "failed_letters",
        "letters",
        "lock_timeouts",
        "lost_letters",
        "redelivered",
    )

    def __init__(self) -> None:
        self.acquired = 0
        self.redelivered = 0
        self.lock_timeouts = 0
        self.archived = 0
        self.letters = self.lost_letters = self.failed_letters = 0
        self.acknowledged = [0] * len(AcknowledgeType)
        """By type."""

    def add(self, other: DeliveryCounts) -> None:
        self.acquired += other.acquired
        self.redelivered += other.redelivered
        self.lock_timeouts += other.lock_timeouts
        self.archived += other.archived
        self.letters += other.letters
        self.lost_letters += other.lost_letters
        self.failed_letters += other.failed_letters
        self.acknowledged = [
            each + more for each, more in zip(self.acknowledged, other.acknowledged, strict=True)
        ]


class CountsByGroup:
    """The counts of at most `most` groups. All further groups are counted together under the id "".

    `is_in_use`: whether a group has members here. A group without members makes room for another.
    """

    def __init__(self, is_in_use: Callable[[str], bool], most: int = MOST_GROUPS) -> None:
        self._is_in_use, self._most = is_in_use, most
        self._by_group: dict[str, DeliveryCounts] = {}
        self._others = DeliveryCounts()

    def of(self, group_id: str) -> DeliveryCounts:
        """Return a group's counts, to count in."""
        if group_id in self._by_group:
            return self._by_group[group_id]
        if len(self._by_group) >= self._most:
            idle = next((each for each in self._by_group if not self._is_in_use(each)), None)
            if idle is None:
                return self._others
            self._others.add(self._by_group.pop(idle))
        counts = self._by_group[group_id] = DeliveryCounts()
        return counts

    def all(self) -> dict[str, DeliveryCounts]:
        """Return the counts by group id, "" for the other groups if there are any."""
        others = {"": self._others} if self._others.acquired else {}
        return {**self._by_group, **others}


class DeliveryHistory:
    """The last deliveries that ended, of all share partitions of a broker."""

    def __init__(self, most: int = MOST_ENDED) -> None:
        self._failed: deque[tuple[Hashable, PastDelivery]] = deque(maxlen=most)
        self._others: deque[tuple[Hashable, PastDelivery]] = deque(maxlen=most)
        self._most = most
        self.evicted_ms = 0
        """The end of the last failed delivery that was evicted; 0 if none was."""

    def add(self, key: Hashable, past: PastDelivery) -> None:
        """Remember a delivery of a share partition."""
        if past.delivery.state is DeliveryState.ACKNOWLEDGED or past.delivery.end is DeliveryEnd.LEADER_OVER:
            self._others.append((key, past))
            return
        if len(self._failed) == self._most:
            self.evicted_ms = self._failed[0][1].ended_ms
        self._failed.append((key, past))

    def look(self, key: Hashable, offset: int) -> Generator[None, None, list[PastDelivery]]:
        """Return the remembered deliveries of one record, oldest first, after a step for each delivery.

        Deliveries that end after the first step are not among them.
        """
        found: list[PastDelivery] = []
        for whose, each in (*self._failed, *self._others):
            if each.delivery.first_offset <= offset <= each.delivery.last_offset and whose == key:
                found.append(each)
            yield
        return sorted(found, key=lambda each: (each.ended_ms, each.delivery.delivery_count))
