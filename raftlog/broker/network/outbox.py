"""The outgoing bytes of one connection: given to its transport in pieces, and counted as long as they wait.

Ordering law: buffers leave in the order in which they are sent. The transport gets the next piece only once the kernel
has taken the last. So memory is free as soon as its bytes have left, whatever the transport copies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from raftlog.base.disk import Buffer
from raftlog.base.memory import Account
from raftlog.broker.network.progress import PRESSED, USUAL, ConnectionProgress

PIECE_BYTES: Final = 256 * 1024
"""The maximum size given to a transport at once: some join buffers, or copy what the kernel does not take."""


class Outbox:
    """`waiting_bytes` is the size of this connection in the account for responses; `update` changes it."""

    __slots__ = (
        "_account",
        "_held_bytes",
        "_hides_buffered",
        "_progress",
        "_queue",
        "_queued_bytes",
        "_sent_bytes",
        "_transport",
        "is_paused",
        "stands_still",
        "waiting_bytes",
    )

    def __init__(self, account: Account) -> None:
        self._account = account
        self._transport: asyncio.WriteTransport | None = None
        self._hides_buffered = False
        """Whether the transport is asyncio's own. Since Python 3.12 its `writelines` does not report what it
        buffers."""
        self._queue: deque[Buffer] | None = None
        self._queued_bytes = 0
        self._held_bytes = 0
        self._sent_bytes = 0
        self.waiting_bytes = 0
        """Bytes held back by an earlier response, queued here, or in the transport."""
        self.is_paused = False
        """Whether the transport holds bytes that the kernel did not take."""
        self._progress: ConnectionProgress | None = None
        self.stands_still = False
        """At the last look: whether waiting bytes move too slowly while half of the memory is used."""

    def open(self, transport: asyncio.WriteTransport) -> None:
        """Send to this transport from now on."""
        # So that the transport reports what it buffers, except for a single byte. With 0, a TLS transport would pause
        # writing on an empty buffer, and never resume it.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._hides_buffered = type(transport).__module__ == "asyncio.selector_events"

    def hold(self, size: int) -> None:
        """Count `size` bytes that wait for an earlier response. A negative size counts bytes that are sent now."""
        if self._transport is None:
            return  # cleared: the held bytes are released already
        self._held_bytes += size
        self.update()

    def send(self, buffers: list[Buffer], size: int) -> None:
        """Write buffers of `size` bytes together, behind earlier buffers."""
        transport = self._transport
        if transport is None:
            return
        self._sent_bytes += size
        if self._queue is not None or size > PIECE_BYTES:
            if self._queue is None:
                self._queue = deque()
            self._queue += buffers
            self._queued_bytes += size
            self._write_queue()
        elif len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
            if self._hides_buffered:
                _pause_if_buffered(transport)
        if self.is_paused or self.waiting_bytes:
            self.update()

    def resume(self) -> None:
        """Continue, since the kernel has taken all bytes of the transport."""
        self.is_paused = False
        if self._transport is not None:
            self._write_queue()
        self.update()

    def clear(self) -> None:
        """Drop the waiting bytes; they will not be read."""
        self._transport = None
        self._queue = None
        self._queued_bytes = self._held_bytes = 0
        self.update()

    def update(self) -> None:
        """Update the account with the bytes that wait now."""
        before, now = self.waiting_bytes, self._held_bytes + self._unsent_bytes
        if now > before:
            self._account.acquire(now - before)
        elif now < before:
            self._account.release(before - now)
        self.waiting_bytes = now

    def check_progress(self, *, crowded: bool) -> bool:
        """Return whether sent bytes leave too slowly. `IdleConnectionWatch` calls this once a second."""
        unsent = self._unsent_bytes
        if not unsent and not (crowded and self.waiting_bytes):
            self._progress, self.stands_still = None, False
            return False
        left = self._sent_bytes - unsent
        if self._progress is None:
            self._progress = ConnectionProgress(left)
        is_stuck = self._progress.is_stuck(left, PRESSED if crowded else USUAL)
        self.stands_still = crowded and is_stuck
        return is_stuck and not crowded

    @property
    def _unsent_bytes(self) -> int:
        if self._transport is None or not self.is_paused:
            return self._queued_bytes
        return self._queued_bytes + self._transport.get_write_buffer_size()

    def _write_queue(self) -> None:
        while self._queue and not self.is_paused and self._transport is not None:
            piece, size = self._next_piece(self._queue)
            self._queued_bytes -= size
            self._transport.writelines(piece)
            if self._hides_buffered:
                _pause_if_buffered(self._transport)
        if not self._queue:
            self._queue = None

    def _next_piece(self, queue: deque[Buffer]) -> tuple[list[Buffer], int]:
        piece: list[Buffer] = []
        size = 0
        while queue and size < PIECE_BYTES:
            buffer = queue.popleft()
            room = PIECE_BYTES - size
            if len(buffer) > room:
                rest = memoryview(buffer)
                queue.appendleft(rest[room:])
                buffer = rest[:room]
            piece.append(buffer)
            size += len(buffer)
        return piece, size


def _pause_if_buffered(transport: asyncio.WriteTransport) -> None:
    """Have the transport pause its protocol if it keeps bytes."""
    if transport.get_write_buffer_size():
        transport.set_write_buffer_limits(0)
