"""The server's side of SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), and the credentials that it needs (KIP-84).

A server stores no password, only salt, iterations, the hash of the client's key and the server's key. They do not
suffice for a login, but allow guessing passwords offline, so they are as secret as passwords.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from raftlog.base.errors import MALFORMED, SaslAuthenticationFailed, UnacceptableCredential

HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, and their hash functions by the names of hashlib."""

NUMBERS: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The mechanisms' numbers on the wire (KIP-554)."""

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 24
MAX_SALT_BYTES: Final = 64
MAX_USER_CHARS: Final = 249

LOOKED_LIKE: Final = 100
"""Credentials that the made-up credential of an unknown user imitates."""

_ALPHANUMERIC: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"

_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_NAME = r"(?:[^,=\x00]|=2C|=3D)+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>(?P<binding>n|y|p=[A-Za-z0-9.\-]+),(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<header>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)

REFUSED: Final = "the user name or password is wrong"
"""The message of every failed login, for any reason."""


class ScramCredential(msgspec.Struct, frozen=True, array_like=True):
    """The stored values of one user's password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def check_user(name: str) -> None:
    """Raise UnacceptableCredential for an invalid user name."""
    if not 0 < len(name) <= MAX_USER_CHARS:
        raise UnacceptableCredential(f"name: has 1 to {MAX_USER_CHARS} characters, not {len(name)}")


def check_numbers(new: ScramCredential) -> None:
    """Raise UnacceptableCredential for iterations or a salt out of bounds."""
    if not MIN_ITERATIONS <= new.iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(
            f"iterations: must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {new.iterations}"
        )
    if not 0 < len(new.salt) <= MAX_SALT_BYTES:
        raise UnacceptableCredential(f"salt: has 1 to {MAX_SALT_BYTES} bytes, not {len(new.salt)}")


class Login(NamedTuple):
    """An authenticated user, and the extensions of the first message (`tokenauth=true`, KIP-48)."""

    user: str
    extensions: Mapping[str, str]


def credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Derive the stored values from a password. Takes milliseconds: not for the event loop."""
    return from_salted(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, from which everything else is derived. Takes milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def from_salted(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Derive a credential from the salted password, as AlterUserScramCredentials sends it."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt,
        iterations,
        hashlib.new(name, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", name),
    )


class CredentialLookup:
    """Finds the credential of a user, or makes up a credential that looks like other users'.

    Both take the same steps, since the time of a response would show which users exist. The imitated credentials are
    kept until the credentials change.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret` is the key for made-up credentials."""
        self._secret = secret
        self._known: Mapping[tuple[str, str], ScramCredential] = {}
        self._examples: Mapping[str, Sequence[ScramCredential]] = dict.fromkeys(HASHES, ())

    def find(
        self, known: Mapping[tuple[str, str], ScramCredential], user: str, mechanism: str
    ) -> ScramCredential:
        """Return a user's known credential, or a made-up credential."""
        if known is not self._known:
            some = [(key[1], known[key]) for key in islice(known, LOOKED_LIKE)]
            self._examples = {name: [each for other, each in some if other == name] for name in HASHES}
            self._known = known
        made = made_up(mechanism, user, self._secret, like=self._examples[mechanism])
        return known.get((user, mechanism), made)


def made_up(
    mechanism: str, user: str, secret: bytes, like: Sequence[ScramCredential] = ()
) -> ScramCredential:
    """Return the made-up credential of an unknown user: always the same as long as it imitates the same others.

    The caller refuses the login with any proof.
    """
    size = hashlib.new(HASHES[mechanism]).digest_size

    def noise(label: bytes) -> bytes:
        return hmac.digest(secret, b"\0".join((label, mechanism.encode(), user.encode())), "sha512")

    chosen = like[int.from_bytes(noise(b"like")[:8], "big") % len(like)] if like else None
    salt = noise(b"salt")[: SALT_BYTES if chosen is None else len(chosen.salt)]
    if chosen is not None and chosen.salt.isalnum():  # Java's admin client sends letters and digits
        salt = bytes(_ALPHANUMERIC[each % len(_ALPHANUMERIC)] for each in salt)
    iterations = MIN_ITERATIONS if chosen is None else chosen.iterations
    return ScramCredential(salt, iterations, noise(b"stored")[:size], noise(b"server")[:size])


class ScramServer:
    """One login: `first` and then `final`, once each.

    Raise SaslAuthenticationFailed for a malformed message or a wrong proof.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str, Mapping[str, str]], ScramCredential],
        nonce: Callable[[], str],
    ) -> None:
        self._hash = HASHES[mechanism]
        self._find = find
        """Returns the credential of (user, extensions); a made-up credential for an unknown user."""
        self._make_nonce = nonce
        self._user = ""
        self._extensions: Mapping[str, str] = {}
        self._credential: ScramCredential | None = None
        self._header = self._first_bare = self._server_first = self._nonce = ""

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message with salt, iterations and the whole nonce."""
        parts = _parse(_CLIENT_FIRST, message)
        user = _unescape(parts["user"])
        if parts["binding"].startswith("p="):
            raise SaslAuthenticationFailed("channel binding is not supported", reason=MALFORMED)
        if parts["authzid"] is not None and _unescape(parts["authzid"]) != user:
            raise SaslAuthenticationFailed(
                "a user may only log in as itself: the authorization id is another"
            )
        self._extensions = dict(each.split("=", 1) for each in parts["extensions"].split(",") if each)
        self._user, self._header, self._first_bare = user, parts["header"], parts["bare"]
        self._credential = found = self._find(user, self._extensions)
        self._nonce = parts["nonce"] + self._make_nonce()
        self._server_first = f"r={self._nonce},s={b64encode(found.salt).decode()},i={found.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> tuple[bytes, Login]:
        """Check the client's proof; return the server's own proof, and the authenticated user."""
        kept = self._credential
        if kept is None:
            raise SaslAuthenticationFailed("the final message came before the first")
        self._credential = None
        parts = _parse(_CLIENT_FINAL, message)
        said = f"{self._first_bare},{self._server_first},{parts['unproven']}".encode()
        proof = b64decode(parts["proof"])
        signature = hmac.digest(kept.stored_key, said, self._hash)
        if len(proof) != len(signature):
            raise SaslAuthenticationFailed(REFUSED)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        proven = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), kept.stored_key)
        same_nonce = hmac.compare_digest(parts["nonce"].encode(), self._nonce.encode())
        same_header = hmac.compare_digest(b64decode(parts["header"]), self._header.encode())
        if not (proven and same_nonce and same_header):
            raise SaslAuthenticationFailed(REFUSED)
        verifier = b64encode(hmac.digest(kept.server_key, said, self._hash)).decode()
        return f"v={verifier}".encode(), Login(self._user, self._extensions)


def _parse(pattern: re.Pattern[str], message: bytes) -> dict[str, str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslAuthenticationFailed("this is not a SCRAM message", reason=MALFORMED)
    return match.groupdict()


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
