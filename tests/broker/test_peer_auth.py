"""raftlog.broker.peer_auth: only who knows the secret is a broker, and nothing that was overheard helps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.broker.peer_auth import prove_membership
from raftlog.replication.host import ReplicaId
from tests.broker.fakes import Pipe, World

ME = ReplicaId(2, 12)


def asking(pipe: Pipe, said: list[bytes] | None = None) -> Callable[[bytes], Awaitable[bytes]]:
    async def ask(frame: bytes) -> bytes:
        if said is not None:
            said.append(frame)
        pipe.send(frame)
        frames = pipe.frames()
        if not frames:
            raise ConnectionResetError
        return bytes(frames[0])

    return ask


async def prove(pipe: Pipe, secret: bytes = b"secret", *, server_id: int = 1) -> None:
    await prove_membership(asking(pipe), secret=secret, own=ME, server_id=server_id)


async def test_both_sides_prove_the_secret_and_the_connection_is_that_broker() -> None:
    """Replica fetches are accepted only on such connections."""
    pipe = World().connect()
    await prove(pipe)
    assert pipe.connection.peer == ME
    assert not pipe.transport.closed


async def test_a_wrong_secret_is_noticed_by_the_client_before_it_proves_anything() -> None:
    """The server's proof comes first, and fails."""
    pipe = World().connect()
    with pytest.raises(SaslAuthenticationFailed, match=r"another raftlog\.cluster\.secret"):
        await prove(pipe, b"other")
    assert pipe.connection.peer is None


async def test_a_proof_of_another_secret_is_refused_and_logged() -> None:
    """A client that does not check the server gets no further."""
    pipe = World().connect()
    said: list[bytes] = []
    await prove_membership(asking(World().connect(), said), secret=b"secret", own=ME, server_id=1)
    pipe.send(said[0])
    pipe.frames()
    with capture_logs() as logs:
        pipe.send(said[1])
    assert pipe.frames()[0][-2:] == (58).to_bytes(2, "big")
    assert pipe.connection.peer is None
    assert pipe.transport.closed
    assert [line["event"] for line in logs] == ["peer_refused"]


async def test_a_newer_connection_of_a_broker_ends_its_older_one() -> None:
    """What was asked on it may come yet, from a kernel that sends on: it must not be taken for news."""
    world = World()
    older, newer, other = world.connect(), world.connect(), world.connect()
    await prove(older)
    await prove_membership(asking(other), secret=b"secret", own=ReplicaId(3, 13), server_id=1)
    await prove(newer)
    assert older.transport.closed
    assert newer.connection.peer == ME
    assert not newer.transport.closed
    assert not other.transport.closed


async def test_a_broker_that_proves_itself_late_on_an_older_connection_is_refused() -> None:
    """The order is that of the connections, not of the proofs."""
    world = World()
    older, newer = world.connect(), world.connect()
    await prove(newer)
    with pytest.raises(SaslAuthenticationFailed):
        await prove(older)
    assert older.connection.peer is None
    assert older.transport.closed
    assert newer.connection.peer == ME


async def test_a_broker_is_forgotten_with_its_connection() -> None:
    """However often brokers come and go, nothing is left of them."""
    world = World()
    for _ in range(3):
        pipe = world.connect()
        await prove(pipe)
        pipe.connection.connection_lost(None)
    assert not world.server._peers


async def test_another_broker_at_the_address_is_not_taken_for_the_one_meant() -> None:
    """A stale or swapped address must not feed another leader's fetch offsets."""
    with pytest.raises(SaslAuthenticationFailed, match="broker 1 answers at the address of broker 3"):
        await prove(World().connect(), server_id=3)


async def test_steps_out_of_order_close_the_connection() -> None:
    """A proof needs a challenge of this very connection."""
    said: list[bytes] = []
    await prove_membership(asking(World().connect(), said), secret=b"secret", own=ME, server_id=1)
    pipe = World().connect()
    pipe.send(said[1])
    assert pipe.transport.closed
    pipe = World().connect()
    pipe.send(said[0][:-1] + b"")
    assert pipe.frames() == []


async def test_a_server_that_reflects_the_clients_own_words_proves_nothing() -> None:
    """The two sides' proofs have different labels."""
    world = World()
    nonce = b"n" * 32
    world.server.nonce = lambda size: nonce

    async def reflect(frame: bytes) -> bytes:
        pipe = world.connect()
        answer = bytearray(await asking(pipe)(frame))
        answer[-32:] = bytes(32)
        return bytes(answer)

    with pytest.raises(SaslAuthenticationFailed):
        await prove_membership(reflect, secret=b"secret", own=ME, server_id=1, nonce=lambda size: nonce)


async def test_an_unlike_server_is_named_as_such() -> None:
    """A Kafka broker at the address closes or answers otherwise."""

    async def ask(frame: bytes) -> bytes:
        await asyncio.sleep(0)
        return b"\0\0\0\0\0\x23"

    with pytest.raises(SaslAuthenticationFailed, match="does not speak"):
        await prove_membership(ask, secret=b"secret", own=ME, server_id=1)
