"""The authenticated channel: which nodes get in, which are refused, and the notices of both sides."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from raftlog.quorum import channel as channels
from raftlog.quorum.channel import (
    ForeignCluster,
    HandshakeRefused,
    Identity,
    InboundChannel,
    OutboundChannel,
    dial,
)
from raftlog.quorum.handshake_messages import (
    Challenge,
    Hello,
    Levels,
    Proof,
    Refusal,
    Verdict,
    decode_handshake,
)
from raftlog_chaos.simulator import SimLoop, simulate
from tests.kit.waits import PATIENCE_S
from tests.quorum.cluster import bound_socket, until


class Server:
    """A listener that keeps what it accepted and what it refused."""

    def __init__(self, identity: Identity, admit: Callable[[Any], str | None]) -> None:
        self.identity = identity
        self.admit = admit
        self.open: list[InboundChannel] = []
        self.frames: list[bytes] = []
        self.lost: list[str] = []
        self.refused: list[str] = []
        self.address = ("127.0.0.1", 0)

    def accept(self) -> InboundChannel:
        return InboundChannel(
            self.identity,
            admit=self.admit,
            on_open=self.opened,
            on_failed=lambda _channel, reason: self.refused.append(reason),
        )

    def opened(self, channel: InboundChannel) -> None:
        self.open.append(channel)
        channel.attach(self.frames.append, self.lost.append)


def make_identity(node_id: int, secret: bytes = b"secret", cluster_id: str | None = None) -> Identity:
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


async def connected(server: Server, identity: Identity | None = None) -> OutboundChannel:
    return await dial(identity or make_identity(2), "rpc", server.address, expect=1)


async def test_both_ends_know_each_other_and_frames_arrive_in_order() -> None:
    """Node ids are authenticated on both sides; every frame comes once and in order, large frames too."""
    async with serving(make_identity(1, cluster_id="abc")) as server:
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
    """Dial in vain; return the errors of the dialler and the listener."""
    with pytest.raises(HandshakeRefused) as told:
        await dial(identity, "raft", server.address, expect=expect)
    await until(lambda: server.refused)
    return str(told.value), server.refused[0]


async def test_a_wrong_secret_is_refused_and_both_sides_log_it() -> None:
    """The commonest mistake of a deployment must be in both logs."""
    async with serving(make_identity(1)) as server:
        here, there = await refused(server, make_identity(2, b"another secret"))
        assert "secrets differ" in here and "secrets differ" in there
        assert server.open == []


async def handshake(address: tuple[str, int], *messages: Any) -> list[Any]:
    """Send handshake messages as a stranger; return all that the listener says until it closes."""
    reader, writer = await asyncio.open_connection(*address)
    for message in messages:
        frame = msgspec.msgpack.encode(message)
        writer.write(struct.pack(">I", len(frame)) + frame)
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    writer.close()
    heard = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        heard.append(decode_handshake(data[4:end]))
        data = data[end:]
    return heard


async def test_a_listener_proves_nothing_to_a_stranger() -> None:
    """With a proof of the listener's, a stranger could try secrets at home; a wrong proof earns a refusal only."""
    hello = Hello(channels.PROTOCOL, "rpc", 2, "", b"n" * 32)
    async with serving(make_identity(1)) as server:
        challenge, refusal = await handshake(server.address, hello, Proof(b"p" * 32))
    assert isinstance(challenge, Challenge) and isinstance(refusal, Refusal)
    kinds = [int, str, bytes, int, int, bytes, bytes, bool, list, bool]
    assert [type(each) for each in msgspec.structs.astuple(challenge)] == kinds
    assert challenge.nonce not in (hello.nonce, b"")
    assert "secrets differ" in refusal.reason


