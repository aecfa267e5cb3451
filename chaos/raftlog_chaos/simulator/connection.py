"""One simulated TCP connection: two transports, and a pipe in each direction.

A pipe keeps order, delays by its link, and cuts its bytes into other segments than were written, as TCP may.
A transport calls its protocol only from the loop and only in its own process.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.disk import Buffer
from raftlog_chaos.simulator.hosts import Process

if TYPE_CHECKING:
    from raftlog_chaos.simulator.loop import SimLoop
    from raftlog_chaos.simulator.network import Link, Network

SOCKET_BUFFER_BYTES = 256 * 1024
"""Bytes on their way that the kernels hold; what is written beyond counts as the transport's write buffer."""

SEGMENT_BYTES = 256 * 1024
"""Most bytes one `data_received` gets."""

SPLIT_RATE = 0.15
"""Share of deliveries that bring only a part of what has arrived."""

RESET_RATE = 0.5
"""Share of aborts that reset the connection at once: at the others the receive buffer had no unread bytes."""

_END: Final = object()


class SimSocket:
    """The object that code gets from `get_extra_info("socket")`."""

    __slots__ = ("_own", "_peer")
    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = 6

    def __init__(self, own: tuple[str, int], peer: tuple[str, int] | None = None) -> None:
        self._own = own
        self._peer = peer

    def fileno(self) -> int:
        return 0  # any that is open

    def getsockname(self) -> tuple[str, int]:
        return self._own

    def getpeername(self) -> tuple[str, int]:
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._peer

    def setsockopt(self, *args: object) -> None:
        """Ignore the option: it has no meaning here."""


