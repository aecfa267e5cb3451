"""The counts of a broker's listeners. Plain integers that only grow, except for `open_connections`."""

from __future__ import annotations

from collections import defaultdict

from raftlog.base.histogram import Histogram


class ConnectionCounters:
    """Counts of one broker server, all listeners together."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "closed_by_broker",
        "connections",
        "failed_logins",
        "idle_closed",
        "latencies",
        "long_turns",
        "open_connections",
        "refused",
        "requests",
        "throttle_ms",
        "throttled",
    )

    def __init__(self) -> None:
        self.connections = 0
        self.open_connections = 0
        self.refused = 0
        self.idle_closed = 0
        self.closed_by_broker: defaultdict[str, int] = defaultdict(int)
        """By log event, which is the reason why the broker closed connections."""
        self.failed_logins: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Keyed by mechanism and reason."""
        self.bytes_received = 0
        self.bytes_sent = 0
        self.requests: defaultdict[int, int] = defaultdict(int)
        """Keyed by API key."""
        self.latencies: defaultdict[int, Histogram] = defaultdict(Histogram)
        """Keyed by API key: seconds from a request's last byte to its response, with waits for records or replicas."""
        self.long_turns: defaultdict[int, int] = defaultdict(int)
        """Keyed by API key: turns of the event loop that requests held for longer than `LONG_TURN_S`."""
        self.throttled: defaultdict[str, int] = defaultdict(int)
        """Throttled responses, or connections refused for a quota, by the key of the quota."""
        self.throttle_ms: defaultdict[str, int] = defaultdict(int)
        """Keyed by the key of a quota: the throttle times of these responses."""
