"""The challenge and response by which two nodes prove to each other that they know the cluster secret.

The connecting side sends a hello with a nonce, the listener answers with a challenge with a nonce of its own. Then the
connecting end proves first, and the listener proves itself to a proven peer only: a stranger who connects gets nothing
against which it could test guesses of the secret.

This module knows proofs, not messages. Two protocols frame them: `quorum.channel` and `broker.peer_auth`.
Ordering law: both ends add the hello and the challenge to their transcripts before they make or check any proof.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRET_MIN_BYTES: Final = 16
"""Shortest cluster secret. A connecting node's proof, once overheard, can be tested against guesses at leisure."""

CONNECTOR: Final = b"connector"
LISTENER: Final = b"listener"


class Transcript:
    """The words of both ends of one connection so far, with the secret that makes proofs and keys of them."""

    __slots__ = ("_said", "_secret")

    def __init__(self, secret: bytes, protocol: bytes) -> None:
        """`protocol` names the framing, so that no proof of one protocol is worth anything in the other."""
        self._secret = secret
        self._said = hashlib.sha256(protocol)

    def add(self, message: bytes) -> None:
        """Add a message. The two ends must add the same bytes in the same order; a message's length must be evident."""
        self._said.update(message)

    def proof(self, purpose: bytes) -> bytes:
        """Return `PROOF_BYTES` that only a holder of the secret can make of this transcript and purpose."""
        return hmac.digest(self._secret, purpose + b"\0" + self._said.digest(), "sha256")

    def is_proof(self, purpose: bytes, claimed: bytes) -> bool:
        """Compare in constant time with the proof of this transcript and purpose."""
        return hmac.compare_digest(claimed, self.proof(purpose))
