"""raftlog.broker.network.server on real sockets: asyncio's loop and uvloop's, listeners, limits, and the end."""

from __future__ import annotations

import asyncio
import dataclasses
import resource
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from socket import IPPROTO_TCP, SO_KEEPALIVE, SO_RCVBUF, SOL_SOCKET, TCP_KEEPIDLE
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.config.network import Listener
from raftlog.base.errors import NotController, UnsupportedVersion
from raftlog.broker.handlers import served
from raftlog.broker.links.peer_auth import prove_membership
from raftlog.broker.links.peer_channel import PeerChannel
from raftlog.broker.network import idle_connections, inbox, outbox, progress
from raftlog.broker.network.server import ListenerUnavailable
from raftlog.protocol.apis import APIS
from raftlog.protocol.codec import decode_response
from raftlog.protocol.message_builders import request_builders
from raftlog.protocol.schema import message_type
from raftlog.quorum.channel import Identity, InboundChannel, OutboundChannel, dial
from raftlog.quorum.listener import Listener as QuorumListener
from raftlog.replication.replica_host import ReplicaId
from tests.broker.fakes import (
    LISTENER,
    FakePartitionServer,
    api_versions,
    batch,
    fetch,
    produce,
    request,
)
from tests.kit.loops import run
from tests.kit.waits import PATIENCE_S
from tests.quorum.cluster import bound_socket

__all__ = ["run"]

LOCAL = Listener(LISTENER, "127.0.0.1", 0)

CONTROLLER_KEYS = frozenset(
    {18, 19, 20, *range(29, 34), *range(37, 42), *range(43, 47), 49, 50, 51, 55, 57, 60, 64, 80, 81, 82}
)
"""The APIs of Kafka 4.3 that have "controller" among `listeners` of their schema, and that raftlog serves."""


