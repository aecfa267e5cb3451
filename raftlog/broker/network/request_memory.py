"""The memory for requests: where bytes are received, and which connections may read while much is held.

All connections receive into one window, so an idle connection holds no memory. A complete frame is handled where it
lies. Only the beginning of an incomplete frame is copied into a buffer of its connection. The rest of that frame is
received there, no further.

The rule: below three quarters of the account all connections read. From there on a connection with the beginning of a
frame stops reading. It waits for a grant, which is room for the rest of that frame. Grants go to the connections with
the fewest missing bytes, as long as all grants fit into the account. One grant is always given, however large, so
there is progress. A connection without a partial frame reads a small piece at a time, so the smallest requests are
served as usual. Frames that miss at most SMALL_REST_BYTES have a reserve beyond the account. So they need not wait for
a large frame that comes slowly. A connection that has a grant and sends too slowly is closed (`progress.py`), sooner if
others wait. So no connection waits for ever. Brokers read without a grant.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from typing import Final, Protocol

from raftlog.base.memory import Account

WINDOW_BYTES: Final = 256 * 1024
"""The maximum size of one receive."""

SMALL_WINDOW_BYTES: Final = 4 * 1024
"""The same once three quarters of the account are used."""

SMALL_REST_BYTES: Final = 64 * 1024
"""A frame with at most this many missing bytes may use the reserve when the account is full."""
SMALL_RESTS_SHARE: Final = 8
"""The reserve, as a fraction of the account's limit: one eighth."""

MIN_ROOM_BYTES: Final = 256
LARGE_BYTES: Final = 64 * 1024
"""A partial frame of this size or more is received into an mmap of its own instead of a bytearray."""

MAPPING_BYTES: Final = 5 << 18
"""The size of a mapping: one batch of Kafka's default message.max.bytes with the rest of its request."""

SPARE_MAPPINGS: Final = 2
"""The number of usual mappings kept for the next large frames, to reuse their pages."""


class FrameMappings:
    """Memory for large frames. The system allocates its pages as they are written to."""

    __slots__ = ("spares",)

    def __init__(self) -> None:
        self.spares: list[mmap] = []

    def acquire_mapping(self, size: int) -> mmap:
        """Return a mapping for this many bytes; it still holds bytes of earlier frames."""
        if size <= MAPPING_BYTES and self.spares:
            return self.spares.pop()
        # private, since pages of a shared mapping belong to a file, and cost more to create and to drop
        return mmap(-1, max(size, MAPPING_BYTES), flags=MAP_PRIVATE | MAP_ANONYMOUS)

    def release_mapping(self, mapping: mmap) -> None:
        """Take back a mapping that is no longer read."""
        if len(mapping) == MAPPING_BYTES and len(self.spares) < SPARE_MAPPINGS:
            self.spares.append(mapping)


