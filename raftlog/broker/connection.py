"""One client's connection: bytes in, frames cut in place, responses out in the order of the requests.

Knows nothing of what a request is for. A frame is a view of the receive buffer and is only valid while it is handled:
who needs its bytes later copies them. Memory is bounded: by the largest frame that really arrived, `MAX_OPEN_SLOTS`
waiting responses, and one response beyond `WRITE_HIGH_BYTES` that the client has not taken yet. Past a limit the
connection stops handling frames, then stops reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from raftlog.base.disk import Buffer
from raftlog.base.log import get_logger
from raftlog.broker.dispatch import dispatch
from raftlog.broker.slots import ReadySlot, Slot
from raftlog.protocol.frames import PREFIX_BYTES, FramingLost, frame_length

if TYPE_CHECKING:
    from raftlog.broker.peer_auth import ServerHandshake
    from raftlog.broker.server import BrokerServer
    from raftlog.replication.host import ReplicaId

RECEIVE_MIN_BYTES: Final = 16 * 1024
"""Receive buffer of a new or quiet connection."""

RECEIVE_USUAL_BYTES: Final = 256 * 1024
"""What the receive buffer of a busy connection grows to; a larger frame makes it grow to that frame."""

MAX_OPEN_SLOTS: Final = 128
"""Requests of one connection whose responses are not written yet."""

WRITE_HIGH_BYTES: Final = 1024 * 1024
WRITE_LOW_BYTES: Final = 256 * 1024
"""Unsent response bytes at which a connection stops handling requests, and at which it goes on."""

UNKNOWN: Final = ("unknown", "unknown")
"""Name and version of the software of a client that has not said them (KIP-511)."""

PLAIN_MAX_BYTES: Final = 1 << 28
"""A frame up to this is certainly no other protocol's beginning, so its length needs no second look."""

_LENGTH = Struct(">i")

log = get_logger(__name__)


