"""The decompressed records of batches that requests read: one large batch at a time, and the kept batches of scans.

A batch of a few bytes may decompress to 64 MiB, so requests that read large batches wait for each other. A scan keeps
the batch in which its chunk ended, while the account has room. Then the next chunk neither decompresses it again nor
waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from raftlog.admin.route import Call
from raftlog.base.errors import CorruptMessage
from raftlog.base.memory import Account
from raftlog.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    Record,
    iter_records_from,
    open_batch,
    read_all_headers,
)
from raftlog.records.compression import NONE, DecompressedTooLarge

MAX_PLAIN_BYTES: Final = 64 << 20
"""A batch that decompresses to more is not shown, and counts as unreadable."""
SMALL_PLAIN_BYTES: Final = 256 << 10
"""A batch that decompresses to no more is read without a wait: a request has one of them at a time."""

MAX_READ_HEADERS: Final = 10_000
"""A record with more headers is unreadable here: each takes a microsecond of one turn."""


class OpenedBatch(NamedTuple):
    """The records of a batch from an offset on, as `iter_records_from` returns them."""

    records: Iterator[Record | None]
    opened_at: float
    """In loop seconds."""
    plain_bytes: int = 0
    """0: it is small."""


class KeptBatch:
    """The large batch that a scan has not read to its end, if the account had room for it. Call `close` at the end."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._at: tuple[BatchHeader, int] | None = None
        self._batch: OpenedBatch | None = None

    def keep(self, header: BatchHeader, offset: int, batch: OpenedBatch) -> None:
        """Keep the records of a batch from an offset on, unless the account is full."""
        if self._batch is None:
            if self._account.is_full:
                return
            self._account.acquire(batch.plain_bytes)
        self._at, self._batch = (header, offset), batch

    def take(self, header: BatchHeader, offset: int) -> OpenedBatch | None:
        """Return the records of a batch from an offset on if they are kept, else forget what is kept."""
        if self._at != (header, offset):
            self.close()
        return self._batch

    def close(self) -> None:
        """Forget the batch."""
        if self._batch is not None:
            self._account.release(self._batch.plain_bytes)
        self._at = self._batch = None


@asynccontextmanager
async def opened(
    call: Call, header: BatchHeader, batch: Buffer, start_offset: int
) -> AsyncIterator[OpenedBatch]:
    """Open a batch at an offset. Raises CorruptMessage.

    While a large batch is open, other requests wait with theirs: take turns of the loop, and end soon.
    """
    began_at = asyncio.get_running_loop().time()
    plain = memoryview(batch)[HEADER_BYTES : header.length] if header.codec == NONE else None
    if plain is None:
        plain = await _plain(call, batch, SMALL_PLAIN_BYTES)
    if plain is not None:
        yield OpenedBatch(_records(header, plain, start_offset), began_at)
        return
    async with call.node.reading_records:
        began_at = asyncio.get_running_loop().time()
        plain = await _plain(call, batch, MAX_PLAIN_BYTES)
        if plain is None:
            raise CorruptMessage(f"the batch decompresses to more than {MAX_PLAIN_BYTES} bytes")
        yield OpenedBatch(_records(header, plain, start_offset), began_at, len(plain))


def _records(header: BatchHeader, plain: memoryview, start_offset: int) -> Iterator[Record | None]:
    return iter_records_from(
        header, plain, start_offset, read_headers=partial(read_all_headers, most=MAX_READ_HEADERS)
    )


async def _plain(call: Call, batch: Buffer, max_bytes: int) -> memoryview | None:
    """Return the plain records of a batch, None if they have more bytes. Raises CorruptMessage.

    A thread decompresses them: a batch of a few bytes may decompress to very much.
    """
    try:
        _, plain = await call.node.offload(lambda: open_batch(batch, max_bytes=max_bytes))
    except DecompressedTooLarge:
        return None
    return plain
