"""The challenge and response by which two nodes prove to each other that they know the cluster secret.

The connecting side sends a hello with a nonce, the listener answers with a challenge with a nonce of its own. Then the
connecting end proves itself first, and only then the listener. So a stranger gets no data for testing guesses of the
secret.

This module knows proofs, not messages. Two protocols frame them: `quorum.channel` and `broker.links.peer_auth`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRET_MIN_BYTES: Final = 16
"""Shortest cluster secret. A connecting node's proof, once overheard, can be tested against guesses offline."""

CONNECTOR: Final = b"connector"
LISTENER: Final = b"listener"


def bound_secret(secret: bytes, certificate: bytes | None) -> bytes:
    """Return the secret to prove over TLS: it is useless on a connection with another certificate (DER).

    So a man in the middle cannot relay the messages of two nodes. Without TLS it is the secret.
    """
    if certificate is None:
        return secret
    return hmac.digest(secret, b"certificate\0" + hashlib.sha256(certificate).digest(), "sha256")


class Transcript:
    """The hello and the challenge of one connection, with the secret for proofs and keys."""

    __slots__ = ("_digest", "_secret")

    def __init__(self, secret: bytes, protocol: bytes, hello: bytes, challenge: bytes) -> None:
        """`protocol` names the framing, so that a proof of one protocol is useless in the other.

        The two ends must pass the same bytes; the length of a hello must be evident.
        """
        self._secret = secret
        self._digest = hashlib.sha256(protocol + hello + challenge).digest()

    def proof(self, purpose: bytes) -> bytes:
        """Return `PROOF_BYTES` that only a holder of the secret can make of this transcript and purpose."""
        return hmac.digest(self._secret, purpose + b"\0" + self._digest, "sha256")

    def is_proof(self, purpose: bytes, claimed: bytes) -> bool:
        """Compare in constant time with the proof of this transcript and purpose."""
        return hmac.compare_digest(claimed, self.proof(purpose))

    def keys(self) -> tuple[bytes, bytes]:
        """Return the keys of the frames: the connector's, and the listener's."""
        return self.proof(b"dialler's key"), self.proof(b"listener's key")
