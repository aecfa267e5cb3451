"""A connection to another broker's listener: complete response frames in order, received in place.

A frame is a view of the receive buffer, valid only during the `on_frame` call. Followers write it to their logs right
there, without a copy. Memory is bounded by the largest frame allowed and grows with the bytes that arrive. Memory for
a burst is released. Only short frames are accepted until the other end is authenticated as a broker (`adopt`).

An error in the other broker's bytes costs this connection only. Writes to a closed transport are skipped, since some
event loops ignore them silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

from raftlog.base.guard import Guard
from raftlog.base.log import get_logger

USUAL_BYTES: Final = 64 * 1024
SHRINK_AFTER_FRAMES: Final = 256
"""The number of consecutive small frames after which a larger buffer is released."""
_LENGTH = Struct(">i")
_LENGTH_BYTES: Final = 4

log = get_logger(__name__)


class PeerChannel(asyncio.BufferedProtocol, Guard):
    """`on_frame` receives each response without its length. `on_lost` is called once, when the connection has ended."""

    def __init__(
        self, *, max_frame_bytes: int, on_lost: Callable[[Exception | None], None] = lambda _error: None
    ) -> None:
        self._trusted_frame_bytes = max_frame_bytes
        self._max_frame_bytes = min(max_frame_bytes, USUAL_BYTES)
        self._on_lost = on_lost
        self.on_frame: Callable[[memoryview], None] = _unasked
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(USUAL_BYTES))
        self._filled = 0
        self._small_frames = 0

    def adopt(self, on_lost: Callable[[Exception | None], None]) -> None:
        """Trust the other end as an authenticated broker, and accept long frames.

        The new `on_lost` is called when the connection ends. Raises ConnectionResetError if it has ended already.
        """
        if self._transport is None:
            raise ConnectionResetError("the peer closed the connection right after its answer")
        self._max_frame_bytes = self._trusted_frame_bytes
        self._on_lost = on_lost

    def send(self, frame: bytes) -> None:
        """Write one request frame. It is dropped silently if the connection is lost, which `on_lost` reports."""
        if self._transport is None:
            return
        try:
            self._transport.write(frame)
        except RuntimeError:  # uvloop closed it without a notification
            self.connection_lost(None)

    def close(self) -> None:
        """Drop the connection at once. `on_lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        self.close()

    def crash(self, what: str) -> None:
        self.close()
        log.exception("peer_channel_crashed", what=what)

    async def ask(self, frame: bytes) -> bytes:
        """Send one frame and wait for one response. This is for the handshake, before frames are received in place."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        lost, self._on_lost = self._on_lost, lambda error: _fail(answer, error)
        self.on_frame = lambda view: _give(answer, bytes(view))
        self.send(frame)
        try:
            found = await answer
        finally:
            self._on_lost = lost
            self.on_frame = _unasked
        if self._transport is None:
            raise ConnectionResetError("the peer closed the connection right after its answer")
        return found

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._filled += nbytes
            self._take_frames()
        except Exception:
            self.crash("buffer_updated")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self.run_guarded(self._on_lost, exc)

    # Inside.

    def _take_frames(self) -> None:
        buffer, filled = self._buffer, self._filled
        position = 0
        while filled - position >= _LENGTH_BYTES:
            size = _LENGTH.unpack_from(buffer, position)[0]
            if not 0 < size <= self._max_frame_bytes:
                self.close()
                return
            end = position + _LENGTH_BYTES + size
            if end > filled:
                self._make_room(position, _LENGTH_BYTES + size)
                return
            self.on_frame(buffer[position + _LENGTH_BYTES : end])
            self._small_frames = self._small_frames + 1 if size < USUAL_BYTES else 0
            position = end
        self._make_room(position, 0)

    def _make_room(self, position: int, needed: int) -> None:
        """Keep the bytes from `position`, in a buffer for `needed` bytes, or twice what has arrived of them."""
        rest = self._buffer[position : self._filled]
        size = max(min(needed, 2 * len(rest)), USUAL_BYTES)
        if len(self._buffer) < size or (
            len(self._buffer) > size and self._small_frames >= SHRINK_AFTER_FRAMES
        ):
            buffer = memoryview(bytearray(size))
            buffer[: len(rest)] = rest
            self._buffer = buffer
        elif position and rest:
            self._buffer[: len(rest)] = rest
        self._filled = len(rest)


def _unasked(frame: memoryview) -> None:
    raise ConnectionError("an answer to no question")


def _give(answer: asyncio.Future[bytes], frame: bytes) -> None:
    if not answer.done():
        answer.set_result(frame)


def _fail(answer: asyncio.Future[bytes], error: Exception | None) -> None:
    if not answer.done():
        answer.set_exception(error or ConnectionResetError("the peer closed the connection"))
