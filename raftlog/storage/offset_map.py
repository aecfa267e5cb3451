"""The newest offset of each key in a stretch of a log, in bounded memory.

It uses many small tables: growing or freeing a single large table would block the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from raftlog.base.types import NO_OFFSET

DIGEST_BYTES: Final = 16
"""128 bits: two keys of a log collide about as rarely as its disk returns wrong data unnoticed."""
ENTRY_BYTES: Final = 200
"""The memory of a key, whatever its length: a digest, an offset, and a place in a half full table."""
TABLES: Final = 64


class OffsetMap:
    """Keys and their newest offsets. `end_offset`: every record before it is in the map."""

    __slots__ = ("_count", "_most", "_tables", "end_offset")

    def __init__(self, limit_bytes: int, start_offset: int) -> None:
        self._tables: list[dict[bytes, int]] = [{} for _ in range(TABLES)]
        self._count = 0
        self._most = max(1, limit_bytes // ENTRY_BYTES)
        self.end_offset = start_offset

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a further key."""
        return self._count >= self._most

    def put(self, key: bytes, offset: int) -> None:
        """Add a record; offsets grow from call to call."""
        digest = _digest(key)
        table = self._tables[hash(digest) % TABLES]
        before = len(table)
        table[digest] = offset
        self._count += len(table) - before

    def newest(self, key: bytes) -> int:
        """Return the newest offset of a key, -1 if it is not here."""
        digest = _digest(key)
        return self._tables[hash(digest) % TABLES].get(digest, NO_OFFSET)

    def released(self) -> Iterator[None]:
        """Free the memory, a table at each step; the map is empty afterwards."""
        while self._tables:
            self._tables.pop()
            yield


def _digest(key: bytes) -> bytes:
    """Return the digest of a key. A short key is its own, and shorter than any other digest."""
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
