"""raftlog.broker.links.peer_auth: only a node with the secret is a broker, and eavesdropping does not help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.base.handshake import NONCE_BYTES, PROOF_BYTES
from raftlog.broker.links.peer_auth import FIRST_ASKING_HELLO, HELLO, peer_secret, prove_membership
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.replication.replica_host import ReplicaId
from tests.broker.fakes import FakeClient, FakePartitionServer

ME = ReplicaId(2, 12)
SECRET = b"secret"
"""The metadata version of the fakes."""


def asking(
    pipe: FakeClient, said: list[bytes] | None = None, heard: list[bytes] | None = None
) -> Callable[[bytes], Awaitable[bytes]]:
    async def ask(frame: bytes) -> bytes:
        if said is not None:
            said.append(frame)
        pipe.send(frame)
        frames = pipe.frames()
        if not frames:
            raise ConnectionResetError
        if heard is not None:
            heard.append(bytes(frames[0]))
        return bytes(frames[0])

    return ask


async def prove(pipe: FakeClient, secret: bytes = SECRET, *, server_id: int = 1, hello: int = HELLO) -> None:
    await prove_membership(asking(pipe), secret=secret, own=ME, server_id=server_id, hello=hello)


async def test_both_sides_prove_the_secret_and_the_connection_is_that_broker() -> None:
    """Replica fetches are accepted only on such connections."""
    pipe = FakePartitionServer().connect()
    await prove(pipe)
    assert pipe.connection.peer == ME
    assert not pipe.transport.closed


async def test_a_proof_of_another_secret_is_refused_and_logged() -> None:
    """Before that the server sends no data that depends on its secret: neither a challenge nor a refusal helps to guess
    it.
    """
    fake = FakePartitionServer()
    pipe = fake.connect()
    said: list[bytes] = []
    heard: list[bytes] = []
    with (
        capture_logs() as logs,
        pytest.raises(SaslAuthenticationFailed, match=r"refused our raftlog\.cluster\.secret"),
    ):
        await prove_membership(asking(pipe, said, heard), secret=b"other", own=ME, server_id=1)
    assert pipe.connection.peer is None
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["peer_refused"]
    challenge, verdict = heard
    assert len(challenge) == 4 + 4 + NONCE_BYTES
    assert verdict[4:] == (58).to_bytes(2, "big") + bytes(PROOF_BYTES)


async def test_brokers_of_two_clusters_with_one_secret_are_strangers() -> None:
    """A copy of a cluster has its secret, and metadata that may name its brokers' addresses."""
    fake = FakePartitionServer()
    level_1 = msgspec.structs.replace(fake.image, features={RAFTLOG_METADATA_VERSION: 1})
    original, copy = (msgspec.structs.replace(level_1, cluster_id=name) for name in ("original", "copy"))
    fake.image = original
    with pytest.raises(SaslAuthenticationFailed, match=r"raftlog\.cluster\.secret"):
        await prove(fake.connect(), peer_secret(SECRET, copy, None))
    pipe = fake.connect()
    await prove(pipe, peer_secret(SECRET, original, None))
    assert pipe.connection.peer == ME


async def test_brokers_of_a_cluster_of_level_0_prove_the_secret_alone() -> None:
    """Nodes of 0.2.0 do so, whichever cluster they are of."""
    fake = FakePartitionServer()
    fake.image = msgspec.structs.replace(fake.image, cluster_id="any")
    pipe = fake.connect()
    await prove(pipe, SECRET)
    assert pipe.connection.peer == ME
    assert peer_secret(SECRET, fake.image, None) == SECRET


async def test_a_server_that_cannot_prove_the_secret_is_not_believed() -> None:
    """It may answer whatever it likes to the client's proof."""
    impostor = FakePartitionServer(cluster_secret=b"other")

    async def ask(frame: bytes) -> bytes:
        pipe = impostor.connect()
        for each in (*said, frame):
            pipe.send(each)
        said.append(frame)
        answer = bytes(pipe.frames()[-1])
        return answer if len(said) == 1 else answer[:4] + bytes(2 + PROOF_BYTES)

    said: list[bytes] = []
    impostor.server.nonce = bytes
    with pytest.raises(SaslAuthenticationFailed, match=r"has another raftlog\.cluster\.secret"):
        await prove_membership(ask, secret=SECRET, own=ME, server_id=1)


async def test_another_version_of_the_handshake_closes_the_connection() -> None:
    """A node of another release neither misreads a challenge nor is misread."""
    pipe = FakePartitionServer().connect()
    said: list[bytes] = []
    await prove_membership(asking(FakePartitionServer().connect(), said), secret=SECRET, own=ME, server_id=1)
    pipe.send(said[0][:6] + bytes(2) + said[0][8:])
    assert pipe.frames() == [] and pipe.transport.closed