class Client:
    """Raw frames over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> memoryview:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return memoryview(await self.reader.readexactly(size))

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def serving(fake: FakePartitionServer) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Client]]]:
    (endpoint,) = await fake.server.start([LOCAL])
    clients: list[Client] = []

    async def connect() -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", endpoint.port, limit=1 << 24))
        clients.append(client)
        return client

    try:
        yield connect
    finally:
        for client in clients:
            client.writer.close()
        await fake.server.stop(grace_s=0)


def test_large_and_small_requests_are_served_over_a_socket(run: Any) -> None:
    """Produced bytes come back as they were, whatever their size."""

    async def main() -> None:
        fake = FakePartitionServer()
        async with serving(fake) as connect:
            client = await connect()
            data = [batch(1, size, 0x30 + number) for number, size in enumerate((10, 5_000_000, 300_000, 0))]
            for number, each in enumerate(data):
                client.writer.write(produce(number, (0, each), acks=-1))
            for number in range(len(data)):
                assert decode_response(0, 9, await client.answer())[0] == number
            client.writer.write(fetch(9, (0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24))
            _, answer = decode_response(1, 12, await client.answer())
            assert bytes(answer.responses[0].partitions[0].records) == b"".join(data)

    run(main())


def test_a_client_that_never_reads_costs_a_bounded_amount(run: Any) -> None:
    """Requests stop being handled when responses pile up; the client is served on when it reads."""

    async def main() -> None:
        fake = FakePartitionServer()
        for _ in range(4):
            fake.partition.append_produced(memoryview(batch(1, 1 << 20)), acks=1, now_ms=0)
        async with serving(fake) as connect:
            client, other = await connect(), await connect()
            count = 30
            client.writer.writelines(
                fetch(each, (0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24) for each in range(count)
            )
            other.writer.write(api_versions(1))
            await other.answer()
            assert fake.partition.reads < count // 2
            for each in range(count):
                assert decode_response(1, 12, await client.answer())[0] == each
            assert fake.partition.reads == count

    run(main())


def test_a_foreign_protocol_is_closed_and_others_are_not_disturbed(run: Any) -> None:
    """An HTTP request on the Kafka port."""

    async def main() -> None:
        fake = FakePartitionServer()
        async with serving(fake) as connect:
            client, stranger = await connect(), await connect()
            with capture_logs() as logs:
                stranger.writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                assert await stranger.is_closed()
            assert [line["event"] for line in logs] == ["framing_lost"]
            client.writer.write(api_versions(1))
            assert await client.answer()

    run(main())


def test_stop_lets_open_produce_requests_finish(run: Any) -> None:
    """An append is acknowledged if it is committed within the grace; waiting fetches just end."""

    async def main() -> None:
        fake = FakePartitionServer()
        fake.partition.auto_commit = False
        async with serving(fake) as connect:
            producer, consumer = await connect(), await connect()
            producer.writer.write(produce(1, (0, batch()), acks=-1))
            consumer.writer.write(fetch(1, (0, 1), max_wait_ms=60_000))
            while not (fake.partition.waiters and fake.partition.parked):
                await asyncio.sleep(0)
            stopping = asyncio.ensure_future(fake.server.stop(grace_s=5))
            await consumer.is_closed()
            fake.partition.commit()
            assert decode_response(0, 9, await producer.answer())[0] == 1
            assert await producer.is_closed()
            await stopping
            assert not fake.server.connections

    run(main())


async def test_a_port_in_use_is_named() -> None:
    """With listener, address and reason, and no socket stays open."""
    fake = FakePartitionServer()
    async with serving(FakePartitionServer()) as connect:
        client = await connect()
        port = client.writer.get_extra_info("peername")[1]
        taken = Listener("OUTSIDE", "127.0.0.1", port)
        with pytest.raises(ListenerUnavailable, match=f"OUTSIDE://127.0.0.1:{port}: .*in use"):
            await fake.server.start([LOCAL, taken])
    assert fake.server.counters.open_connections == 0


async def test_every_interface_with_any_port_has_one_port() -> None:
    """The port that the controller registers must be reachable by all."""
    fake = FakePartitionServer()
    (endpoint,) = await fake.server.start([Listener(LISTENER, "", 0)])
    assert endpoint.port > 0
    assert len(fake.server._servers[0].sockets) == 1
    await fake.server.stop(grace_s=0)


def test_a_bound_listener_refuses_until_it_serves(run: Any) -> None:
    """Its port is known and taken, but clients go to another node rather than wait."""

    async def main() -> None:
        fake = FakePartitionServer()
        (endpoint,) = await fake.server.start([LOCAL], serve=False)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", endpoint.port)
        await fake.server.serve()
        client = Client(*await asyncio.open_connection("127.0.0.1", endpoint.port))
        client.writer.write(api_versions(1))
        assert await client.answer()
        client.writer.close()
        await fake.server.stop(grace_s=0)

    run(main())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks a hundred times a second, and little patience."""
    for module in (progress, idle_connections):
        monkeypatch.setattr(module, "CHECK_INTERVAL_S", 0.01)
    for module in (progress, inbox, outbox):
        monkeypatch.setattr(module, "USUAL", progress.USUAL._replace(patience_s=0.1))


def test_a_client_that_never_reads_and_one_that_dribbles_are_freed(run: Any, impatient: None) -> None:
    """On real transports: 17 MB stayed for ever, and `close` waited for the client that does not read."""

    async def main() -> None:
        fake = FakePartitionServer()
        fake.partition.append_produced(memoryview(batch(1, 20 << 20)), acks=1, now_ms=0)
        async with serving(fake) as connect:
            reader, dribbler, bystander = await connect(), await connect(), await connect()
            reader.writer.transport.pause_reading()  # type: ignore[attr-defined]
            reader.writer.write(fetch(1, (0, 0), max_bytes=1 << 25, partition_max_bytes=1 << 25))
            dribbler.writer.write((1 << 20).to_bytes(4, "big") + b"\0")
            assert await dribbler.is_closed()
            while len(fake.server.connections) > 1:
                bystander.writer.write(api_versions(1))
                await bystander.answer()
            assert fake.server.memory.answers.used == fake.server.memory.requests.used == 0
            closed = fake.server.counters.closed_by_broker
            assert closed == {"slow_reader_closed": 1, "slow_sender_closed": 1}

    run(main())


def test_large_requests_beyond_the_memory_for_them_all_come_through(run: Any) -> None:
    """Back-pressure over real sockets: eight clients send four times what the broker may hold."""

    async def main() -> None:
        fake = FakePartitionServer(queued_max_request_bytes=2 << 20)
        async with serving(fake) as connect:

            async def send(number: int) -> None:
                client = await connect()
                client.writer.write(produce(number, (0, batch(1, (number % 4 + 1) << 19))))
                assert decode_response(0, 9, await client.answer())[0] == number

            await asyncio.gather(*map(send, range(8)))
            assert fake.partition.log_end_offset == 8
            assert fake.server.memory.requests.used == 0

    run(main())


