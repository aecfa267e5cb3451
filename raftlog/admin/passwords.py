"""Authentication by password over HTTP, for the SCRAM and PLAIN users of Kafka's listeners.

A SCRAM password costs thousands of rounds of a hash. A thread computes them, few at once, and correct passwords are
remembered, so that clients that poll pay once. Only a keyed hash of the password is kept, and it is valid as long as
the user's credential is unchanged. It does not know HTTP.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from raftlog.security import scram
from raftlog.security.scram import CredentialLookup, ScramCredential

AT_ONCE: Final = 2
"""Passwords that are hashed at a time; more wait for their turn."""
MAX_REMEMBERED: Final = 1_000
"""Remembered correct passwords; the oldest is evicted."""
MAX_CHARS: Final = 1_024
"""The maximum length of a user name, and of a password."""

Outcome = Literal["right", "remembered", "wrong_password", "unknown_user"]
"""The first two are a login; a remembered password was verified before."""


class Passwords:
    """Verifies passwords.

    A wrong password is hashed for each mechanism, for unknown users too: its time reveals no users.
    """

    def __init__(
        self,
        credentials: Callable[[], Mapping[tuple[str, str], ScramCredential]],
        plain: Iterable[Mapping[str, str]],
    ) -> None:
        """`credentials`: of SCRAM, by user and mechanism. `plain`: users of PLAIN with their passwords."""
        self._credentials = credentials
        self._plain = tuple(plain)
        self._key = secrets.token_bytes(32)
        self._lookup = CredentialLookup(self._key)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._right: dict[bytes, ScramCredential | str] = {}
        self.hashed = 0
        """How many passwords were hashed so far."""

    async def check(self, user: str, password: str) -> Outcome:
        """Return the outcome for a user name and a password."""
        plain = [users[user] for users in self._plain if user in users]
        known = self._credentials()
        kept = {mechanism: known[user, mechanism] for mechanism in scram.HASHES if (user, mechanism) in known}
        digest = hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        if self._right.get(digest) in (*plain, *kept.values()):
            return "remembered"
        for each in plain:
            if hmac.compare_digest(each.encode(), password.encode()):
                self._remember(digest, each)
                return "right"
        for mechanism in sorted(scram.HASHES, key=lambda each: each not in kept):
            credential = self._lookup.find(known, user, mechanism)
            async with self._turns:
                self.hashed += 1
                made = await asyncio.to_thread(
                    scram.credential, mechanism, password, credential.salt, credential.iterations
                )
            if not (hmac.compare_digest(made.stored_key, credential.stored_key) and mechanism in kept):
                continue
            if self._credentials().get((user, mechanism)) == credential:  # not changed or removed meanwhile
                self._remember(digest, credential)
                return "right"
        return "wrong_password" if kept or plain else "unknown_user"

    def _remember(self, digest: bytes, credential: ScramCredential | str) -> None:
        if len(self._right) >= MAX_REMEMBERED:
            del self._right[next(iter(self._right))]
        self._right[digest] = credential