async def test_a_newer_connection_of_a_broker_ends_its_older_one() -> None:
    """A request on it may come yet, from a kernel that sends on: it must not be taken for news."""
    fake = FakePartitionServer()
    older, newer, other = fake.connect(), fake.connect(), fake.connect()
    await prove(older)
    await prove_membership(asking(other), secret=SECRET, own=ReplicaId(3, 13), server_id=1)
    await prove(newer)
    assert older.transport.closed
    assert newer.connection.peer == ME
    assert not newer.transport.closed
    assert not other.transport.closed


async def test_a_connection_to_ask_on_ends_only_older_ones_to_ask_the_same_api_on() -> None:
    """Followers must keep their connection while another request is sent; a late marker must not be accepted."""
    fake = FakePartitionServer()
    follower, older, newer, other = (fake.connect() for _ in range(4))
    await prove(follower)
    await prove(older, hello=FIRST_ASKING_HELLO + 27)
    await prove(other, hello=FIRST_ASKING_HELLO + 24)
    await prove(newer, hello=FIRST_ASKING_HELLO + 27)
    assert older.transport.closed
    assert not any(each.transport.closed for each in (follower, newer, other))
    assert [each.connection.is_follower for each in (follower, newer, other)] == [True, False, False]
    for each in (follower, newer, other):
        each.connection.connection_lost(None)
    assert not fake.server._peers


async def test_a_broker_that_proves_itself_late_on_an_older_connection_is_refused() -> None:
    """The order is that of the connections, not of the proofs."""
    fake = FakePartitionServer()
    older, newer = fake.connect(), fake.connect()
    await prove(newer)
    with pytest.raises(SaslAuthenticationFailed):
        await prove(older)
    assert older.connection.peer is None
    assert older.transport.closed
    assert newer.connection.peer == ME


async def test_a_broker_is_forgotten_with_its_connection() -> None:
    """However often brokers come and go, the broker keeps no state of them."""
    fake = FakePartitionServer()
    for _ in range(3):
        pipe = fake.connect()
        await prove(pipe)
        pipe.connection.connection_lost(None)
    assert not fake.server._peers


async def test_another_broker_at_the_address_is_not_taken_for_the_one_meant() -> None:
    """A stale or swapped address must not feed another leader's fetch offsets."""
    with pytest.raises(SaslAuthenticationFailed, match="broker 1 answers at the address of broker 3"):
        await prove(FakePartitionServer().connect(), server_id=3)


async def test_steps_out_of_order_close_the_connection() -> None:
    """A proof needs a challenge of this very connection."""
    said: list[bytes] = []
    await prove_membership(asking(FakePartitionServer().connect(), said), secret=SECRET, own=ME, server_id=1)
    pipe = FakePartitionServer().connect()
    pipe.send(said[1])
    assert pipe.transport.closed
    pipe = FakePartitionServer().connect()
    pipe.send(said[0][:-1] + b"")
    assert pipe.frames() == []


async def test_a_connection_has_one_handshake_and_its_steps_are_short() -> None:
    """They are handled before other waiting requests, so a client may not send many of them, or a hundred megabytes."""
    said: list[bytes] = []
    proved = FakePartitionServer().connect()
    await prove_membership(asking(proved, said), secret=SECRET, own=ME, server_id=1)
    proved.send(said[0])
    assert proved.transport.closed
    pipe = FakePartitionServer().connect()
    pipe.send(said[0])
    assert len(pipe.frames()) == 1 and not pipe.transport.closed
    pipe.send(said[0])
    assert pipe.transport.closed
    pipe = FakePartitionServer().connect()
    with capture_logs() as logs:
        pipe.send((1_000_000).to_bytes(4, "big") + said[0][4:].ljust(1_000_000, b"\0"))
    assert "at most 256 bytes" in logs[0]["reason"]


async def test_a_server_that_reflects_the_clients_own_proof_proves_nothing() -> None:
    """The two sides' proofs are for different purposes."""
    pipe = FakePartitionServer().connect()

    async def reflect(frame: bytes) -> bytes:
        answer = await asking(pipe)(frame)
        return answer if len(answer) == 4 + 4 + NONCE_BYTES else answer[:4] + bytes(2) + frame[-PROOF_BYTES:]

    with pytest.raises(SaslAuthenticationFailed, match=r"has another raftlog\.cluster\.secret"):
        await prove_membership(reflect, secret=SECRET, own=ME, server_id=1)


async def test_an_unlike_server_is_named_as_such() -> None:
    """A Kafka broker at the address closes or answers otherwise."""

    async def ask(frame: bytes) -> bytes:
        await asyncio.sleep(0)
        return b"\0\0\0\0\0\x23"

    with pytest.raises(SaslAuthenticationFailed):
        await prove_membership(ask, secret=SECRET, own=ME, server_id=1)