def test_a_node_without_descriptors_goes_on_and_accepts_again(run: Any) -> None:
    """EMFILE in accept: neither the end, nor a flood of lines, nor a listener that is deaf from then on."""

    async def main() -> None:
        fake = FakePartitionServer()
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with serving(fake) as connect:
            held = await connect()
            clients = [socket.socket() for _ in range(5)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (clients[-1].fileno() + 1, hard))
            try:
                for each in clients:
                    each.setblocking(False)
                    each.connect_ex(("127.0.0.1", fake.server.endpoints[0].port))
                for number in range(20):
                    held.writer.write(api_versions(number))
                    await held.answer()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for each in clients:
                    each.close()
            late = await connect()
            late.writer.write(api_versions(1))
            assert await asyncio.wait_for(late.answer(), 30)
            assert all("handle" not in context for context in told)

    run(main())


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
async def test_more_connections_than_allowed_are_refused(limit: str) -> None:
    """max.connections and max.connections.per.ip; connected clients stay."""
    fake = FakePartitionServer(**{limit: 1})
    async with serving(fake) as connect:
        first = await connect()
        first.writer.write(api_versions(1))
        assert await first.answer()
        with capture_logs() as logs:
            second = await connect()
            second.writer.write(api_versions(1))
            assert await second.is_closed()
        assert logs[0]["event"] == "connection_refused"
        first.writer.write(api_versions(2))
        assert await first.answer()
        assert fake.server.counters.refused == 1


class ControllerListenerSetup:
    """A controller's listener that passes its Kafka clients to a broker's server."""

    def __init__(self, fake: FakePartitionServer) -> None:
        self.fake = fake
        self.taken: list[InboundChannel] = []
        self.identity = Identity(1, b"secret of the door", lambda: None)
        self.listener = QuorumListener(
            self.identity,
            admit=lambda _hello: None,
            takers={"rpc": self.taken.append},
            on_kafka=fake.server.adopt,
        )
        self.address = ("", 0)

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection(*self.address))

    async def dial(self) -> OutboundChannel:
        return await dial(dataclasses.replace(self.identity, node_id=2), "rpc", self.address, expect=1)


@asynccontextmanager
async def door(**config: Any) -> AsyncIterator[ControllerListenerSetup]:
    config = {"controller_anonymous_clients": True, **config}
    found = ControllerListenerSetup(FakePartitionServer(controller_listener_names=("CONTROLLER",), **config))
    sock = bound_socket()
    found.address = sock.getsockname()
    await found.listener.start(sock)
    try:
        yield found
    finally:
        await found.listener.stop()
        await found.fake.server.stop(grace_s=0)


def test_the_controllers_listener_serves_kafka_clients_and_nodes_on_one_port(run: Any) -> None:
    """KIP-919, on both loops: the client's first bytes decide, in whatever pieces they come; nodes get in as before."""

    async def main() -> None:
        async with door() as found:
            client = await found.connect()
            for piece in (api_versions(5)[:4], api_versions(5)[4:6], api_versions(5)[6:] + api_versions(6)):
                client.writer.write(piece)
                await client.writer.drain()
            for number in (5, 6):
                correlation_id, answer = decode_response(18, 3, await client.answer())
                assert (correlation_id, answer.error_code) == (number, 0)
            assert {each.api_key for each in answer.api_keys} == CONTROLLER_KEYS
            assert (await found.dial()).opened and len(found.taken) == 1
            assert found.fake.server.counters.open_connections == 1
            await found.fake.server.stop(grace_s=0)
            assert await client.is_closed()
            late = await found.connect()
            late.writer.write(api_versions(1))
            assert await late.is_closed()

    run(main())


def test_what_only_brokers_serve_is_refused_on_the_controllers_listener(run: Any) -> None:
    """A stranger on it can neither read records nor pose as a follower."""

    async def main() -> None:
        async with door() as found:
            client = await found.connect()
            client.writer.write(fetch(1, (0, 0)))
            assert decode_response(1, 12, await client.answer())[1].error_code == UnsupportedVersion.code
            client.writer.write(produce(2, (0, batch(1, 10)), acks=1))
            assert await client.is_closed()
            client = await found.connect()
            client.writer.write(request(3, 12, 7, request_builders(3, 12).MetadataRequest(topics=None)))
            assert await client.is_closed()
            assert not found.fake.partition.batches

    run(main())


