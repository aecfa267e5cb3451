"""The format of a frame: a big-endian i32 length, then that many bytes.

It knows only the first field of a frame. An impossible length means that framing is lost: the connection must close.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raftlog.base.disk import Buffer

PREFIX_BYTES: Final = 4
"""Bytes of the length in front of every frame."""

_LENGTH = Struct(">i")
_KEY = Struct(">h")
_SMALLEST_FOREIGN_LENGTH: Final = 0x16000000
"""A TLS record starts with 0x16; as a length that is 369 MB and more, as are the letters of HTTP."""

_HTTP_STARTS: Final = frozenset(
    {b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI "}
)


class FramingLost(Exception):
    """The bytes are not Kafka frames; the message is a reason for the log."""


def frame_length(buffer: Buffer, position: int, max_bytes: int) -> int:
    """Return the length of the frame with its four-byte prefix at `position`.

    `max_bytes` is socket.request.max.bytes. Raise FramingLost for a length that is not in 1..max_bytes.
    """
    length: int = _LENGTH.unpack_from(buffer, position)[0]
    if 0 < length <= max_bytes and length < _SMALLEST_FOREIGN_LENGTH:
        return length
    foreign = _foreign_protocol(bytes(buffer[position : position + PREFIX_BYTES]))
    if foreign is not None:
        raise FramingLost(foreign)
    if length <= 0:
        raise FramingLost(f"frame length {length} is not positive")
    if length > max_bytes:
        raise FramingLost(f"frame length {length} is over socket.request.max.bytes={max_bytes}")
    return length


def api_key_at(buffer: Buffer, position: int, size: int) -> int:
    """Return the API key of the frame of `size` bytes with its prefix at `position`; -1 if it is too short."""
    return int(_KEY.unpack_from(buffer, position + PREFIX_BYTES)[0]) if size >= _KEY.size else -1


def _foreign_protocol(start: bytes) -> str | None:
    if start in _HTTP_STARTS:
        return "an HTTP request arrived on a Kafka listener"
    if start[:2] == b"\x16\x03" and start[2] <= 4:
        return "a TLS hello arrived on a listener without TLS: set security.protocol=PLAINTEXT in the client"
    return None
