"""The share of a node's admin API that one client can take: bytes, seconds, connections. A test gives smaller ones."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Every bound on a client, with its unit last."""

    line_bytes: int = 8190
    """Of the request line, with its query; and of each header."""
    headers: int = 100
    """Of one request."""
    parameters: int = 50
    """In a query."""
    body_bytes: int = 1 << 20
    """Of a request that is no stream."""
    body_s: float = 15.0
    """Longest time for a body to arrive."""
    record_bytes: int = 2 << 20
    """JSON of one record of a stream; base64 makes a megabyte into 1.4 of them."""
    chunk_s: float = 15.0
    """Longest time from one record of a stream to the end of the next, and for a piece of an answer to be taken."""
    stream_s: float = 600.0
    """Longest time that a stream of records may last, however lively: it keeps a connection from others."""
    event_streams: int = 64
    """Streams of events that may be open; further ones are refused."""
    heartbeat_s: float = 5.0
    """Longest silence of a stream of events."""
    idle_s: float = 30.0
    """A connection on which nothing is being handled is cut after this: idle ones, slow headers and slow readers."""
    sweep_s: float = 5.0
    """How often they are looked for."""
    connections: int = 256
    """Beyond them the quietest is cut for a new one; they take from the files that the logs may have open."""
    handshakes: int = 64
    """TLS connections that have not said who they are yet; beyond them new ones are refused."""
    handshake_s: float = 5.0
    """Longest time for a TLS handshake."""
