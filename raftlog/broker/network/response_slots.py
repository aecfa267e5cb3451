"""A response's place in the order of its connection.

Ordering law: responses leave a connection in the order of its requests, however they become ready. Only Produce
requests overlap. Any other open request delays later requests, as all requests do in Kafka's brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftlog.base.disk import Buffer

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection


class Slot:
    """One response that is not ready yet, or waits for earlier responses."""

    __slots__ = ("api_key", "arrived_at", "buffers", "connection", "overlaps")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.buffers: Sequence[Buffer] | None = None
        self.overlaps = False
        """Whether later requests may be handled while it is open."""
        self.api_key = 0
        self.arrived_at = 0.0
        """Set by the connection that holds it, for its latency."""

    def answer(self, buffers: Sequence[Buffer]) -> None:
        """Set the whole response frame, once; empty if there is no response."""
        assert self.buffers is None, "a response slot is answered once"
        self.buffers = buffers
        self.connection.answered(self)

    def hurry(self) -> None:
        """Complete now if this only waits for more data, since another request has arrived behind it."""

    def abandoned(self) -> None:
        """Stop waiting: the connection is closed, and the response will not be read."""


class ReadySlot(Slot):
    """A response that was ready immediately but is not the first in line."""

    __slots__ = ()

    def __init__(self, connection: Connection, buffers: Sequence[Buffer]) -> None:
        self.connection = connection
        self.buffers = buffers
        self.overlaps = True