async def test_every_api_of_the_controllers_listener_is_served_without_logs() -> None:
    """A controller that is no broker has no replicas; whatever it is asked, it answers, and stays."""

    async def no_controller(_request: Any, *, timeout: float | None = None) -> Any:
        raise NotController()

    async with door() as found:
        found.fake.broker.replicas = None  # type: ignore[assignment]
        found.fake.broker.submit = no_controller  # type: ignore[assignment]
        client = await found.connect()
        for key in sorted(served(of_controllers=True)):
            version = APIS[key].max_version
            make = request_builders(key, version)
            message = getattr(make, message_type(key, version, "request").__name__)()
            client.writer.write(request(key, version, key, message))
            assert decode_response(key, version, await client.answer())[0] == key


async def test_kafka_clients_of_the_controllers_listener_have_the_limits_of_all_clients() -> None:
    """max.connections.per.ip; a node from the same address gets in all the same (KIP-919)."""
    async with door(max_connections_per_ip=3) as found:
        clients = [await found.connect() for _ in range(5)]
        for each in clients:
            each.writer.write(api_versions(1))
        for each in clients[:3]:
            assert await each.answer()
        for each in clients[3:]:
            assert await each.is_closed()
        assert (await found.dial()).opened


async def test_an_idle_connection_is_closed_in_time() -> None:
    """connections.max.idle.ms."""
    fake = FakePartitionServer(connections_max_idle_ms=100)
    async with serving(fake) as connect:
        client = await connect()
        async with asyncio.timeout(PATIENCE_S):
            assert await client.is_closed()
    assert fake.server.counters.idle_closed == 1


async def test_a_follower_proves_itself_over_its_channel() -> None:
    """The two ends of raftlog's own connections fit together."""
    fake = FakePartitionServer()
    async with serving(fake):
        port = fake.server.endpoints[0].port
        loop = asyncio.get_running_loop()
        channel = PeerChannel(max_frame_bytes=1 << 20, on_lost=lambda error: None)
        await loop.create_connection(lambda: channel, "127.0.0.1", port)
        await prove_membership(channel.ask, secret=b"secret", own=ReplicaId(2, 12), server_id=1)
        (accepted,) = fake.server.connections
        assert accepted.peer == ReplicaId(2, 12)
        channel.close()


async def test_socket_buffers_are_the_kernels_unless_the_operator_says_otherwise() -> None:
    """socket.receive.buffer.bytes; Linux doubles what is asked for."""
    found = []
    for given in ({}, {"socket.receive.buffer.bytes": "20000"}):
        fake = FakePartitionServer(given=given)
        async with serving(fake) as connect:
            client = await connect()
            client.writer.write(api_versions(1))
            await client.answer()
            (accepted,) = fake.server.connections
            assert accepted._transport is not None
            own = accepted._transport.get_extra_info("socket")
            found.append(own.getsockopt(SOL_SOCKET, SO_RCVBUF))
            assert own.getsockopt(SOL_SOCKET, SO_KEEPALIVE) == 1
            assert own.getsockopt(IPPROTO_TCP, TCP_KEEPIDLE) == 20
    assert found[0] > 40_000 == found[1]


async def test_counters_count_connections_and_requests() -> None:
    """An operator sees the listeners."""
    fake = FakePartitionServer()
    async with serving(fake) as connect:
        client = await connect()
        client.writer.write(api_versions(1) + produce(2, (0, batch())))
        await client.answer()
        await client.answer()
        counters = fake.server.counters
        assert (counters.connections, counters.open_connections) == (1, 1)
        assert counters.requests == {18: 1, 0: 1}
        assert counters.bytes_received == len(api_versions(1) + produce(2, (0, batch())))


def test_a_port_that_is_taken_between_bind_and_listen_stops_the_start(run: Any) -> None:
    """uvloop does not report that it could not listen."""

    async def main() -> None:
        fake = FakePartitionServer()
        port = (await fake.server.start([LOCAL], serve=False))[0].port
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((LOCAL.host, port))
            other.listen()
            with pytest.raises(
                ListenerUnavailable, match=rf"cannot listen on .*{port}: Address already in use"
            ):
                await fake.server.serve()
            await fake.server.stop(grace_s=0)

    run(main())
