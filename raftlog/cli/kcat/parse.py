"""Reads records from input as kcat does: messages split at a delimiter, keys split off, empty messages skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from raftlog.cli.exits import USAGE, Failure

CHUNK_BYTES: Final = 1 << 16
MAX_MESSAGE_BYTES: Final = 1_000_000
"""librdkafka's default of message.max.bytes."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """The options for the format of a message: -D, -K, -k and -Z."""

    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    key: bytes | None = None
    nulls: bool = False

    def key_and_value(self, message: bytes) -> tuple[bytes | None, bytes | None]:
        """Return key and value; a key in the message has precedence over the fixed key. With `nulls` an empty key or
        value is null.
        """
        if self.key_delimiter:
            key, found, value = message.partition(self.key_delimiter)
            if found:
                empty = None if self.nulls else b""
                return (key or empty if key or empty is not None else self.key), value or empty
        return self.key, message


def messages(
    read: Callable[[int], bytes], delimiter: bytes, max_bytes: int = MAX_MESSAGE_BYTES
) -> Iterator[bytes]:
    """Yield the messages between delimiters, except empty ones; the last needs no delimiter. Raises Failure."""
    rest, count = b"", 0
    while chunk := read(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(delimiter)
        for each in whole:
            if each:
                count += 1
                yield each
        if len(rest) > max_bytes + CHUNK_BYTES:
            raise Failure(f"message {count + 1} is longer than message.max.bytes ({max_bytes})")
    if rest:
        yield rest


def read_header(text: str) -> Header:
    """Read NAME=VALUE; NAME alone is a header without a value. Raises Failure."""
    name, equals, value = text.partition("=")
    if not name:
        raise Failure(f"-H {text}: expected NAME=VALUE or NAME", USAGE)
    return name, value.encode("utf-8", "surrogateescape") if equals else None
