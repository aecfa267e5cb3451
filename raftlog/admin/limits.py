"""The share of a node's admin API that one client can take: bytes, seconds, connections. Tests use smaller limits."""

from __future__ import annotations

from typing import Final, NamedTuple

STREAMS_SHARE: Final = 4
"""A quarter of the connections may be streams of events, and another quarter streams of records."""


class Limits(NamedTuple):
    """Every bound on a client, with its unit last."""

    line_bytes: int = 8190
    """The maximum size of the request line, with its query, and of each header."""
    headers: int = 100
    """The maximum number of headers of a request."""
    parameters: int = 50
    """In a query."""
    body_bytes: int = 1 << 20
    """The maximum body of a request that is not a stream."""
    body_s: float = 15.0
    """Longest time for a body to arrive."""
    record_bytes: int = 2 << 20
    """JSON of one record of a stream; base64 makes a megabyte into 1.4 of them."""
    chunk_s: float = 15.0
    """Longest time from one record of a stream to the end of the next, and for reading a piece of a response."""
    stream_s: float = 600.0
    """Longest time that a stream of records may last, however lively: it keeps a connection from others."""
    heartbeat_s: float = 5.0
    """Longest silence of a stream of events."""
    idle_s: float = 30.0
    """A connection without a request in progress is closed after this: idle connections, slow headers and slow
    readers.
    """
    sweep_s: float = 5.0
    """How often they are looked for."""
    connections: int = 256
    """Beyond them the oldest of the address with the most is closed; they reduce the descriptors for logs."""

    scans: int = 8
    """Scans in progress, and downloads of contents; beyond them the oldest of a caller ends."""

    @property
    def streams(self) -> int:
        """Streams of events that may be open, and as many of records; beyond them the oldest of a caller ends."""
        return max(1, self.connections // STREAMS_SHARE)
