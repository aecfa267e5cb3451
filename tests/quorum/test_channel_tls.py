"""Channels over TLS, on asyncio's loop and uvloop's: the notices of both sides when the two do not fit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.config import load_config
from raftlog.base.env import ThreadOffload
from raftlog.base.log import LimitedLog, get_logger
from raftlog.broker.links.tls import PeerTls
from raftlog.broker.network.tls import ServerTls
from raftlog.broker.network.tls_handshake import HandshakePlaces
from raftlog.quorum.channel import HandshakeRefused, Identity, OutboundChannel, dial
from raftlog.quorum.channel_tls import ChannelTls
from raftlog.quorum.listener import Listener, without_tls
from raftlog.quorum.raft_links import probe
from tests.kit.certificates import HOST, Authority
from tests.kit.loops import run
from tests.quorum.cluster import bound_socket, until

__all__ = ["run"]

SECRET = b"a secret of the tests"
MAP = "listener.security.protocol.map"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Node:
    """A node's end: its identity, and its listener's TLS."""

    def __init__(self, node_id: int, settings: dict[str, str] | None) -> None:
        self.offload = ThreadOffload()
        self.identity = Identity(node_id, SECRET, lambda: "a cluster")
        self.tls: ServerTls | None = None
        if settings is not None:
            listeners = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
            protocols = {MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}
            tls = load_config(listeners | protocols | settings).tls["CONTROLLER"]
            limited = LimitedLog(get_logger("test"), asyncio.get_running_loop().time)
            pending = HandshakePlaces(10, limited, lambda _event: None)
            self.tls = ServerTls(tls, limited, lambda _event: None, pending, is_for_nodes=True)
            dial_options = partial(PeerTls(tls).options, self.offload)
            self.identity = replace(self.identity, tls=ChannelTls(dial_options, ServerTls.shown_certificate))
        self.kafka: list[bytes] = []
        self.frames: list[bytes] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[str, int]]:
        listener = Listener(
            self.identity,
            admit=lambda _hello: None,
            takers={"rpc": lambda channel: channel.attach(self.frames.append, lambda _reason: None)},
            on_kafka=self.take_kafka,
        )
        sock = bound_socket()
        if self.tls is not None:
            await self.tls.open(self.offload)
        await listener.start(sock, without_tls if self.tls is None else self.tls.accepting)
        try:
            yield sock.getsockname()
        finally:
            await listener.stop()

    def take_kafka(self, transport: asyncio.Transport, received: bytes) -> None:
        self.kafka.append(received)
        transport.abort()

    async def dial(self, address: tuple[str, int]) -> OutboundChannel:
        return await dial(self.identity, "rpc", address, expect=1)

    async def refusal(self, address: tuple[str, int]) -> str:
        with pytest.raises(HandshakeRefused) as refused:
            await self.dial(address)
        return str(refused.value)


def reasons(logs: list[Any], event: str) -> list[str]:
    return [str(each["reason"]) for each in logs if each["event"] == event]


def test_frames_of_all_sizes_arrive_over_tls(run: Any, authority: Authority) -> None:
    """With certificates of both ends, and the proof bound to the listener's."""

    async def main() -> None:
        settings = authority.settings(authority.issue("node"), client_auth="required")
        here, there = Node(1, settings), Node(2, settings)
        async with here.listening() as address:
            channel = await there.dial(address)
            sent = [b"x" * size for size in (0, 1, 20_000, 16 << 20)]
            for each in sent:
                channel.send(each)
            await until(lambda: len(here.frames) == len(sent))
            assert here.frames == sent
            channel.close("the test is over")

    run(main())


