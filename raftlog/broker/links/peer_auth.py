"""Proves to another broker that this broker knows the cluster secret, on a connection to an ordinary listener.

It is a private API that is not advertised, with the steps of `base.handshake`:

- hello (id, epoch, nonce) → challenge (id, nonce)
- the client's proof → verdict (an error, or the server's proof)

The secret never travels. Without TLS the bytes that follow on the connection are neither encrypted nor signed. The
network must keep out anyone able to alter packets between brokers. Over TLS proofs are bound to the listener's
certificate, see `handshake.bound_secret`. From a metadata level on (`BOUND_SINCE`), they are also bound to the
cluster's id. A restored copy of a cluster knows the secret, and must not receive records of the original.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from struct import Struct
from struct import error as struct_error
from typing import Final

from raftlog.base.errors import NONE, InvalidRequest, SaslAuthenticationFailed
from raftlog.base.handshake import (
    CONNECTOR,
    LISTENER,
    NONCE_BYTES,
    PROOF_BYTES,
    Transcript,
    bound_secret,
)
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION, finalized_level
from raftlog.metadata.image import MetadataImage
from raftlog.replication.replica_host import ReplicaId

API_KEY: Final = 0x7261
"""Far from Kafka's own."""

VERSION: Final = 1
FRAME_BYTES: Final = 256
"""Longest frame of a step; the longest in use has less than a hundred bytes."""
HELLO: Final = 1
"""The hello of a follower, which will fetch."""
PROOF: Final = 2
FIRST_ASKING_HELLO: Final = 16
"""A connection for requests of a single API sends this plus the API's key as its hello. Such a connection does not
count as a follower."""
FIRST_SLOW_HELLO: Final = 128
"""Likewise, for APIs with slow responses, which must not delay the others."""
LAST_HELLO: Final = 255
ADMIN_HELLO: Final = LAST_HELLO
"""The hello of a node's admin API. It gets a broker's places, as many as it likes, but not a broker's rights."""

BOUND_SINCE: Final = 1
"""The level of the metadata from which on the secret is bound to the cluster's id."""

_NAME: Final = b"raftlog broker listener"
_HEADER = Struct(">hhih")
_HELLO = Struct(f">Biq{NONCE_BYTES}s")
_PROOF = Struct(f">B{PROOF_BYTES}s")
_CHALLENGE = Struct(f">i{NONCE_BYTES}s")
_VERDICT = Struct(f">h{PROOF_BYTES}s")
_LENGTH = Struct(">i")

Nonce = Callable[[int], bytes]


def peer_secret(secret: bytes, image: MetadataImage, certificate: bytes | None) -> bytes:
    """Return the secret that brokers prove on a connection to a listener that shows a certificate (DER), or none.

    Nodes of 0.2.0 do not bind it to the cluster's id.
    """
    if finalized_level(image, RAFTLOG_METADATA_VERSION) >= BOUND_SINCE:
        secret = hmac.digest(secret, b"cluster\0" + image.cluster_id.encode(), "sha256")
    return bound_secret(secret, certificate)


def framed(body: bytes, correlation_id: int) -> bytes:
    """Return the response frame of one step."""
    return _LENGTH.pack(_LENGTH.size + len(body)) + _LENGTH.pack(correlation_id) + body


class ServerHandshake:
    """The listening side of one connection, between its challenge and the client's proof."""

    __slots__ = ("_claims", "_transcript", "challenge", "purpose")

    def __init__(self, hello: bytes, *, secret: bytes, broker_id: int, nonce: bytes) -> None:
        """Take a hello: its number says for what `purpose` the connection is. Raise InvalidRequest if malformed."""
        try:
            self.purpose, client_id, client_epoch, _ = _HELLO.unpack(hello)
        except struct_error:
            raise InvalidRequest("a malformed hello of a peer") from None
        self._claims = ReplicaId(client_id, client_epoch)
        self.challenge = _CHALLENGE.pack(broker_id, nonce)
        self._transcript = Transcript(secret, _NAME, hello, self.challenge)

    def admit(self, step: bytes) -> ReplicaId | None:
        """Return the id of the broker at the other end, or None if the proof of its second step is invalid."""
        proof = _PROOF.unpack(step)[1]
        return self._claims if self._transcript.is_proof(CONNECTOR, proof) else None

    @staticmethod
    def is_proof(step: bytes) -> bool:
        """Return whether these bytes are the second step of a handshake, with a valid or an invalid proof."""
        return len(step) == _PROOF.size and step[0] == PROOF

    def welcome(self) -> bytes:
        """Return the verdict for a client with a valid proof: our own proof."""
        return _VERDICT.pack(NONE, self._transcript.proof(LISTENER))

    @staticmethod
    def refusal() -> bytes:
        """Return the verdict for a client with an invalid proof, or with a connection that is not its newest."""
        return _VERDICT.pack(SaslAuthenticationFailed.code, b"")


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
    """Prove to be broker `own`, as the connecting side, and have the other prove to be broker `server_id`.

    `ask` sends one request frame (length in front) and returns the response without its length. Raises
    SaslAuthenticationFailed if the other end is not the expected broker, or refuses us.
    """
    said = _HELLO.pack(hello, own.broker_id, own.broker_epoch, nonce(NONCE_BYTES))
    challenge = (await ask(_request(0, said)))[_LENGTH.size :]
    (found_id, _) = _unpacked(_CHALLENGE, challenge)
    if found_id != server_id:
        raise SaslAuthenticationFailed(f"broker {found_id} answers at the address of broker {server_id}")
    transcript = Transcript(secret, _NAME, said, challenge)
    verdict = await ask(_request(1, _PROOF.pack(PROOF, transcript.proof(CONNECTOR))))
    error_code, proof = _unpacked(_VERDICT, verdict[_LENGTH.size :])
    if error_code != NONE:
        raise SaslAuthenticationFailed(
            "the other broker refused our raftlog.cluster.secret, or is of another cluster"
        )
    if not transcript.is_proof(LISTENER, proof):
        raise SaslAuthenticationFailed(
            "the other broker has another raftlog.cluster.secret, or is of another cluster"
        )


def _unpacked(layout: Struct, body: bytes) -> tuple[int, bytes]:
    try:
        first, second = layout.unpack(body)
    except struct_error:
        raise SaslAuthenticationFailed("the other end does not speak raftlog's peer handshake") from None
    return first, second