class Pipe:
    """Bytes, an end, or a reset on their way from one transport to the other."""

    carries_bytes = True
    """A callback of this object is an arrival, not something that was due."""

    __slots__ = (
        "_items",
        "_last_arrival",
        "_loop",
        "_timer",
        "link",
        "port",
        "receiver",
        "sender",
        "unread_bytes",
    )

    def __init__(
        self, loop: SimLoop, link: Link, port: int, sender: SimTransport, receiver: SimTransport
    ) -> None:
        self._loop = loop
        self.link = link
        self.port = port
        """The address on which the connection's server listens."""
        self.sender = sender
        self.receiver = receiver
        self.unread_bytes = 0
        self._items: deque[tuple[float, Any]] = deque()
        self._last_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None
        link.pipes[self] = None

    def push(self, item: bytes | Exception | object) -> None:
        network = self._loop.network
        self._last_arrival = max(self._last_arrival, self._loop.time() + network.delay(self.link))
        self._items.append((self._last_arrival, item))
        if isinstance(item, bytes):
            self.unread_bytes += len(item)
        self.arm()

    def resume(self, after_s: float) -> None:
        """Send the held bytes after a while, and the following bytes later: the link is free again."""
        now = self._loop.time()
        self._items = deque((max(arrival, now + after_s), item) for arrival, item in self._items)
        if self._items:
            self._last_arrival = max(self._last_arrival, self._items[-1][0])

    def arm(self) -> None:
        """Schedule the next delivery, if there is one and the link is free."""
        if self._timer is None and self._items and not self._stands_still():
            when = max(self._items[0][0], self._loop.time())
            self._timer = self._loop.call_at(when, self._deliver, context=self.receiver.context)

    def _stands_still(self) -> bool:
        return self.receiver.holds_back or self.link.holds(self.port)

    def give_up(self) -> None:
        """End the connection of a sender without an answer; the receiver learns of it, or not before it writes."""
        self._loop.network.effects["connection given up"] += 1
        self.sender.lose(TimeoutError(errno.ETIMEDOUT, "not acknowledged"))
        if self._loop.network.chance.random() < 0.5:
            self.push(ConnectionResetError(errno.ECONNRESET, "peer gave up"))

    def drop(self, keep: int = 0) -> None:
        """Lose all but the first `keep` items."""
        while len(self._items) > keep:
            _, item = self._items.pop()
            if isinstance(item, bytes):
                self.unread_bytes -= len(item)

    def cut_short(self) -> None:
        """Lose a seeded part of what is on its way."""
        self.drop(self._loop.network.chance.randint(0, len(self._items)))

    def unlink(self) -> None:
        """Forget a connection that is over at both ends."""
        self.drop()
        self.link.pipes.pop(self, None)

    def _deliver(self) -> None:
        self._timer = None
        if not self._items or self._stands_still():
            return
        arrival, first = self._items[0]
        if arrival > self._loop.time():
            pass  # it was held back meanwhile
        elif isinstance(first, bytes):
            segment = self._segment()
            self._loop.trace.step(self._loop.time(), self.receiver.process.name, len(segment))
            self._put_back(self.receiver.receive(segment))
            self.sender.drained()
        else:
            self._items.popleft()
            self.receiver.end(None if first is _END else first)
        self.arm()

    def _put_back(self, rest: bytes) -> None:
        """Keep what a receiver did not take because it stopped reading."""
        if rest:
            self._items.appendleft((self._loop.time(), rest))
            self.unread_bytes += len(rest)

    def _segment(self) -> bytes:
        """Take what has arrived: whole, or by seed a part of it."""
        now = self._loop.time()
        parts: list[bytes] = []
        total = 0
        while self._items and total < SEGMENT_BYTES:
            arrival, part = self._items[0]
            if arrival > now or not isinstance(part, bytes):
                break
            self._items.popleft()
            parts.append(part)
            total += len(part)
        data = b"".join(parts)
        limit = SEGMENT_BYTES
        chance = self._loop.network.chance
        if total > 1 and chance.random() < SPLIT_RATE:
            limit = min(limit, chance.randrange(1, total))
        if total > limit:
            self._items.appendleft((now, data[limit:]))
            data = data[:limit]
        self.unread_bytes -= len(data)
        return data


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimTransport
    out: Pipe

    def __init__(
        self, network: Network, process: Process, own: SimSocket, context: contextvars.Context
    ) -> None:
        super().__init__({"socket": own, "sockname": own.getsockname(), "peername": own.getpeername()})
        self.process = process
        self.context = context
        self._network = network
        self._loop = network.loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._reading = True
        self._closing = False
        self._ended = False
        self._lost = False
        self._write_paused = False
        self._limits = (16 * 1024, 64 * 1024)

    # -- asyncio.Transport --------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.peer.out.arm()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = (64 * 1024 if low is None else 4 * low) if high is None else high
        self._limits = (high // 4 if low is None else low, high)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def get_write_buffer_size(self) -> int:
        return max(0, self.out.unread_bytes - SOCKET_BUFFER_BYTES)

    def write(self, data: Buffer) -> None:
        if self._ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost and self.process.alive:  # uvloop says so too
            raise RuntimeError("unable to perform operation on a closed transport")
        if self._closing or not self.process.alive or not len(data):
            return
        if self._network.gives_up(self.out.link):
            self.out.give_up()
            return
        self.out.push(bytes(data))
        if not self._write_paused and self.get_write_buffer_size() > self._limits[1]:
            self._write_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ended and not self._closing:
            self._ended = True
            self.out.push(_END)

    def close(self) -> None:
        """Send what was written and an end; the peer's further bytes are answered with a reset."""
        if self._closing or not self.process.alive:
            return
        self._closing = True
        if not self._ended:
            self.out.push(_END)
        self._loop.call_soon(self._connection_lost, None, context=self.context)

    def abort(self) -> None:
        """Reset the peer, or send on what the kernel has taken: it does so for a process that is done with a socket."""
        if self._lost or not self.process.alive:
            return
        if not self._closing:
            self._loop.call_soon(self._connection_lost, None, context=self.context)
        self._closing = True
        if self._network.chance.random() < RESET_RATE:
            self.out.drop()
            self.out.push(ConnectionResetError(errno.ECONNRESET, "peer aborted"))
        elif not self._ended:
            self._network.effects["sent after all"] += self.out.unread_bytes > 0
            self.out.push(_END)

    # -- for the network ----------------------------------------------------------------------------

    @property
    def holds_back(self) -> bool:
        """Whether bytes for this end must wait in the kernel."""
        return self._protocol is None or (not self._reading and not self._closing)

    @property
    def lost(self) -> bool:
        """Whether the connection is over at this end, and its protocol (if any by then) knows."""
        return self._lost

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to its protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self.peer.out.arm()

    def vanish(self) -> None:
        """Close without notice to the protocol, as uvloop does when `create_connection` is cancelled after
        `connection_made`."""
        self._protocol = None
        self.abort()

    def receive(self, data: bytes) -> bytes:
        """Pass bytes to the protocol; return the rest if it paused reading."""
        if self._closing:
            if not self.peer._closing:
                self.out.drop()
                self.out.push(ConnectionResetError(errno.ECONNRESET, "peer has closed"))
            return b""
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            return self._fill(protocol, data)
        assert isinstance(protocol, asyncio.Protocol)
        protocol.data_received(data)
        return b""

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> bytes:
        """Copy into the protocol's own buffer, as often as it takes; return what is left when it pauses reading."""
        rest = memoryview(data)
        while rest and not self._closing:
            if not self._reading:
                return bytes(rest)
            buffer = memoryview(protocol.get_buffer(-1))
            count = min(len(buffer), len(rest))
            assert count, "get_buffer() returned an empty buffer"
            buffer[:count] = rest[:count]
            protocol.buffer_updated(count)
            rest = rest[count:]
        return b""

    def end(self, error: Exception | None) -> None:
        """Handle the arrival of the peer's end or reset."""
        if error is not None:
            self.lose(error)
        elif not self._closing and not self.get_protocol().eof_received():  # type: ignore[attr-defined]
            self.close()

    def drained(self) -> None:
        """Let the protocol write again if enough bytes have arrived at the peer."""
        if self._write_paused and self.get_write_buffer_size() <= self._limits[0] and not self._lost:
            self._write_paused = False
            self._loop.call_soon(self.get_protocol().resume_writing, context=self.context)

    def lose(self, error: Exception) -> None:
        """Report the loss of the connection to the protocol."""
        if not self._closing:
            self._closing = True
            self.out.drop()
            self._loop.call_soon(self._connection_lost, error, context=self.context)

    def die(self, *, silent: bool) -> None:
        """End the connection of a process that was killed."""
        self._closing = self._lost = True
        self.peer.out.drop()
        if silent:
            self.out.drop()
        else:
            self.out.cut_short()
            self.out.push(ConnectionResetError(errno.ECONNRESET, "peer died"))
        self._retire()

    def _connection_lost(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self.peer.out.drop()
        self._retire()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _retire(self) -> None:
        if self._lost and self.peer._lost:
            for end in (self, self.peer):
                end.out.unlink()
                self._network.forget(end)