class Impostor(asyncio.Protocol):
    """A listener that does not know the secret: it says what it has ready, whatever it hears."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.messages:
            frame = msgspec.msgpack.encode(self.messages.pop(0))
            self.transport.write(struct.pack(">I", len(frame)) + frame)


@pytest.mark.parametrize(
    "messages",
    [
        (Challenge(1, "", b"n" * 32), Verdict(b"p" * 32, "")),
        (Challenge(1, "theirs", b"n" * 32), Verdict(b"p" * 32, "you belong to another cluster")),
        (Challenge(1, "theirs", b"n" * 32), Refusal("you belong to another cluster")),
        (Verdict(b"p" * 32, ""),),
    ],
    ids=["welcome", "foreign", "unproven", "at once"],
)
async def test_an_impostor_is_not_believed(messages: tuple[Any, ...]) -> None:
    """Neither that it is the node at this address, nor that this node belongs to another cluster, which ends a node."""
    sock = bound_socket()
    listener = await asyncio.get_running_loop().create_server(lambda: Impostor(*messages), sock=sock)
    with pytest.raises(HandshakeRefused) as told:
        await dial(make_identity(2, cluster_id="ours"), "rpc", sock.getsockname(), expect=1)
    listener.close()
    assert not isinstance(told.value, ForeignCluster)


async def test_a_foreign_cluster_is_refused_on_either_side() -> None:
    """Two clusters with one secret on one machine do not mix."""
    async with serving(make_identity(1, cluster_id="ours")) as server:
        here, there = await refused(server, make_identity(2, cluster_id="theirs"))
        assert "belongs to cluster" in here and "belongs to cluster" in there
        with pytest.raises(ForeignCluster):
            await dial(make_identity(2, cluster_id="theirs"), "rpc", server.address, expect=1)


@pytest.mark.parametrize("ids", [(None, None), ("ours", None), (None, "ours"), ("ours", "ours")])
async def test_a_node_without_a_cluster_id_yet_may_join(ids: tuple[str | None, str | None]) -> None:
    """The id is in the metadata, which a new node has yet to get."""
    async with serving(make_identity(1, cluster_id=ids[0])) as server:
        assert (await connected(server, make_identity(2, cluster_id=ids[1]))).opened


async def test_another_node_than_expected_is_refused() -> None:
    """Swapped addresses in controller.quorum.voters."""
    async with serving(make_identity(1)) as server:
        here, there = await refused(server, make_identity(2), expect=3)
        assert "expected node 3" in here and "expected node 3" in there


async def test_a_peer_that_is_not_admitted_gets_the_reason() -> None:
    """Authenticated but unwelcome, as a node that is not among the voters."""
    async with serving(make_identity(1), lambda hello: f"no {hello.kind} from {hello.node_id}") as server:
        here, there = await refused(server, make_identity(2))
        assert "no raft from 2" in here and "no raft from 2" in there


async def test_a_replayed_frame_closes_the_channel() -> None:
    """The MAC covers a sequence number."""
    async with serving(make_identity(1)) as server:
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
    async with serving(make_identity(1)) as server:
        channel = await connected(server)
        lost: list[str] = []
        channel.attach(lambda _payload: None, lost.append)
        mac = channels._mac(channel._send_hmac, 0, b"x")
        server.open[0]._transport.write(struct.pack(">I", 1 + len(mac)) + b"x" + mac)  # type: ignore[union-attr]
        await until(lambda: lost)
        assert "forged" in lost[0]


async def test_a_recorded_session_cannot_be_played_again() -> None:
    """Both sides put a nonce into the transcript that is proved."""
    async with serving(make_identity(1)) as server:
        channel = OutboundChannel(make_identity(2), "rpc", expect=1)
        recorded = bytearray()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: RecordingProtocol(channel, recorded), *server.address
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


class RecordingProtocol(asyncio.Protocol):
    """A protocol that records every written byte."""

    def __init__(self, inner: OutboundChannel, kept: bytearray) -> None:
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
    async with serving(make_identity(1)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(opening)
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        await until(lambda: server.refused)
        writer.close()


async def test_text_that_is_no_utf_8_is_refused_like_other_nonsense() -> None:
    """msgspec raises UnicodeDecodeError for it, which is none of its own errors: no traceback in the log."""
    tag = b"raftlog hell\xff"
    async with serving(make_identity(1)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(struct.pack(">I", len(tag) + 2) + b"\x91" + bytes([0xA0 | len(tag)]) + tag)
        async with asyncio.timeout(2):
            await reader.read()
        await until(lambda: server.refused)
        writer.close()
        assert server.refused == ["it does not speak this protocol"]


async def test_an_oversized_frame_closes_an_open_channel() -> None:
    """The limit holds after authentication too."""
    async with serving(make_identity(1)) as server:
        channel = await connected(server)
        assert channel._transport is not None
        channel._transport.write(struct.pack(">I", channels.MAX_FRAME_BYTES + 17))
        await until(lambda: server.lost)
        assert "over the limit" in server.lost[0]


async def test_a_peer_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake that is not finished in its time holds no connection (slow loris)."""
    monkeypatch.setattr(channels, "ACCEPT_SECONDS", 0.05)
    async with serving(make_identity(1)) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        await until(lambda: server.refused)
        assert "too long" in server.refused[0]
        writer.close()


