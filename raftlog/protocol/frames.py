"""The format of a frame: a big-endian i32 length, then that many bytes.

It knows only the first field of a frame. An impossible length means that framing is lost: the connection must close.
Clients receive responses into a `FrameBuffer`. A broker's `Inbox` receives requests, whose memory it accounts for.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raftlog.base.disk import Buffer

PREFIX_BYTES: Final = 4
"""Bytes of the length in front of every frame."""

USUAL_BYTES: Final = 64 * 1024
"""The size of a buffer for responses, unless a frame is longer."""
SHRINK_AFTER_FRAMES: Final = 256
"""The number of consecutive small frames after which a larger buffer is released."""

_LENGTH = Struct(">i")
_KEY = Struct(">h")
_SMALLEST_FOREIGN_LENGTH: Final = 0x16000000
"""A TLS record starts with 0x16; as a length that is 369 MB and more, as are the letters of HTTP."""

_HTTP_STARTS: Final = frozenset(
    {b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI "}
)


class FramingLost(Exception):
    """The bytes are not Kafka frames; the message is a reason for the log."""


class FrameBuffer:
    """Receives frames in place, for a client's end of a connection.

    Write received bytes to `get_buffer()`, then call `take_frames` with their number. Memory is bounded by the longest
    frame allowed and grows with the bytes that arrive. Memory for a burst is released.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = memoryview(bytearray(USUAL_BYTES))
        self._filled = 0
        self._small_frames = 0

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return where to write the next bytes; it is never empty."""
        return self._buffer[self._filled :]

    def take_frames(self, nbytes: int, on_frame: Callable[[memoryview], None]) -> None:
        """Pass each frame that is complete with `nbytes` more to `on_frame`, without its length.

        The frame is a view of the buffer, valid only during that call. Raise FramingLost for an impossible length.
        """
        buffer, filled = self._buffer, self._filled + nbytes
        self._filled = filled
        position = 0
        while filled - position >= PREFIX_BYTES:
            size = _LENGTH.unpack_from(buffer, position)[0]
            if not 0 < size <= self.max_frame_bytes:
                raise FramingLost(f"frame length {size} is not in 1..{self.max_frame_bytes}")
            end = position + PREFIX_BYTES + size
            if end > filled:
                self._make_room(position, PREFIX_BYTES + size)
                return
            on_frame(buffer[position + PREFIX_BYTES : end])
            self._small_frames = self._small_frames + 1 if size < USUAL_BYTES else 0
            position = end
        self._make_room(position, 0)

    def release_memory(self) -> None:
        """Release the memory of long frames now, if no frame is incomplete."""
        self._small_frames = SHRINK_AFTER_FRAMES
        if not self._filled:
            self._make_room(0, 0)

    def _make_room(self, position: int, needed: int) -> None:
        """Keep the bytes from `position`, in a buffer for `needed` bytes, or twice what has arrived of them."""
        rest = self._buffer[position : self._filled]
        size = max(min(needed, 2 * len(rest)), USUAL_BYTES)
        if len(self._buffer) < size or (
            len(self._buffer) > size and self._small_frames >= SHRINK_AFTER_FRAMES
        ):
            buffer = memoryview(bytearray(size))
            buffer[: len(rest)] = rest
            self._buffer = buffer
        elif position and rest:
            self._buffer[: len(rest)] = rest
        self._filled = len(rest)


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
