"""Links between simulated hosts: ordered per connection, delayed, cut, clogged and resegmented by seed.

TCP never loses bytes, so neither does a connection here: bytes come late, or the connection is reset. A cut resets and
refuses (EHOSTUNREACH). A clog holds bytes and handshakes back in silence, in one direction, until it is healed. New
connections get through at once then, bytes of old connections at TCP's next retransmission.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from raftlog_chaos.simulator.connection import Pipe, SimSocket, SimTransport
from raftlog_chaos.simulator.hosts import Host, Process

if TYPE_CHECKING:
    from raftlog_chaos.simulator.loop import SimLoop

LATENCY_S = (0.0001, 0.0006)
"""Shortest and longest one-way delay between two hosts, unless set otherwise."""

LOOPBACK_S = (0.00001, 0.00005)
"""The same within one host."""

CONNECT_TIMEOUT_S = 3.0
"""After this a connection attempt to a host without power fails, as ARP does."""

RESEND_S = 0.2
"""A lost packet is sent again after this, then after twice as long (TCP's least retransmission timeout on Linux)."""

GIVE_UP_S = 3.0
"""After waiting so long for a packet to get through, the connection is given up, far sooner than Linux does."""

FIRST_PORT = 30_000
"""Port 0 means the next port from here, per host."""

_EVERY_ADDRESS = (None, "", "0.0.0.0", "::")  # noqa: S104
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Link:
    """One direction between two hosts."""

    __slots__ = (
        "clogged",
        "clogged_at",
        "clogged_ports",
        "cut",
        "extra_s",
        "latency_s",
        "loss",
        "pipes",
        "waiting",
    )

    def __init__(self, latency_s: tuple[float, float]) -> None:
        self.latency_s = latency_s
        self.extra_s = 0.0
        """Everything comes so much later, seconds."""
        self.loss = 0.0
        """Share of packets that are lost; TCP sends them again, each time after twice as long."""
        self.cut = False
        self.clogged = False
        self.clogged_at = 0.0
        self.clogged_ports: frozenset[int] = frozenset()
        """Only what belongs to connections with these listening ports stands still."""
        self.pipes: dict[Pipe, None] = {}
        self.waiting: list[asyncio.Future[None]] = []

    def holds(self, port: int) -> bool:
        """Return whether what belongs to a connection with that listening port stands still."""
        return self.clogged or port in self.clogged_ports


class SimServer(asyncio.AbstractServer):
    """A listening port. `sockets[0].getsockname()` returns the address, as with asyncio."""

    def __init__(
        self, network: Network, process: Process, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._network = network
        self.process = process
        self.port = port
        self.factory = factory
        self.context = contextvars.copy_context()
        self.sockets: tuple[SimSocket, ...] = (SimSocket((process.host.address, port)),)
        self._closed: asyncio.Future[None] | None = None
        self._serves = False

    def is_serving(self) -> bool:
        return self._serves and bool(self.sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def close(self) -> None:
        """Stop listening; connections stay, as with asyncio."""
        if self.sockets:
            self.sockets = ()
            self._network.unlisten(self)
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    async def start_serving(self) -> None:
        """Accept connections; until then they are refused, though the port is taken."""
        self._serves = True

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        self._closed = self._network.loop.create_future()
        try:
            await self._closed
        finally:
            self.close()


class Network:
    """All hosts' listeners, links and connections."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.latency_s = LATENCY_S
        self.turn_s = 0.0
        """How long after its protocol is connected the caller of `create_connection` goes on: busy loops take time."""
        self.chance = loop.stream("network")
        self._links: dict[tuple[str, str], Link] = {}
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._transports: dict[SimTransport, None] = {}
        self._next_port: dict[str, int] = {}
        self.effects: Counter[str] = Counter()
        """The effects of injected link faults on transferred bytes."""

    # -- faults -------------------------------------------------------------------------------------

    def link(self, source: Host, target: Host) -> Link:
        """Return the link from source to target; `latency_s` may be set on it."""
        key = (source.name, target.name)
        if key not in self._links:
            self._links[key] = Link(LOOPBACK_S if source is target else self.latency_s)
        return self._links[key]

    def cut(self, one: Host, other: Host) -> None:
        self._note(f"cut {one.name} {other.name}")
        for source, target in ((one, other), (other, one)):
            link = self.link(source, target)
            link.cut = True
            self._release(link)
            for pipe in list(link.pipes):
                pipe.sender.lose(ConnectionResetError(errno.ECONNRESET, "network cut"))

    def clog(self, source: Host, target: Host, ports: Iterable[int] = ()) -> None:
        """Hold everything back, or only what belongs to connections with these listening ports."""
        chosen = frozenset(ports)
        link = self.link(source, target)
        if not link.clogged and not link.clogged_ports:
            link.clogged_at = self.loop.time()
        if chosen:
            self._note(f"clogged {source.name} {target.name} {sorted(chosen)}")
            link.clogged_ports |= chosen
        else:
            self._note(f"clogged {source.name} {target.name}")
            link.clogged = True

    def heal(self, one: Host | None, other: Host | None) -> None:
        self._note(f"healed {one.name if one else '*'} {other.name if other else '*'}")
        wanted = {each.name for each in (one, other) if each}
        for key, link in self._links.items():
            if wanted <= set(key):
                held_s = self.loop.time() - link.clogged_at
                held = [pipe for pipe in link.pipes if link.holds(pipe.port)]
                link.cut = link.clogged = False
                link.clogged_ports = frozenset()
                link.extra_s = link.loss = 0.0
                self._release(link)
                for pipe in held:
                    # the pauses of TCP grow with the time that has gone by
                    pipe.resume(self.chance.uniform(0.0, held_s))
                for pipe in link.pipes:
                    pipe.arm()

    def process_died(self, process: Process, *, silent: bool) -> None:
        """Close its listeners and, unless it went silently, reset every peer."""
        for server in [each for each in self._servers.values() if each.process is process]:
            server.sockets = ()
            self.unlisten(server)
        for transport in [each for each in self._transports if each.process is process]:
            transport.die(silent=silent)

    def host_started(self, host: Host) -> None:
        """Reset the connections of a host's former process."""
        for transport in [each for each in self._transports if each.peer.process.host is host]:
            if not transport.peer.process.alive:
                transport.lose(ConnectionResetError(errno.ECONNRESET, "peer restarted"))

    # -- listening and connecting -------------------------------------------------------------------

    def resolve(self, name: str, seen_from: Host) -> Host:
        """Find a host by name or address. Raises socket.gaierror."""
        if name in _LOOPBACK:
            return seen_from
        for host in self.loop.hosts():
            if name in (host.name, host.address):
                return host
        raise socket.gaierror(socket.EAI_NONAME, f"no host is called {name}")

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], name: str | None, port: int) -> SimServer:
        process = self.loop.process()
        if not process.alive:  # killed in the midst of the callback that goes on here
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        if name not in _EVERY_ADDRESS and self.resolve(str(name), process.host) is not process.host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or self._port(process.host)
        if (process.host.name, port) in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = SimServer(self, process, port, factory)
        self._servers[process.host.name, port] = server
        return server

    def unlisten(self, server: SimServer) -> None:
        self._servers.pop((server.process.host.name, server.port), None)

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], name: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        source = self.loop.process()
        target = self.resolve(name, source.host)
        there, back = self.link(source.host, target), self.link(target, source.host)
        await self._travel(there, port)
        if target.silent:
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        server = self._servers.get((target.name, port))
        transport = self._accept(source, server) if server is not None and server.is_serving() else None
        await self._travel(back, port)
        if transport is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {name}:{port}")
        if transport.lost:  # the peer died while its answer to the handshake was on the way
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        protocol = factory()
        transport.begin(protocol)
        try:
            await asyncio.sleep(self.turn_s)
        except asyncio.CancelledError:
            transport.vanish()
            raise
        return transport, protocol

    def _accept(self, source: Process, server: SimServer) -> SimTransport:
        host = server.process.host
        near = SimSocket((source.host.address, self._port(source.host)), (host.address, server.port))
        far = SimSocket((host.address, server.port), near.getsockname())
        client = SimTransport(self, source, near, contextvars.copy_context())
        accepted = SimTransport(self, server.process, far, server.context.copy())
        self._join(client, accepted, server.port)
        self.loop.call_soon(self._welcome, accepted, server.factory, context=accepted.context)
        return client

    def _join(self, client: SimTransport, accepted: SimTransport, port: int) -> None:
        for one, other in ((client, accepted), (accepted, client)):
            one.peer = other
            link = self.link(one.process.host, other.process.host)
            one.out = Pipe(self.loop, link, port, one, other)
            self._transports[one] = None

    def _welcome(self, accepted: SimTransport, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        if not accepted.lost:
            accepted.begin(factory())

    def forget(self, transport: SimTransport) -> None:
        """Forget an end of a connection that is over at both ends."""
        self._transports.pop(transport, None)

    async def _travel(self, link: Link, port: int) -> None:
        """Cross a link once. Raises EHOSTUNREACH if it is cut; waits while it is clogged."""
        while True:
            if link.cut:
                await asyncio.sleep(link.latency_s[1])
                raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
            if not link.holds(port):
                break
            healed = self.loop.create_future()
            link.waiting.append(healed)
            await healed
        await asyncio.sleep(self.delay(link))

    def delay(self, link: Link) -> float:
        """Return the seconds until a packet arrives, perhaps not at the first try."""
        shortest, longest = link.latency_s
        delay = self.chance.uniform(shortest, longest)
        if link.extra_s:
            self.effects["bytes late"] += 1
            delay += link.extra_s
        again_s = RESEND_S
        while link.loss and again_s < GIVE_UP_S and self.chance.random() < link.loss:
            self.effects["packet lost"] += 1
            delay += again_s
            again_s *= 2
        return delay

    def gives_up(self, link: Link) -> bool:
        """Return whether the sender of a packet on a lossy link gives its connection up: the packet is lost
        every time.
        """
        tries, again_s = 0, RESEND_S
        while again_s < GIVE_UP_S:
            tries, again_s = tries + 1, again_s * 2
        return link.loss > 0 and self.chance.random() < link.loss**tries

    def _release(self, link: Link) -> None:
        waiting, link.waiting = link.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _port(self, host: Host) -> int:
        port = self._next_port.get(host.name, FIRST_PORT)
        self._next_port[host.name] = port + 1
        return port

    def _note(self, event: str) -> None:
        self.loop.trace.note(self.loop.time(), "network", event)
