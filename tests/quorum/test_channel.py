"""The authenticated channel: who gets in, who does not, and what each side is told."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.quorum import channel as channels
from raftlog.quorum.channel import Accepted, Dialled, ForeignCluster, Identity, Refused, dial
from tests.quorum.cluster import bound_socket, until


class Server:
    """A listener that keeps what it accepted and what it refused."""

    def __init__(self, identity: Identity, admit: Callable[[Any], str | None]) -> None:
        self.identity = identity
        self.admit = admit
        self.open: list[Accepted] = []
        self.frames: list[bytes] = []
        self.lost: list[str] = []
        self.refused: list[str] = []
        self.address = ("127.0.0.1", 0)

    def accept(self) -> Accepted:
        return Accepted(
            self.identity,
            admit=self.admit,
            on_open=self.opened,
            on_failed=lambda _channel, reason: self.refused.append(reason),
        )

    def opened(self, channel: Accepted) -> None:
        self.open.append(channel)
        channel.attach(self.frames.append, self.lost.append)


def who(node_id: int, secret: bytes = b"secret", cluster_id: str | None = None) -> Identity:
    return Identity(node_id, secret, lambda: cluster_id)


@asynccontextmanager
async def serving(
    identity: Identity, admit: Callable[[Any], str | None] = lambda _: None
) -> AsyncIterator[Server]:
    server = Server(identity, admit)
    sock = bound_socket()
    server.address = sock.getsockname()
    listener = await asyncio.get_running_loop().create_server(server.accept, sock=sock)
    try:
        yield server
    finally:
        listener.close()
        for channel in server.open:
            channel.close("the test is over")


async def connected(server: Server, identity: Identity | None = None) -> Dialled:
    return await dial(identity or who(2), "rpc", server.address, expect=1)


async def test_both_ends_know_each_other_and_frames_arrive_in_order() -> None:
    """Node ids are authenticated on both sides; every frame comes once and in order, large ones too."""
    async with serving(who(1, cluster_id="abc")) as server:
        channel = await connected(server)
        assert (channel.peer_id, server.open[0].peer_id, server.open[0].kind) == (1, 2, "rpc")
        sent = [b"", b"one", b"x" * 1_000_000, b"last"]
        for frame in sent:
            channel.send(frame)
        await until(lambda: len(server.frames) == len(sent))
        assert server.frames == sent
        answers: list[bytes] = []
        server.open[0].send(b"back")
        await until(lambda: channel._early)
        channel.attach(answers.append, answers.append)
        await until(lambda: answers == [b"back"])


async def refused(server: Server, identity: Identity, expect: int | None = 1) -> tuple[str, str]:
    """Dial in vain; return what the dialler and the listener were told."""
    with pytest.raises(Refused) as told:
        await dial(identity, "raft", server.address, expect=expect)
    await until(lambda: server.refused)
    return str(told.value), server.refused[0]


async def test_a_wrong_secret_is_refused_and_both_sides_are_told() -> None:
    """The commonest mistake of a deployment must be in both logs."""
    async with serving(who(1)) as server:
        here, there = await refused(server, who(2, b"another"))
        assert "secrets differ" in here and "secrets differ" in there
        assert server.open == []


async def test_a_listener_with_a_wrong_secret_is_not_believed() -> None:
    """The dialler checks first: an impostor learns nothing and gets no frame."""
    async with serving(who(1, b"another")) as server:
        here, _ = await refused(server, who(2))
        assert "secrets differ" in here


async def test_a_foreign_cluster_is_refused_on_either_side() -> None:
    """Two clusters with one secret on one machine do not mix."""
    async with serving(who(1, cluster_id="ours")) as server:
        here, there = await refused(server, who(2, cluster_id="theirs"))
        assert "belongs to cluster" in here and "belongs to cluster" in there
        with pytest.raises(ForeignCluster):
            await dial(who(2, cluster_id="theirs"), "rpc", server.address, expect=1)


@pytest.mark.parametrize("ids", [(None, None), ("ours", None), (None, "ours"), ("ours", "ours")])
async def test_a_node_without_a_cluster_id_yet_may_join(ids: tuple[str | None, str | None]) -> None:
    """The id is in the metadata, which a new node has yet to get."""
    async with serving(who(1, cluster_id=ids[0])) as server:
        assert (await connected(server, who(2, cluster_id=ids[1]))).opened


async def test_another_node_than_expected_is_refused() -> None:
    """Swapped addresses in controller.quorum.voters."""
    async with serving(who(1)) as server:
        here, there = await refused(server, who(2), expect=3)
        assert "expected node 3" in here and "expected node 3" in there


async def test_a_peer_that_is_not_admitted_is_told_why() -> None:
    """Authenticated but unwelcome, as a node that is not among the voters."""
    async with serving(who(1), lambda hello: f"no {hello.kind} from {hello.node_id}") as server:
        here, there = await refused(server, who(2))
        assert "no raft from 2" in here and "no raft from 2" in there


async def test_a_replayed_frame_closes_the_channel() -> None:
    """The MAC covers a sequence number."""
    async with serving(who(1)) as server:
        channel = await connected(server)
        recorded: list[bytes] = []
        transport = channel._transport
        assert transport is not None
        write = transport.write
        transport.write = lambda data: (recorded.append(bytes(data)), write(data))[1]  # type: ignore[method-assign]
        channel.send(b"pay 5")
        await until(lambda: server.frames == [b"pay 5"])
        write(recorded[0])
        await until(lambda: server.lost)
        assert "replayed" in server.lost[0] and server.frames == [b"pay 5"]


async def test_a_frame_reflected_to_its_sender_closes_the_channel() -> None:
    """Each direction has its own key."""
    async with serving(who(1)) as server:
        channel = await connected(server)
        lost: list[str] = []
        channel.attach(lambda _payload: None, lost.append)
        mac = channel._mac(channel._send_key, 0, b"x")
        server.open[0]._transport.write(struct.pack(">I", 1 + len(mac)) + b"x" + mac)  # type: ignore[union-attr]
        await until(lambda: lost)
        assert "forged" in lost[0]


async def test_a_recorded_session_cannot_be_played_again() -> None:
    """Both sides put a nonce into the transcript that is proved."""
    async with serving(who(1)) as server:
        channel = Dialled(who(2), "rpc", expect=1)
        recorded = bytearray()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: Recorded(channel, recorded), *server.address
        )
        await channel.ready
        channel.send(b"once")
        await until(lambda: server.frames == [b"once"])
        transport.close()
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(bytes(recorded))
        assert b"secrets differ" in await reader.read()
        assert len(server.open) == 1 and server.frames == [b"once"]
        writer.close()


class Recorded(asyncio.Protocol):
    """A protocol whose every written byte is kept."""

    def __init__(self, inner: Dialled, kept: bytearray) -> None:
        self.inner = inner
        self.kept = kept

    def connection_made(self, transport: Any) -> None:
        write = transport.write
        outer = self

        class Keeping:
            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                outer.kept += data
                write(data)

        self.inner.connection_made(Keeping())

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.inner.connection_lost(error)


@pytest.mark.parametrize(
    "opening",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        struct.pack(">i", -1) + b"x",
        struct.pack(">I", 0),
        struct.pack(">I", channels.MAX_HANDSHAKE_BYTES + 1),
        struct.pack(">I", 5) + b"hello",
        struct.pack(">I", 3) + b"\x93\x01\x02",
    ],
)
async def test_what_is_no_handshake_is_closed_at_once(opening: bytes) -> None:
    """HTTP, TLS, negative and oversized lengths, and bytes that are no message, before anything is allocated."""
    async with serving(who(1)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(opening)
        async with asyncio.timeout(2):
            await reader.read()
        await until(lambda: server.refused)
        writer.close()


async def test_an_oversized_frame_closes_an_open_channel() -> None:
    """The limit holds after authentication too."""
    async with serving(who(1)) as server:
        channel = await connected(server)
        assert channel._transport is not None
        channel._transport.write(struct.pack(">I", channels.MAX_FRAME_BYTES + 17))
        await until(lambda: server.lost)
        assert "over the limit" in server.lost[0]


async def test_a_peer_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake that is not finished in its time holds no connection (slow loris)."""
    monkeypatch.setattr(channels, "HANDSHAKE_SECONDS", 0.05)
    async with serving(who(1)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        async with asyncio.timeout(2):
            await reader.read()
        await until(lambda: server.refused)
        assert "too long" in server.refused[0]
        writer.close()


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_of_a_stranger_raise(chunks: list[bytes]) -> None:
    """Whatever comes before authentication, the protocol only ever refuses."""

    class Wire:
        def __init__(self) -> None:
            self.closed = False

        def get_extra_info(self, name: str) -> tuple[str, int] | None:
            return ("stranger", 1) if name == "peername" else None

        def write(self, _data: bytes) -> None:
            pass

        def close(self) -> None:
            self.closed = True

        abort = close

    async def run() -> None:
        server = Server(who(1), lambda _: None)
        channel = server.accept()
        channel.connection_made(Wire())
        for chunk in chunks:
            channel.data_received(chunk)
            channel.data_received(struct.pack(">I", len(chunk)) + chunk)
        assert not channel.opened
        channel.connection_lost(None)

    asyncio.run(run())
