"""How a broker proves to another that it knows the cluster secret, on a connection to an ordinary listener.

A private API that is not advertised, whose steps are those of `base.handshake`: hello (id, epoch, nonce) → challenge
(id, nonce) → the client's proof → verdict (an error, or the server's proof). The secret never travels. The bytes that
follow on the connection are neither encrypted nor signed: the network or TLS must keep out anyone who can alter
packets between brokers.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import NONE, InvalidRequest, SaslAuthenticationFailed
from raftlog.base.handshake import CONNECTOR, LISTENER, NONCE_BYTES, PROOF_BYTES, Transcript
from raftlog.protocol.codec import RequestHeader
from raftlog.replication.replica_host import ReplicaId

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

API_KEY: Final = 0x7261
"""Far from Kafka's own."""

VERSION: Final = 1
FRAME_BYTES: Final = 256
"""Longest frame of a step; the longest in use has less than a hundred bytes."""
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

_NAME: Final = b"raftlog broker listener"
_HEADER = Struct(">hhih")
_HELLO = Struct(f">Biq{NONCE_BYTES}s")
_PROOF = Struct(f">B{PROOF_BYTES}s")
_CHALLENGE = Struct(f">i{NONCE_BYTES}s")
_VERDICT = Struct(f">h{PROOF_BYTES}s")
_LENGTH = Struct(">i")

Nonce = Callable[[int], bytes]


class ServerHandshake:
    """The listening side of one connection, between its challenge and the client's proof."""

    __slots__ = ("_claims", "_transcript", "challenge", "lane")

    def __init__(self, hello: bytes, *, secret: bytes, broker_id: int, nonce: bytes) -> None:
        """Take a hello. Raises InvalidRequest if it is malformed."""
        try:
            self.lane, client_id, client_epoch, _ = _HELLO.unpack(hello)
        except struct_error:
            raise InvalidRequest("a malformed hello of a peer") from None
        self._claims = ReplicaId(client_id, client_epoch)
        self.challenge = _CHALLENGE.pack(broker_id, nonce)
        self._transcript = _transcript(secret, hello, self.challenge)

    def admit(self, proof: bytes) -> ReplicaId | None:
        """Return which broker is at the other end, or None if the proof is wrong."""
        return self._claims if self._transcript.is_proof(CONNECTOR, proof) else None

    def welcome(self) -> bytes:
        """Return the verdict for a client whose proof was right: our own proof."""
        return _VERDICT.pack(NONE, self._transcript.proof(LISTENER))


def _transcript(secret: bytes, hello: bytes, challenge: bytes) -> Transcript:
    transcript = Transcript(secret, _NAME)
    transcript.add(hello)
    transcript.add(challenge)
    return transcript


def answer(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    """Serve one step of the handshake. A wrong proof ends the connection, a right one its older ones."""
    server = connection.server
    if len(frame) > FRAME_BYTES:
        raise InvalidRequest(
            f"a step of the peer handshake has at most {FRAME_BYTES} bytes, not {len(frame)}"
        )
    body = bytes(frame[position:])
    step = body[0] if body else 0
    if header.api_version != VERSION:
        raise InvalidRequest(
            f"version {header.api_version} of the peer handshake is not spoken here, {VERSION} is"
        )
    is_first = connection.handshake is None and connection.peer is None
    if is_first and (step == HELLO or FIRST_ASKING_HELLO <= step <= LAST_HELLO):
        connection.handshake = ServerHandshake(
            body,
            secret=server.config.cluster_secret,
            broker_id=server.config.node_id,
            nonce=server.nonce(NONCE_BYTES),
        )
        connection.respond((_framed(connection.handshake.challenge, header.correlation_id),))
    elif step == PROOF and connection.handshake is not None and len(body) == _PROOF.size:
        handshake, connection.handshake = connection.handshake, None
        _judge(connection, header, handshake, _PROOF.unpack(body)[1])
    else:
        raise InvalidRequest("a step of the peer handshake is out of order or malformed")


def _judge(connection: Connection, header: RequestHeader, handshake: ServerHandshake, proof: bytes) -> None:
    peer = handshake.admit(proof)
    refused = ""
    if peer is None:
        refused = "it does not know this cluster's raftlog.cluster.secret"
    elif not connection.server.take_peer(connection, peer, handshake.lane):
        refused = "it has a newer connection"
    else:
        connection.peer, connection.lane = peer, handshake.lane
        connection.is_follower = handshake.lane == HELLO
    verdict = _VERDICT.pack(SaslAuthenticationFailed.code, b"") if refused else handshake.welcome()
    connection.respond((_framed(verdict, header.correlation_id),))
    if refused:
        connection.close("peer_refused", reason=refused)


def _framed(body: bytes, correlation_id: int) -> bytes:
    return _LENGTH.pack(_LENGTH.size + len(body)) + _LENGTH.pack(correlation_id) + body


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
    SaslAuthenticationFailed when the other end is not the broker that it should be, or refuses us.
    """
    said = _HELLO.pack(hello, own.broker_id, own.broker_epoch, nonce(NONCE_BYTES))
    challenge = (await ask(_request(0, said)))[_LENGTH.size :]
    (found_id, _) = _unpacked(_CHALLENGE, challenge)
    if found_id != server_id:
        raise SaslAuthenticationFailed(f"broker {found_id} answers at the address of broker {server_id}")
    transcript = _transcript(secret, said, challenge)
    verdict = await ask(_request(1, _PROOF.pack(PROOF, transcript.proof(CONNECTOR))))
    error_code, proof = _unpacked(_VERDICT, verdict[_LENGTH.size :])
    if error_code != NONE:
        raise SaslAuthenticationFailed("the other broker refused our raftlog.cluster.secret")
    if not transcript.is_proof(LISTENER, proof):
        raise SaslAuthenticationFailed("the other broker has another raftlog.cluster.secret")


def _unpacked(layout: Struct, body: bytes) -> tuple[int, bytes]:
    try:
        first, second = layout.unpack(body)
    except struct_error:
        raise SaslAuthenticationFailed("the other end does not speak raftlog's peer handshake") from None
    return first, second