@pytest.mark.parametrize(
    "new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize("moment", ["made", "challenged"])
def test_a_dial_that_is_given_up_leaves_nothing_behind(
    new_loop: Callable[[], asyncio.AbstractEventLoop], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop closes a transport of a cancelled `create_connection` without `connection_lost`; a timer of its channel
    then wrote to it, which ended the node.
    """
    monkeypatch.setattr(channels, "ACCEPT_SECONDS", 0.05)
    failures: list[dict[str, Any]] = []
    given_up: list[OutboundChannel] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: failures.append(context))
        dialling: list[asyncio.Task[Any]] = []

        def give_up(begin: Callable[..., None]) -> Callable[..., None]:
            def begin_and_give_up(channel: OutboundChannel, *arguments: Any) -> None:
                begin(channel, *arguments)
                given_up.append(channel)
                dialling[0].cancel()

            return begin_and_give_up

        name = "_begin" if moment == "made" else "_take_challenge"
        monkeypatch.setattr(OutboundChannel, name, give_up(getattr(OutboundChannel, name)))
        async with serving(make_identity(1)) as server:
            dialling.append(asyncio.create_task(dial(make_identity(2), "rpc", server.address, expect=1)))
            await asyncio.wait(dialling)
            late = loop.time() + 3 * channels.ACCEPT_SECONDS
            await until(lambda: loop.time() > late and (server.refused or server.lost))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    assert failures == []
    assert [each.ready.cancelled() for each in given_up] == [True]


@pytest.mark.parametrize("seconds", [0.0005 * each for each in range(1, 12)])
def test_a_simulated_dial_that_runs_out_of_time_leaves_nothing_behind(seconds: float) -> None:
    """At whatever moment: the simulator's transports also close without notice, and later writes to them fail."""

    async def program(loop: SimLoop) -> None:
        server = Server(make_identity(1), lambda _: None)
        await loop.host("a").start(loop.create_server(server.accept, port=9093))
        loop.network.latency_s = (0.0005, 0.0005)
        loop.network.turn_s = 0.001
        dialling = loop.host("b").start(dial(make_identity(2), "rpc", ("a", 9093), expect=1, seconds=seconds))
        await asyncio.wait([dialling])
        await asyncio.sleep(2 * channels.ACCEPT_SECONDS)
        assert not loop.failures
        channels_left = [each for each in server.open if each.close_reason is None]
        assert bool(channels_left) == (dialling.exception() is None)

    simulate(program)


async def test_what_fails_over_a_peers_bytes_closes_its_channel_only() -> None:
    """An exception of a channel's user over a frame or an end is logged once, and does not reach the loop."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))

    def fail(_told: object) -> None:
        raise ZeroDivisionError

    async with serving(make_identity(1)) as server:
        channel = await connected(server)
        server.open[0].attach(fail, fail)
        other = await connected(server)
        lost: list[str] = []
        channel.attach(server.frames.append, lost.append)
        with capture_logs() as logs:
            channel.send(b"one")
            channel.send(b"two")
            await until(lambda: lost)
        other.send(b"three")
        await until(lambda: server.frames == [b"three"])
    assert [each["event"] for each in logs] == ["controller_connection_failed"]
    assert failures == []


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_of_a_stranger_raise(chunks: list[bytes]) -> None:
    """The protocol only ever refuses what comes before authentication."""

    class Wire:
        def __init__(self) -> None:
            self.closed = False

        def get_extra_info(self, name: str) -> tuple[str, int] | None:
            return ("stranger", 1) if name == "peername" else None

        def write(self, _data: bytes) -> None:
            pass

        def is_closing(self) -> bool:
            return self.closed

        def close(self) -> None:
            self.closed = True

        abort = close

    async def run() -> None:
        server = Server(make_identity(1), lambda _: None)
        channel = server.accept()
        channel.connection_made(Wire())
        for chunk in chunks:
            channel.data_received(chunk)
            channel.data_received(struct.pack(">I", len(chunk)) + chunk)
        assert not channel.opened
        channel.connection_lost(None)

    asyncio.run(run())


OF_LEVEL_1 = Levels(0, 1, lambda: 1)


@pytest.mark.parametrize("here,there", [(Levels(), OF_LEVEL_1), (OF_LEVEL_1, Levels())])
async def test_a_node_that_lacks_the_clusters_level_is_refused_with_a_sentence(
    here: Levels, there: Levels
) -> None:
    """At either end, its own log or the other's has the reason; a release that reports no levels supports level 0."""
    server_side, client_side = (
        replace(make_identity(each), levels=own) for each, own in ((1, here), (2, there))
    )
    old = 1 if here == Levels() else 2
    async with serving(server_side) as server:
        with pytest.raises(HandshakeRefused) as refused:
            await connected(server, client_side)
    assert not isinstance(refused.value, ForeignCluster), "the observer must not end because of it"
    assert f"node {old} supports levels 0 to 0 of raftlog.metadata.version, and the cluster's is 1" in str(
        refused.value
    )


async def test_levels_are_exchanged_and_no_node_is_refused_before_they_are_known() -> None:
    """Both ends know what the other supports; a node without metadata has no demands on others."""
    newer = replace(make_identity(1), levels=Levels(0, 1))
    async with serving(newer) as server:
        channel = await connected(server)
        await until(lambda: server.open)
        assert channel.peer_levels == (0, 1)
        assert server.open[0].peer_levels == (0, 0)
