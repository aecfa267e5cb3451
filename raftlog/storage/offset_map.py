"""The newest offset of each key in a stretch of a log, in bounded memory."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from raftlog.base.types import NO_OFFSET

DIGEST_BYTES: Final = 16
"""128 bits: two keys of a log share a digest about as often as its disk turns into another one."""
ENTRY_BYTES: Final = 200
"""What a key costs in memory, whatever its length: a digest, an offset, and a place in a half full table."""


class OffsetMap:
    """Keys and their newest offsets. `end_offset`: every record before it is in the map."""

    __slots__ = ("_most", "_offsets", "end_offset")

    def __init__(self, limit_bytes: int, start_offset: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._most = max(1, limit_bytes // ENTRY_BYTES)
        self.end_offset = start_offset

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be taken in; the one that fills it may go beyond the limit."""
        return len(self._offsets) >= self._most

    def put(self, key: bytes, offset: int) -> None:
        """Take in a record; offsets grow from call to call."""
        self._offsets[_digest(key)] = offset

    def newest(self, key: bytes) -> int:
        """Return the newest offset of a key, -1 if it is not here."""
        return self._offsets.get(_digest(key), NO_OFFSET)


def _digest(key: bytes) -> bytes:
    """A short key stands for itself: it is shorter than any digest."""
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
