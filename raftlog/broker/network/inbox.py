"""The receive buffer of one connection, and the decision to read from its socket or not.

The buffer holds the beginning of an incomplete frame, or whole frames that have to wait (`is_blocked`). Its bytes count
in the memory for requests (`request_memory.py`), which may pause reading until there is room. This module knows neither
responses nor the limits that block a frame.
"""

from __future__ import annotations

import asyncio

from raftlog.broker.network.progress import HOLDING_UP, PRESSED, USUAL, ConnectionProgress, Pace
from raftlog.broker.network.request_memory import FrameRest, RequestMemory
from raftlog.protocol.frames import PREFIX_BYTES


class Inbox:
    """A connection's receive buffer, which is the `FrameReader` that the memory for requests sees."""

    __slots__ = (
        "_is_paused",
        "_progress",
        "_requests",
        "_transport",
        "granted",
        "is_blocked",
        "is_muted",
        "needed_bytes",
        "rest",
    )

    def __init__(self, requests: RequestMemory) -> None:
        self._requests = requests
        self._transport: asyncio.ReadTransport | None = None
        self._progress: ConnectionProgress | None = None
        self._is_paused = False
        self.rest: FrameRest | None = None
        """The held bytes, or None."""
        self.needed_bytes = PREFIX_BYTES
        """The length of the first frame, or of its length field until that has arrived."""
        self.is_muted = False
        """Whether reading is paused for a throttle time, whatever the room (KIP-219)."""
        self.is_blocked = False
        """Whether the first frame waits: a whole frame for a limit, or an invalid frame for earlier requests.

        Reading is paused meanwhile.
        """
        self.granted = 0

    def open(self, transport: asyncio.ReadTransport) -> None:
        """Use this transport for pausing and resuming reads."""
        self._transport = transport

    def close(self) -> None:
        """Drop the held bytes. The transport is not used any more."""
        self._transport = None
        self._drop()

    @property
    def held_bytes(self) -> int:
        return 0 if self.rest is None else self.rest.size

    def mute(self) -> None:
        """Stop reading until `is_muted` is cleared."""
        self.is_muted = True
        self._pause()

    def room(self) -> memoryview:
        """Return the buffer for the next bytes, after the held bytes."""
        assert self.rest is not None
        return self.rest.room(self.needed_bytes)

    def received(self, count: int) -> None:
        """Count bytes that were received into `room`."""
        assert self.rest is not None
        self.rest.size += count
        self._requests.arrived(self, count)

    def keep(self, view: memoryview, start: int, end: int) -> None:
        """Keep only the bytes from `start` to `end`. Keep none if that is empty, or after `close`."""
        if start == end or self._transport is None:
            self._drop()
            self._resume()
            return
        before = self.rest
        if before is None or start:
            self.rest = FrameRest(view[start:end], self.needed_bytes, self._requests.mappings)
            self._progress = None
            if before is None:
                self._requests.acquire(end - start)
            else:
                before.free()
                self._requests.release(start)

    def read_or_stop(self, *, needs_grant: bool) -> None:
        """Resume reading, or pause it while a frame is blocked. With `needs_grant`, wait while memory is short."""
        if self.is_blocked or self.is_muted:
            self._pause()
        elif self.rest is not None and needs_grant and self._requests.is_short and not self.granted:
            self._pause()
            self._requests.wait(self, self.needed_bytes - self.rest.size)
        else:
            self._resume()

    def read_on(self) -> None:
        """Resume reading: memory for the rest of the incomplete frame was granted."""
        self._progress = None
        self._resume()

    def check_progress(self) -> bool:
        """Return whether an incomplete frame arrives too slowly. `IdleConnectionWatch` calls this once a second."""
        if self.rest is None or self.is_blocked or self.is_muted or self._requests.is_waiting(self):
            self._progress = None
            return False
        self.rest.trim()  # only bytes that have arrived count
        arrived = self.rest.size
        if self._progress is None:
            self._progress = ConnectionProgress(arrived)
        return self._progress.is_stuck(arrived, self._pace())

    def _pace(self) -> Pace:
        if self._requests.holds_up_others(self):  # perhaps with bytes that were promised to it alone
            return HOLDING_UP
        return PRESSED if self._requests.is_short else USUAL

    def _drop(self) -> None:
        rest, self.rest = self.rest, None
        self.is_blocked = False
        if rest is not None:
            rest.free()
            self._requests.remove(self)
            self._requests.release(rest.size)

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None and not self.is_muted:
            self._is_paused = False
            self._transport.resume_reading()
