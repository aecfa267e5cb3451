"""A user as `kafka-storage format --add-scram` has it: `SCRAM-SHA-256=[name=alice,password=…]` to what a node keeps."""

from __future__ import annotations

import binascii
import re
import secrets
from base64 import b64decode
from pathlib import Path
from typing import Final

from raftlog.base.errors import UnacceptableCredential
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.metadata.metadata_records import ScramCredentialChanged
from raftlog.security.scram import (
    HASHES,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    check_numbers,
    check_user,
    credential,
    from_salted,
)

_WHOLE: Final = re.compile(r"\s*(?P<mechanism>[A-Za-z0-9-]+)\s*=\s*\[(?P<fields>.*)\]\s*", re.DOTALL)
_FIELD: Final = re.compile(r'\s*([a-z-]+)\s*=\s*(?:"([^"]*)"|([^",\]]*?))\s*(?:,|\Z)', re.DOTALL)
_NAMES: Final = ("name", "password", "password-file", "salt", "iterations", "saltedpassword")
_FORM: Final = f"expected MECHANISM=[name=…,password=…], with {', '.join(_NAMES)}, and quotes around commas"


def read_scram_argument(text: str) -> ScramCredentialChanged:
    """Return the record of a user. Raise Failure with a message that hides the text's secrets."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise _wrong(_FORM)
    mechanism = match["mechanism"]
    if mechanism not in HASHES:
        raise _wrong(f"the mechanism must be one of {', '.join(HASHES)}")
    fields = _fields(match["fields"])
    name = fields.get("name", "")
    try:
        check_user(name)
        salt = _decoded(fields, "salt") if "salt" in fields else secrets.token_bytes(SALT_BYTES)
        iterations = _number(fields.get("iterations", str(MIN_ITERATIONS)))
        check_numbers(ScramCredential(salt, iterations, b"", b""))  # before they cost anything
    except UnacceptableCredential as error:
        raise _wrong(str(error.message)) from None
    if "saltedpassword" not in fields:
        return ScramCredentialChanged(
            name, mechanism, credential(mechanism, _password(fields), salt, iterations)
        )
    if "salt" not in fields or "password" in fields or "password-file" in fields:
        raise _wrong("saltedpassword needs a salt, and cannot be combined with password")
    salted = _decoded(fields, "saltedpassword")
    if not salted:
        raise _wrong("saltedpassword is empty")
    return ScramCredentialChanged(name, mechanism, from_salted(mechanism, salted, salt, iterations))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise _wrong(_FORM)
        name = match[1]
        if name not in _NAMES:
            raise _wrong(f"unknown field {name}; the fields are {', '.join(_NAMES)}")
        if name in fields:
            raise _wrong(f"{name} is set twice")
        fields[name] = match[3] if match[2] is None else match[2]
        position = match.end()
    return fields


def _password(fields: dict[str, str]) -> str:
    if ("password" in fields) == ("password-file" in fields):
        raise _wrong("set one of password, password-file and saltedpassword")
    return checked_password(
        fields["password"] if "password" in fields else read_password_file(Path(fields["password-file"]))
    )


def read_password_file(path: Path) -> str:
    """Return the password that a file holds, without the end of its line. Raises Failure."""
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Failure(f"{path}: {reason}", exits.USAGE) from None


def checked_password(password: str) -> str:
    """Return a password. Raise Failure if it is invalid."""
    if not password:
        raise Failure("the password is empty", exits.USAGE)
    return password


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(f"{name} must be base64") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise _wrong("iterations must be a whole number")
    return int(text)


def _wrong(reason: str) -> Failure:
    return Failure(f"--add-scram: {reason}", exits.USAGE)
