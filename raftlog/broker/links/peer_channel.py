"""A connection to another broker's listener: complete response frames in order, received in place.

A frame is a view of the receive buffer (`FrameBuffer`), valid only during the `on_frame` call. Followers write it to
their logs right there, without a copy. Only short frames are accepted until the other end is authenticated as a broker
(`adopt`).

An error in the other broker's bytes costs this connection only. Writes to a closed transport are skipped, since some
event loops ignore them silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from raftlog.base.guard import Guard
from raftlog.base.log import get_logger
from raftlog.protocol.frames import USUAL_BYTES, FrameBuffer, FramingLost

log = get_logger(__name__)


class PeerChannel(FrameBuffer, asyncio.BufferedProtocol, Guard):
    """`on_frame` receives each response without its length. `on_lost` is called once, when the connection has ended."""

    def __init__(
        self, *, max_frame_bytes: int, on_lost: Callable[[Exception | None], None] = lambda _error: None
    ) -> None:
        super().__init__(min(max_frame_bytes, USUAL_BYTES))
        self.on_frame: Callable[[memoryview], None] = _unasked
        self._trusted_frame_bytes = max_frame_bytes
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None

    def adopt(self, on_lost: Callable[[Exception | None], None]) -> None:
        """Trust the other end as an authenticated broker, and accept long frames.

        The new `on_lost` is called when the connection ends. Raises ConnectionResetError if it has ended already.
        """
        if self._transport is None:
            raise ConnectionResetError("the peer closed the connection right after its response")
        self.max_frame_bytes = self._trusted_frame_bytes
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
            raise ConnectionResetError("the peer closed the connection right after its response")
        return found

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.take_frames(nbytes, self.on_frame)
        except FramingLost:
            self.close()
        except Exception:
            self.crash("buffer_updated")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self.run_guarded(self._on_lost, exc)


def _unasked(frame: memoryview) -> None:
    raise ConnectionError("a response without a request")


def _give(answer: asyncio.Future[bytes], frame: bytes) -> None:
    if not answer.done():
        answer.set_result(frame)


def _fail(answer: asyncio.Future[bytes], error: Exception | None) -> None:
    if not answer.done():
        answer.set_exception(error or ConnectionResetError("the peer closed the connection"))
