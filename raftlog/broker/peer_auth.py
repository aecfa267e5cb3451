"""How a broker proves to another that it knows the cluster secret, on a connection to an ordinary listener.

A private API that is not advertised: hello (id, epoch, nonce) → challenge (id, nonce, the server's proof) → the
client's proof → welcome. Proofs are HMAC-SHA256 over both names and both nonces, with a label for each side, so that
neither a replay nor a reflection passes. The secret never travels. What follows on the connection is neither encrypted
nor signed: who can alter packets between brokers must be kept out by the network or TLS.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import NONE, InvalidRequest, SaslAuthenticationFailed
from raftlog.protocol.codec import RequestHeader
from raftlog.replication.host import ReplicaId

if TYPE_CHECKING:
    from raftlog.broker.connection import Connection

API_KEY: Final = 0x7261
"""Far from Kafka's own."""

VERSION: Final = 0
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
HELLO: Final = 1
"""Of a follower, which will fetch."""
PROOF: Final = 2
FIRST_ASKING_HELLO: Final = 16
"""Of a broker that asks by one API: this plus the API's key. On that connection it is not heard as a follower."""
FIRST_SLOW_HELLO: Final = 128
"""Likewise, for what is expected to be answered late: it must not hold up the rest."""
LAST_HELLO: Final = 255
ADMIN_HELLO: Final = LAST_HELLO
"""Of a node's admin API: it gets a broker's places, as many as it likes, but no broker's rights."""

_HEADER = Struct(">hhih")
_HELLO = Struct(f">Biq{NONCE_BYTES}s")
_PROOF = Struct(f">B{PROOF_BYTES}s")
_CHALLENGE = Struct(f">ihi{NONCE_BYTES}s{PROOF_BYTES}s")
_WELCOME = Struct(">ih")
_NAMES = Struct(">iqi")
_LENGTH = Struct(">i")

Nonce = Callable[[int], bytes]


def _proof(secret: bytes, side: bytes, names: tuple[int, int, int], nonces: bytes) -> bytes:
    return hmac.digest(secret, b"raftlog peer " + side + b"\0" + _NAMES.pack(*names) + nonces, "sha256")


class ServerHandshake:
    """The listening side of one connection, between its challenge and the client's proof."""

    __slots__ = ("_claims", "_expected", "lane")

    def __init__(self, claims: ReplicaId, expected: bytes, *, lane: int) -> None:
        self.lane = lane
        """What the connection is for: the number of its hello."""
        self._claims = claims
        self._expected = expected

    def admit(self, proof: bytes) -> ReplicaId | None:
        """Return who is at the other end, or None if the proof is wrong."""
        return self._claims if hmac.compare_digest(proof, self._expected) else None


def challenge(
    body: memoryview, *, secret: bytes, broker_id: int, nonce: Nonce
) -> tuple[ServerHandshake, bytes]:
    """Return what to expect of the client and the challenge to send. Raises InvalidRequest for a malformed hello."""
    try:
        step, client_id, client_epoch, client_nonce = _HELLO.unpack(body)
    except struct_error:
        raise InvalidRequest("a malformed hello of a peer") from None
    names = (client_id, client_epoch, broker_id)
    own_nonce = nonce(NONCE_BYTES)
    nonces = client_nonce + own_nonce
    expected = _proof(secret, b"client", names, nonces)
    reply = _CHALLENGE.pack(0, NONE, broker_id, own_nonce, _proof(secret, b"server", names, nonces))
    claims = ReplicaId(client_id, client_epoch)
    return ServerHandshake(claims, expected, lane=step), reply


def answer(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    """Serve one step of the handshake. A wrong proof ends the connection, a right one its older ones."""
    server = connection.server
    body = frame[position:]
    step = body[0] if body else 0
    if step == HELLO or FIRST_ASKING_HELLO <= step <= LAST_HELLO:
        connection.handshake, reply = challenge(
            body, secret=server.config.cluster_secret, broker_id=server.config.node_id, nonce=server.nonce
        )
        connection.respond((_framed(reply, header.correlation_id),))
    elif step == PROOF and connection.handshake is not None and len(body) == _PROOF.size:
        handshake, connection.handshake = connection.handshake, None
        peer = handshake.admit(_PROOF.unpack(body)[1])
        refused = ""
        if peer is None:
            refused = "it does not know this cluster's raftlog.cluster.secret"
        elif not server.take_peer(connection, peer, handshake.lane):
            refused = "it has a newer connection"
        else:
            connection.peer, connection.lane = peer, handshake.lane
            connection.is_follower = handshake.lane == HELLO
        error = SaslAuthenticationFailed.code if refused else NONE
        connection.respond((_framed(_WELCOME.pack(0, error), header.correlation_id),))
        if refused:
            connection.close("peer_refused", reason=refused)
    else:
        raise InvalidRequest("a step of the peer handshake is out of order or malformed")


def _framed(reply: bytes, correlation_id: int) -> bytes:
    return _LENGTH.pack(len(reply)) + _LENGTH.pack(correlation_id) + reply[4:]


def _request(correlation_id: int, body: bytes) -> bytes:
    frame = _HEADER.pack(API_KEY, VERSION, correlation_id, -1) + body
    return _LENGTH.pack(len(frame)) + frame


async def prove_membership(
    ask: Callable[[bytes], Awaitable[bytes]],
    *,
    secret: bytes,
    own: ReplicaId,
    server_id: int,
    nonce: Nonce = secrets.token_bytes,
    hello: int = HELLO,
) -> None:
    """The connecting side: prove to be broker `own`, and have the other prove to be broker `server_id`.

    `ask` sends one request frame (length in front) and returns the response without its length. Raises
    SaslAuthenticationFailed when the other end is not who it should be, or refuses us.
    """
    own_nonce = nonce(NONCE_BYTES)
    reply = await ask(_request(0, _HELLO.pack(hello, own.broker_id, own.broker_epoch, own_nonce)))
    try:
        _, _, found_id, its_nonce, its_proof = _CHALLENGE.unpack(reply)
    except struct_error:
        raise SaslAuthenticationFailed("the other end does not speak raftlog's peer handshake") from None
    names = (own.broker_id, own.broker_epoch, found_id)
    if not hmac.compare_digest(its_proof, _proof(secret, b"server", names, own_nonce + its_nonce)):
        raise SaslAuthenticationFailed("the other broker has another raftlog.cluster.secret")
    if found_id != server_id:
        raise SaslAuthenticationFailed(f"broker {found_id} answers at the address of broker {server_id}")
    proof = _proof(secret, b"client", names, own_nonce + its_nonce)
    _, error_code = _WELCOME.unpack(await ask(_request(1, _PROOF.pack(PROOF, proof))))
    if error_code != NONE:
        raise SaslAuthenticationFailed("the other broker refused our raftlog.cluster.secret")
