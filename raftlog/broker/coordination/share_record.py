"""The share partitions that a broker leads, for operators: counts, times of writes, and ended deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from raftlog.base.histogram import Histogram
from raftlog.coordinator.share_state.share_state import SharePartitionKey
from raftlog.sharing.delivery_history import CountsByGroup, DeliveryHistory, EndedDelivery, PastDelivery

UNKNOWN_CLOCK: Final = 0

MOST_CLIENTS: Final = 4_000
"""Members that are remembered by their client ids, those last that opened a share session last."""

MOST_CLIENT_ID_CHARS: Final = 100


class ShareRecord:
    """The record of one broker, since its process began. `wall_clock_ms` is its clock."""

    def __init__(
        self,
        is_in_use: Callable[[str], bool] = lambda group_id: True,
        wall_clock_ms: Callable[[], int] = lambda: UNKNOWN_CLOCK,
    ) -> None:
        self.counts = CountsByGroup(is_in_use)
        self.history = DeliveryHistory()
        self.write_seconds = Histogram()
        """The times of successful writes to the share coordinators."""
        self._wall_clock_ms = wall_clock_ms
        self.began_ms = wall_clock_ms()
        self.clients: dict[str, tuple[str, str]] = {}
        """The client id and the host of members, by member id."""

    def opened(self, member_id: str, client_id: str, host: str) -> None:
        """Remember the client of a member that opens a share session: its deliveries are shown by that name."""
        self.clients.pop(member_id, None)
        self.clients[member_id] = client_id[:MOST_CLIENT_ID_CHARS], host
        if len(self.clients) > MOST_CLIENTS:
            del self.clients[next(iter(self.clients))]

    def remember(self, key: SharePartitionKey, ended: EndedDelivery, *, now: float) -> None:
        """Remember a delivery that ended at `now`, in seconds of the machine's clock."""
        ended_ms = self._wall_clock_ms()
        acquired_ms = ended_ms - round((now - ended.acquired_at) * 1000)
        self.history.add(key, PastDelivery(ended, acquired_ms, ended_ms))