class Connection(asyncio.BufferedProtocol):
    """One accepted connection of one listener."""

    __slots__ = (
        "_active",
        "_arrived_at",
        "_blocked",
        "_closing",
        "_cut_due",
        "_cutting",
        "_filled",
        "_finishing",
        "_frame_max_bytes",
        "_out",
        "_out_bytes",
        "_plain_max_bytes",
        "_quiet_sweeps",
        "_read_paused",
        "_slots",
        "_start",
        "_transport",
        "_view",
        "_waiting_for",
        "_write_paused",
        "api_key",
        "handshake",
        "is_follower",
        "lane",
        "listener",
        "number",
        "peer",
        "peer_host",
        "peer_port",
        "server",
        "session_ids",
        "software",
        "to_controller",
    )

    def __init__(self, server: BrokerServer, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.to_controller = listener in server.config.controller_listener_names
        """Whether the other end came to the controller's listener, where only some APIs are served (KIP-919)."""
        self.number = 0
        """Counts up in the order in which connections were accepted."""
        self.peer_host = ""
        self.peer_port = 0
        self.software = UNKNOWN
        self.peer: ReplicaId | None = None
        """The broker at the other end, once it proved the cluster secret."""
        self.is_follower = False
        """Whether that broker came to fetch as a replica; else it only asks."""
        self.lane = 0
        self.handshake: ServerHandshake | None = None
        self.session_ids: set[int] = set()
        """Fetch sessions that end with this connection."""
        self._frame_max_bytes = server.request_max_bytes
        self._plain_max_bytes = min(server.request_max_bytes, PLAIN_MAX_BYTES)
        self._view = memoryview(bytearray(RECEIVE_MIN_BYTES))
        self._start = 0  # bytes before it are handled, from it to _filled are not
        self._filled = 0
        self._slots: deque[Slot] = deque()
        self._out: list[Buffer] = []  # of what is handled now; they leave together
        self._out_bytes = 0
        self._waiting_for: Slot | None = None
        self._cutting = False
        self._cut_due = False
        self._blocked = False  # a complete frame waits in the buffer
        self._read_paused = False
        self._write_paused = False
        self._closing = False
        self._finishing = False
        self._active = True
        self._quiet_sweeps = 0
        self._arrived_at = 0.0
        self.api_key = 0
        """Of the request being handled."""
        self._transport: asyncio.Transport | None = None

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.server.tune(transport)
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else ""
        self.peer_port = int(peer[1]) if peer else 0
        self.server.connection_opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._active = True
        self.server.counters.bytes_received += nbytes
        self._cut()

    def take_over(self, transport: asyncio.Transport, received: bytes) -> None:
        """Go on with a connection that another protocol accepted, and with what that one has read."""
        transport.pause_reading()
        transport.set_protocol(self)
        self.connection_made(transport)
        if not self.is_open:
            return
        transport.resume_reading()  # into this protocol's own buffer
        if len(received) > len(self._view):
            self._view = memoryview(bytearray(len(received)))
        self._view[: len(received)] = received
        self.buffer_updated(len(received))

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._go_on()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.abandoned()
        self._out = []
        self._transport = None
        self.server.connection_closed(self)

    # Called by those who handle requests.

    @property
    def is_open(self) -> bool:
        return not self._closing

    def respond(self, buffers: Sequence[Buffer]) -> None:
        """Answer the request being handled, at once."""
        server = self.server
        server.counters.latencies[self.api_key].observe(server.stopwatch() - self._arrived_at)
        if self._slots:
            self._slots.append(ReadySlot(self, buffers))
        else:
            self._out += buffers
            self._out_bytes += sum(map(len, buffers))

    def hold(self, slot: Slot) -> None:
        """Keep the place of the request being handled until `slot.answer`."""
        if slot.buffers is not None:
            return self.respond(slot.buffers)
        slot.api_key, slot.arrived_at = self.api_key, self._arrived_at
        self._slots.append(slot)
        if not slot.overlaps:
            self._waiting_for = slot

    def overlap(self, slot: Slot) -> None:
        """From now on, requests behind that one may be handled while it is open."""
        slot.overlaps = True
        if slot is self._waiting_for:
            self._waiting_for = None
            self._go_on()

    def answered(self, slot: Slot) -> None:
        """A slot has its response: send it and those it held back."""
        server = self.server
        server.counters.latencies[slot.api_key].observe(server.stopwatch() - slot.arrived_at)
        if slot is self._waiting_for:
            self._waiting_for = None
        slots = self._slots
        if not slots or slots[0] is not slot:
            return
        while slots and (buffers := slots[0].buffers) is not None:
            self._out += buffers
            self._out_bytes += sum(map(len, buffers))
            slots.popleft()
        if not self._cutting:
            self._flush()
            self._go_on()

    def close(self, event: str, **facts: object) -> None:
        """Say why in one log line and close; what is written already still leaves."""
        if self._closing:
            return
        log.warning(event, listener=self.listener, peer=self.peer_host, **facts)
        self.server.counters.closed_by_broker[event] += 1
        self._close()

    def crash(self, what: str) -> None:
        """Log the exception being handled, which is our fault, and close at once."""
        log.exception("request_crashed", what=what, listener=self.listener, peer=self.peer_host)
        self.server.counters.closed_by_broker["request_crashed"] += 1
        self.abort()

    # Called by the server.

    def sweep(self, *, max_quiet_sweeps: int) -> None:
        """Give back memory that is not needed now; close if nothing came for `max_quiet_sweeps` (0: never) sweeps."""
        if self._start == self._filled and len(self._view) > self._quiet_capacity():
            self._view = memoryview(bytearray(self._quiet_capacity()))
            self._start = self._filled = 0
        if self._active or self._slots:
            self._active = False
            self._quiet_sweeps = 0
            return
        self._quiet_sweeps += 1
        if 0 < max_quiet_sweeps <= self._quiet_sweeps:
            self.server.counters.idle_closed += 1
            self._close()

    def finish(self) -> None:
        """Handle no more requests; close as soon as the open produce requests are answered."""
        self._finishing = True
        self._close_if_finished()

    def abort(self) -> None:
        """Close now; what is not sent is lost."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Inside.

    def _close(self) -> None:
        self._flush()
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _quiet_capacity(self) -> int:
        return RECEIVE_USUAL_BYTES if self._active else RECEIVE_MIN_BYTES

    def _is_held_up(self) -> bool:
        return (
            self._waiting_for is not None
            or self._write_paused
            or len(self._slots) >= MAX_OPEN_SLOTS
            or self._closing
            or self._finishing
        )

    def _cut(self) -> None:
        """Handle the complete frames in the buffer as far as the limits allow, then send what they answered."""
        self._cut_due = False
        self._cutting = True
        self._arrived_at = self.server.stopwatch()
        try:
            self._blocked = self._handle_frames()
        except FramingLost as lost:
            self.close("framing_lost", reason=str(lost))
        finally:
            self._cutting = False
        if self._out:
            self._flush()
        if self._blocked:
            self._pause_reading()
        elif self._start == self._filled < len(self._view) and not self._read_paused:
            self._start = self._filled = 0
        elif not self._closing:
            self._make_room()

    def _handle_frames(self) -> bool:
        """Say whether a complete frame was left because a limit is reached."""
        view, filled = self._view, self._filled
        position = self._start
        while filled - position >= PREFIX_BYTES:
            size = _LENGTH.unpack_from(view, position)[0]
            if not 0 < size <= self._plain_max_bytes:
                size = frame_length(view, position, self._frame_max_bytes)
            end = position + PREFIX_BYTES + size
            if end > filled:
                return False
            if self._waiting_for is not None:
                self._waiting_for.hurry()
            if (self._slots or self._write_paused or self._closing or self._finishing) and self._is_held_up():
                return True
            self._start = end
            dispatch(self, view[position + PREFIX_BYTES : end])
            if self._out_bytes >= WRITE_HIGH_BYTES:
                self._flush()
            position = end
        return False

    def _make_room(self) -> None:
        """Move a frame's beginning to the front, enlarge the buffer if the last read filled it, and read on."""
        view, start = self._view, self._start
        rest = self._filled - start
        if self._filled == len(view) and (len(view) < RECEIVE_USUAL_BYTES or start == 0):
            self._view = memoryview(bytearray(self._grown()))
            self._view[:rest] = view[start : self._filled]
        elif start and rest:
            view[:rest] = view[start : self._filled]
        self._start, self._filled = 0, rest
        if self._read_paused and self._transport is not None:
            self._read_paused = False
            self._transport.resume_reading()

    def _grown(self) -> int:
        """Double, but not beyond the frame that needs it: memory follows what arrived, not what was announced."""
        size = len(self._view)
        if size < RECEIVE_USUAL_BYTES:
            return 2 * size
        return min(2 * size, PREFIX_BYTES + frame_length(self._view, 0, self._frame_max_bytes))

    def _pause_reading(self) -> None:
        if not self._read_paused and self._transport is not None and not self._closing:
            self._read_paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Handle what a limit held back, but not inside whoever gave the answer."""
        if self._finishing:
            self._close_if_finished()
        elif self._blocked and not self._cut_due and not self._is_held_up():
            self._cut_due = True
            self.server.loop.call_soon(self._cut)

    def _close_if_finished(self) -> None:
        if not self._closing and not any(slot.overlaps for slot in self._slots):
            self._close()

    def _flush(self) -> None:
        self.server.counters.bytes_sent += self._out_bytes
        out, self._out, self._out_bytes = self._out, [], 0
        if self._transport is None or not out:
            return
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)