def test_the_proof_is_worth_nothing_under_another_certificate(run: Any, authority: Authority) -> None:
    """A relay between two nodes, with a certificate that both trust, can pass no proof on."""

    async def main() -> None:
        here = Node(1, authority.settings(authority.issue("node")))
        between = Node(3, authority.settings(authority.issue("between")))
        assert between.tls is not None
        there = Node(2, authority.settings(authority.issue("other")))
        async with here.listening() as address:

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                assert between.identity.tls is not None
                options = await between.identity.tls.dial_options()
                from_node, to_node = await asyncio.open_connection(*address, **options)
                await asyncio.gather(copy(reader, to_node), copy(from_node, writer))

            def accept() -> asyncio.StreamReaderProtocol:
                return asyncio.StreamReaderProtocol(asyncio.StreamReader(), relay)

            await between.tls.open(between.offload)
            loop = asyncio.get_running_loop()
            async with await loop.create_server(between.tls.accepting(accept), HOST, 0) as server:
                with capture_logs() as logs:
                    refused = await there.refusal(server.sockets[0].getsockname())
                    await until(lambda: reasons(logs, "controller_connection_refused"))
                for told in (refused, *reasons(logs, "controller_connection_refused")):
                    assert "secrets differ" in told and "TLS ends between" in told

    run(main())


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
    except OSError:
        pass
    writer.close()


def test_a_node_without_tls_at_a_listener_with_it_learns_what_to_mend(run: Any, authority: Authority) -> None:
    """Both sides name the setting."""

    async def main() -> None:
        here, there = Node(1, authority.settings(authority.issue("node"))), Node(2, None)
        async with here.listening() as address:
            with capture_logs() as logs:
                assert MAP in await there.refusal(address)
                await until(lambda: reasons(logs, "tls_handshake_failed"))
            assert f"CONTROLLER:SSL in {MAP}" in reasons(logs, "tls_handshake_failed")[0]

    run(main())


def test_a_node_with_tls_at_a_listener_without_it_learns_what_to_mend(run: Any, authority: Authority) -> None:
    """Both sides name the setting, and no Kafka client was seen in it."""

    async def main() -> None:
        here, there = Node(1, None), Node(2, authority.settings(authority.issue("node")))
        async with here.listening() as address:
            with capture_logs() as logs:
                assert MAP in await there.refusal(address)
                await until(lambda: reasons(logs, "controller_connection_refused"))
            assert MAP in reasons(logs, "controller_connection_refused")[0]
            assert not here.kafka

    run(main())


def test_a_hello_of_a_round_size_is_no_kafka_client(run: Any) -> None:
    """A record of 512 bytes, as OpenSSL pads some, has a zero where Kafka's API key begins."""

    async def main() -> None:
        here = Node(1, None)
        async with here.listening() as address:
            _reader, writer = await asyncio.open_connection(*address)
            with capture_logs() as logs:
                writer.write(b"\x16\x03\x01\x02\x00\x01" + bytes(511))
                await until(lambda: reasons(logs, "controller_connection_refused"))
            assert MAP in reasons(logs, "controller_connection_refused")[0]
            writer.close()

    run(main())


def test_a_node_is_refused_whose_certificate_is_not_believed(run: Any, authority: Authority) -> None:
    """One line here, and there a hint where to look."""

    async def main() -> None:
        stranger = Authority(authority.path.parent, "stranger").issue("stranger")
        here = Node(1, authority.settings(authority.issue("node"), client_auth="required"))
        there = Node(
            2, authority.settings(authority.issue("other")) | {"ssl.keystore.location": str(stranger)}
        )
        async with here.listening() as address:
            with capture_logs() as logs:
                await there.refusal(address)
                await until(lambda: reasons(logs, "tls_handshake_failed"))
            assert "is not trusted" in reasons(logs, "tls_handshake_failed")[0]

    run(main())


@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_a_listener_is_refused_whose_certificate_is_not_believed(
    run: Any, authority: Authority, wrong: str
) -> None:
    """Of another authority, or for another host."""

    async def main() -> None:
        if wrong == "host":
            shown = authority.issue("node", "elsewhere.example")
        else:
            shown = Authority(authority.path.parent, "stranger").issue("node")
        here = Node(1, authority.settings(shown))
        there = Node(2, authority.settings(authority.issue("other")))
        async with here.listening() as address:
            assert "its certificate is not trusted" in await there.refusal(address)

    run(main())


def test_a_probe_leaves_no_line(run: Any, authority: Authority) -> None:
    """A voter that is missed is asked for a sign of life, without TLS and without a word."""

    async def main() -> None:
        here = Node(1, authority.settings(authority.issue("node")))
        there = Node(2, authority.settings(authority.issue("other")))
        async with here.listening() as address:
            with capture_logs() as logs:
                assert await probe(address) == "alive"
                channel = await there.dial(address)
                channel.close("the test is over")
            assert not logs

    run(main())