class FrameRest:
    """Bytes that were received and are not handled.

    Their memory grows with what arrived, not with what was announced.

    The missing part of the frame is received behind them. A large frame lies in a mapping of its whole length:
    no bytes are copied as it grows, twice the memory is never needed, and the heap keeps no hole of that size.
    """

    __slots__ = ("_buffer", "_mappings", "is_kept", "size")

    def __init__(self, first: memoryview, needed: int, mappings: FrameMappings) -> None:
        """The first frame has `needed` bytes."""
        self._mappings = mappings
        self._buffer: bytearray | mmap = bytearray()
        self.size = len(first)
        self.is_kept = False
        """Whether the bytes are referenced for longer than this object lives."""
        if self.size < LARGE_BYTES or self.size >= needed:
            self._buffer += first
        else:
            self._buffer = mappings.acquire_mapping(needed)
            self._buffer[: self.size] = first

    def room(self, needed: int) -> memoryview:
        """Return where to receive the next bytes, at most to the end of the first frame.

        The caller then adds the number of bytes received to `size`.
        """
        size = self.size
        if size == len(self._buffer):
            self._grow(max(needed, size + 1))
        end = min(max(needed, size + 1), size + WINDOW_BYTES)
        return memoryview(self._buffer)[size:end]

    def _grow(self, needed: int) -> None:
        size = self.size
        grown: bytearray | mmap
        if size < LARGE_BYTES:
            grown = bytearray(min(needed, max(2 * size, MIN_ROOM_BYTES)))
        else:
            grown = self._mappings.acquire_mapping(needed)
        grown[:size] = self._buffer[:size]
        self._buffer = grown

    def view(self) -> memoryview:
        """Return the bytes. They stay unchanged until `free`, and if kept for as long as they are referenced."""
        return memoryview(self._buffer)[: self.size]

    def keep(self) -> None:
        """Keep the bytes valid for longer than this object lives."""
        if not self.is_kept:
            self.is_kept = True
            self.trim()

    def trim(self) -> None:
        """Release the pages that earlier frames used beyond the bytes of this frame."""
        if type(self._buffer) is mmap:
            begin = -(-self.size // PAGESIZE) * PAGESIZE
            if begin < len(self._buffer):
                self._buffer.madvise(MADV_DONTNEED, begin)

    def free(self) -> None:
        """Free the bytes, which were handled or never will be."""
        if type(self._buffer) is mmap and not self.is_kept:
            self._mappings.release_mapping(self._buffer)


class FrameReader(Protocol):
    """A connection that receives."""

    granted: int
    """Bytes that it may still receive under its grant."""

    def read_on(self) -> None:
        """Resume reading with a grant."""


class RequestMemory:
    """Grants connections the right to receive while the account for requests is short.

    `acquire` and `release` count the bytes that connections and handlers hold.
    """

    __slots__ = (
        "_account",
        "_order",
        "_promised",
        "_queue",
        "_small",
        "_small_bytes",
        "_waiting",
        "mappings",
        "window",
        "workspace",
    )

    def __init__(self, account: Account) -> None:
        self._account = account
        self.mappings = FrameMappings()
        self.workspace = memoryview(bytearray(WINDOW_BYTES))
        self.window = self.workspace
        """The buffer of a connection without a grant: the workspace, or a part of it."""
        self._promised = 0
        """The bytes of all grants that have not arrived."""
        self._small: dict[FrameReader, int] = {}
        """The connections with a grant from the reserve, each with the size of its grant in bytes."""
        self._small_bytes = 0
        self._waiting: dict[FrameReader, int] = {}
        """The connections that wait for a grant, each with its number in the queue."""
        self._queue: list[tuple[int, int, FrameReader]] = []
        """(missing bytes, number, reader); an entry is skipped if its reader left."""
        self._order = count()

    @property
    def is_short(self) -> bool:
        """Return whether reading on needs a grant."""
        return self._account.is_short

    @property
    def is_full(self) -> bool:
        return self._account.is_full

    @property
    def waiting(self) -> int:
        """Return the number of connections that wait for a grant."""
        return len(self._waiting)

    def acquire(self, size: int) -> None:
        """Count `size` bytes that are now held."""
        self._account.acquire(size)
        if self._account.is_short:
            self.window = self.workspace[:SMALL_WINDOW_BYTES]

    def release(self, size: int) -> None:
        """Count `size` bytes that are no longer held, and let other connections read."""
        self._account.release(size)
        if not self._account.is_short:
            self.window = self.workspace
        if self._waiting:
            self._grant()

    def arrived(self, reader: FrameReader, size: int) -> None:
        """Count bytes of an incomplete frame."""
        self.acquire(size)
        if reader.granted:
            kept = min(size, reader.granted)
            reader.granted -= kept
            self._promised -= kept
            if not reader.granted:
                self._free_small(reader)
            if self._waiting and (not self._promised or not reader.granted):
                self._grant()

    def wait(self, reader: FrameReader, missing: int) -> None:
        """Have `reader.read_on` called once there is room for this many bytes, perhaps immediately."""
        number = next(self._order)
        self._waiting[reader] = number
        heappush(self._queue, (missing, number, reader))
        self._grant()

    def is_waiting(self, reader: FrameReader) -> bool:
        return reader in self._waiting

    def holds_up_others(self, reader: FrameReader) -> bool:
        """Return whether it has a grant while other connections wait for a grant."""
        return bool(reader.granted and self._waiting)

    def remove(self, reader: FrameReader) -> None:
        """Remove a reader with a complete frame or a closed connection: it neither waits nor has a grant.

        No effect if it is not there.
        """
        self._waiting.pop(reader, None)
        self._promised -= reader.granted
        reader.granted = 0
        self._free_small(reader)
        if self._waiting:
            self._grant()
        else:
            self._queue.clear()

    def _grant(self) -> None:
        account, queue = self._account, self._queue
        while queue:
            missing, number, reader = queue[0]
            if self._waiting.get(reader) != number:
                heappop(queue)
                continue
            used = account.used + self._promised
            if self._promised and used >= account.plenty and used + missing > account.limit:
                if not self._has_small_room(missing):
                    return
                self._small[reader] = missing
                self._small_bytes += missing
            heappop(queue)
            del self._waiting[reader]
            reader.granted = missing
            self._promised += missing
            reader.read_on()

    def _has_small_room(self, missing: int) -> bool:
        room = self._account.limit // SMALL_RESTS_SHARE - self._small_bytes
        return missing <= min(room, SMALL_REST_BYTES)

    def _free_small(self, reader: FrameReader) -> None:
        self._small_bytes -= self._small.pop(reader, 0)
