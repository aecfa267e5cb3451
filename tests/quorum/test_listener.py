"""Claims about the places of the controller listener: strangers have few, and nodes with the secret always get in."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import pytest
import uvloop
from structlog.testing import capture_logs

from raftlog.quorum import listener as listeners
from raftlog.quorum.channel import (
    Identity,
    InboundChannel,
    OnKafkaClient,
    OutboundChannel,
    dial,
)
from raftlog.quorum.handshake_messages import (
    ChannelKind,
)
from raftlog.quorum.listener import Listener
from tests.kit.errors import raises_errno
from tests.quorum.cluster import bound_socket, until

SECRET = b"a secret of the tests"
KINDS: tuple[ChannelKind, ...] = ("raft", "rpc", "heartbeat", "observe")


class ListenerSetup:
    """A listener on loopback, and what it took."""

    def __init__(self, on_kafka: OnKafkaClient | None = None) -> None:
        self.taken: list[InboundChannel] = []
        self.sockets: list[socket.socket] = []
        self.arrived = 0
        self.listener = Listener(
            self.identity(1),
            admit=lambda _hello: None,
            takers=dict.fromkeys(KINDS, self.take),
            on_kafka=on_kafka,
        )
        self.listener._made = self.made  # type: ignore[method-assign]
        self.address = ("", 0)

    @staticmethod
    def identity(node_id: int) -> Identity:
        return Identity(node_id, SECRET, lambda: None)

    def take(self, channel: InboundChannel) -> None:
        self.taken.append(channel)
        channel.attach(lambda _payload: None, lambda _reason: None)

    async def dial(self, node_id: int = 2, kind: ChannelKind = "rpc") -> OutboundChannel:
        channel = await dial(self.identity(node_id), kind, self.address, expect=1)
        channel.attach(lambda _payload: None, lambda _reason: None)
        return channel

    async def stranger(self, source: str = "127.0.0.1") -> socket.socket:
        """Connect and stay silent."""
        arrived = self.arrived
        sock = socket.create_connection(self.address, source_address=(source, 0))
        sock.setblocking(False)
        self.sockets.append(sock)
        await until(lambda: self.arrived > arrived)
        return sock

    def made(self, channel: InboundChannel) -> None:
        self.arrived += 1
        Listener._made(self.listener, channel)

    @property
    def strangers(self) -> int:
        return len(self.listener._unproven)


@asynccontextmanager
async def listening(on_kafka: OnKafkaClient | None = None) -> AsyncIterator[ListenerSetup]:
    setup = ListenerSetup(on_kafka)
    sock = bound_socket()
    setup.address = sock.getsockname()
    await setup.listener.start(sock)
    try:
        yield setup
    finally:
        await setup.listener.stop()
        for each in setup.sockets:
            each.close()


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def closed(sockets: list[socket.socket]) -> int:
    return sum(map(is_closed, sockets))


async def test_strangers_shut_no_node_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 idle sockets locked brokers and voters out; now the newest comer always has a place, and for a moment."""
    monkeypatch.setattr(listeners, "MAX_UNAUTHENTICATED", 10)
    async with listening() as setup:
        strangers = [await setup.stranger() for _ in range(50)]
        channels = [await setup.dial(node_id) for node_id in (2, 3, 4)]
        more = [await setup.stranger() for _ in range(50)]
        await until(lambda: closed(strangers) == 50 and closed(more) == 40)
        assert setup.strangers == 10
        assert all(each.opened and each.close_reason is None for each in channels)


async def test_strangers_of_one_address_take_each_others_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood from one machine does not interrupt the handshake of another."""
    monkeypatch.setattr(listeners, "MAX_UNAUTHENTICATED", 10)
    async with listening() as setup:
        slow = await setup.stranger("127.0.0.2")
        flood = [await setup.stranger() for _ in range(50)]
        await until(lambda: closed(flood) == 41)
        assert not is_closed(slow)


async def test_a_refused_connection_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection beyond the limit was never closed, and kept whatever it was sent."""
    monkeypatch.setattr(listeners, "MAX_UNAUTHENTICATED", 1)
    async with listening() as setup:
        with capture_logs() as logs:
            first = await setup.stranger()
            await setup.stranger()
            await until(lambda: is_closed(first) and logs)
        assert "newer connection" in logs[0]["reason"]
        with pytest.raises(ConnectionError):
            for _ in range(100):
                first.send(b"x" * 1_000)


async def test_a_node_that_redials_without_end_loses_its_own_oldest_connections() -> None:
    """It does not affect other nodes, whatever is wrong with it."""
    async with listening() as setup:
        other = await setup.dial(3)
        beating = await setup.dial(2, "heartbeat")
        channels = [await setup.dial() for _ in range(listeners.MAX_CONNECTIONS_PER_NODE + 3)]
        await until(lambda: sum(each.close_reason is not None for each in channels) == 3)
        assert all(each.close_reason is not None for each in channels[:3])
        assert other.close_reason is None and beating.close_reason is None


async def test_a_kafka_client_leaves_its_place_with_its_first_bytes() -> None:
    """KIP-919: its server gets all that it sent; without such a server it is refused."""
    given: list[tuple[asyncio.Transport, bytes]] = []
    async with listening(lambda *arguments: given.append(arguments)) as setup:
        client = await setup.stranger()
        client.send(b"\0\0\xff\xff")  # longer than any hello
        (channel,) = setup.listener._unproven
        await until(lambda: len(channel._buffer) == 4)
        client.send(b"\0\x12")
        await until(lambda: given)
        assert given[0][1] == b"\0\0\xff\xff\0\x12" and not setup.strangers
        assert (await setup.dial()).opened
        given[0][0].abort()
    async with listening() as setup:
        client = await setup.stranger()
        client.send(b"\0\0\0\x0a\0\x12\0\x03\0\0\0\0\0\0")
        await until(lambda: not setup.strangers)


async def test_no_place_is_kept_for_what_has_ended() -> None:
    """However often nodes and strangers come and go."""
    async with listening() as setup:
        for node_id in range(2, 6):
            (await setup.dial(node_id)).close("done")
            with closing(socket.create_connection(setup.address)):
                await until(lambda: setup.strangers)
        await until(lambda: not setup.strangers and not setup.listener._proven)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_port_that_is_taken_between_bind_and_listen_stops_the_start(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop does not report that it could not listen: the voter would run, unreachable for the others."""

    async def main() -> None:
        setup = ListenerSetup()
        with socket.socket() as first, socket.socket() as second:
            for each in (first, second):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            first.bind(("127.0.0.1", 0))
            second.bind(first.getsockname())
            first.listen()
            with raises_errno(errno.EADDRINUSE):
                await setup.listener.start(second)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
