"""One segment of a log: batches in a `.log` file, and its two indexes. Knows its bytes, not the log's rules.

Ordering law: bytes first, then `size`, `end_offset` and the indexes. Lookups and reads take each of these once, so that
they may run on another thread than the writer's. Indexes reach their files at `save_indexes`, never on the hot path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from struct import Struct
from typing import Final

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.disk import Buffer, Disk
from raftlog.base.errors import CorruptMessage
from raftlog.base.log import get_logger
from raftlog.base.types import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP
from raftlog.records.header import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    known_max_timestamp,
    read_header,
)
from raftlog.storage import index_check
from raftlog.storage.epochs import LeaderEpochs
from raftlog.storage.indexes import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
)
from raftlog.storage.segment_scanner import SEQUENTIAL_READ_BYTES, SegmentScanner

LOOKUP_READ_BYTES: Final = 8 * 1024
"""The size of one read in search of a batch boundary: an index interval and some batches."""
REWRITE_BYTES: Final = 1024 * 1024

NEVER_MS: Final = 2**63 - 1

_log = get_logger("storage")

BOUNDS: Final = Struct(">qi11xi")
"""Three fields of a batch header: base offset, length, last offset delta."""


def segment_path(directory: str, base_offset: int) -> str:
    """Return the path of a segment's file without its suffix, as Kafka names it."""
    return f"{directory}/{base_offset:020d}"


class Segment:
    """Batches from `base_offset` on, in one file."""

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_index_room",
        "_indexed",
        "_saved",
        "_time_indexed",
        "_written",
        "base_offset",
        "boundaries",
        "created_ms",
        "dirty",
        "end_offset",
        "epochs",
        "file",
        "first_timestamp",
        "full",
        "has_untimed",
        "index",
        "index_interval_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "may_have_gaps",
        "path",
        "roll_after_ms",
        "roll_ms",
        "segment_bytes",
        "size",
        "time_index",
        "timed_until",
        "trusted_from",
        "verified",
        "written_ms",
    )

    def __init__(
        self, disk: Disk, directory: str, *, base_offset: int, create: bool, now_ms: int, suffix: str = ""
    ) -> None:
        """`suffix`: of a file that does not have its final name yet."""
        self._disk = disk
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset)
        self.file = disk.open(self.path + ".log" + suffix, create=create)
        self.size = self.file.size()
        if create and self.size:
            self.file.truncate(0)
            self.size = 0
        self.end_offset = base_offset
        self.created_ms = now_ms
        """When its first batch was written, or the log was opened."""
        self.written_ms = NO_TIMESTAMP
        """When this process wrote its last batch: the file's own time may come from a wrong clock."""
        self.has_untimed: bool | None = False if create else None
        """Whether the header of a batch gives no timestamp; None while headers before were not looked at."""
        self.timed_until = 0  # before this position `segment_age` found no such batch
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.index = OffsetIndex(base_offset)
        self.time_index = TimeIndex(base_offset)
        self.boundaries: dict[int, int] = {}
        """Offset → position of batches that readers will ask for next."""
        self.full = False
        self.index_interval_bytes = 4096
        self._index_room = 0
        self.roll_ms = 0
        self.segment_bytes = MAX_RELATIVE_OFFSET
        self.roll_after_ms = NEVER_MS  # a batch of a later time belongs in the next segment
        self.may_have_gaps = False
        """Whether compaction may have taken batches out, so that offsets need not follow each other."""
        self.epochs: LeaderEpochs | None = None
        """Which epoch each batch is of, as the log knows it beside its bytes; None until that is known for sure."""
        self.dirty = create
        self.trusted_from = self.size
        """Bytes from here on were written by this process; those before are checked when first read."""
        self.verified = (0, 0)
        self._bytes_since_index = 0
        self._indexed = self._time_indexed = create
        self._saved = (0, 0)
        self._written: tuple[int, int] | None = None
        """The entries of both index files when this process last wrote them; a cut since then lowers `_saved`."""

    def configure(
        self, *, index_interval_bytes: int, index_bytes: int, segment_bytes: int, roll_ms: int
    ) -> None:
        """Set how densely batches are indexed, and when the segment is full or old."""
        self.segment_bytes = segment_bytes
        self.index_interval_bytes = index_interval_bytes
        self._index_room = index_bytes // TIME_ENTRY_BYTES - len(self.index)
        self.full = self._index_room <= 0
        self.roll_ms = roll_ms
        self._set_roll_time()

    def _set_roll_time(self) -> None:
        begin_ms = self.first_timestamp if self.first_timestamp >= 0 else self.created_ms
        self.roll_after_ms = begin_ms + self.roll_ms

    def append(
        self, buffers: Sequence[Buffer], length: int, *, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Write one batch of `length` bytes at the end; False if it belongs in the next segment (as in `has_room`).

        OSError leaves the segment as it was.
        """
        position = self.size
        time_ms = now_ms if max_timestamp < 0 or self.first_timestamp < 0 else max_timestamp
        if position and (
            position + length > self.segment_bytes
            or self.full
            or time_ms > self.roll_after_ms
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        ):
            return False
        try:
            self.file.pwritev(buffers, position)
        except OSError:
            self._drop_half_written(position)
            raise
        self.dirty, self.written_ms = True, now_ms
        self.size = position + length
        self.end_offset = last_offset + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        elif max_timestamp < 0:
            self.has_untimed = True
        if position == 0:
            self.first_timestamp, self.created_ms = max_timestamp, now_ms
            self._set_roll_time()
        if self._bytes_since_index > self.index_interval_bytes:
            self._index_batch(last_offset, position)
        self._bytes_since_index += length
        return True

    def _index_batch(self, last_offset: int, position: int) -> None:
        self.index.append(last_offset, position)
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self._bytes_since_index = 0
        self._index_room -= 1
        if self._index_room <= 0:
            self.full = True

    def append_batches(self, run: Buffer, headers: Sequence[BatchHeader], *, now_ms: int) -> None:
        """Write batches that follow one another, as the leader stamped them. OSError leaves the segment as it was."""
        position = self.size
        if position == 0:
            self.created_ms = now_ms
        try:
            self.file.pwritev((run,), position)
        except OSError:
            self._drop_half_written(position)
            raise
        self.dirty, self.written_ms = True, now_ms
        for header in headers:
            self.index_batch(position, header)
            position += header.length
        self.size = position
        self.end_offset = headers[-1].end_offset

    def has_room(self, header: BatchHeader, *, size: int, now_ms: int) -> bool:
        """Return whether a batch still belongs here once the segment holds `size` bytes; the first batch always does.

        A segment rolls before its limits are passed, never after: its indexes have 32 bits for relative offsets. Its
        age is the time between timestamps, or until now where the first batch or this batch has none.
        """
        newest = known_max_timestamp(header)
        return size == 0 or not (
            size + header.length > self.segment_bytes
            or self.full
            or (now_ms if newest < 0 or self.first_timestamp < 0 else newest) > self.roll_after_ms
            or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def _drop_half_written(self, position: int) -> None:
        try:
            self.file.truncate(position)
        except OSError:
            pass  # what is left lies beyond `size`: overwritten by the next append or cut by recovery

    # -- looking up ----------------------------------------------------------------------------------------------

    def locate(self, offset: int, *, cached: bool) -> tuple[int, int] | None:
        """Return (position, base offset) of the first batch that ends after `offset`; or the end.

        None if `cached` and the bytes are not in memory. CorruptMessage where no batch boundary can be found.
        """
        size, end_offset = self.size, self.end_offset
        if offset >= end_offset:
            return size, end_offset
        if not self._indexed and not self.load_index(cached=cached):
            return None
        indexed_end, position = self.index.entry_before(offset) or (NO_OFFSET, 0)
        expected = self.base_offset if position == 0 else NO_OFFSET
        while position < size:
            chunk = self.read_chunk(position, size, cached=cached)
            if chunk is None:
                return None
            if indexed_end != NO_OFFSET and not index_check.ends_with(chunk, indexed_end):
                raise CorruptMessage(f"{self.path}.index is wrong at offset {indexed_end}")
            indexed_end = NO_OFFSET
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                base_offset, batch_length, delta = BOUNDS.unpack_from(chunk, at)
                if expected not in (NO_OFFSET, base_offset) and not self.may_have_gaps:
                    raise CorruptMessage(f"the batch at offset {base_offset} does not follow {expected}")
                expected = base_offset + delta + 1
                if expected > offset:
                    return position + at, base_offset
                at += self.checked_length(batch_length, position + at)
            position += at
        if self.may_have_gaps and cached:  # on the loop, so no append ran meanwhile
            raise CorruptMessage(
                f"no batch of {self.path}.log holds {offset}, though it ends at {end_offset}"
            )
        return size, end_offset

    def read_chunk(self, position: int, size: int, *, cached: bool) -> Buffer | None:
        """Return some bytes from a position on, a header at least; None if `cached` and they are not in memory."""
        wanted = min(LOOKUP_READ_BYTES, size - position)
        if not cached:
            chunk: Buffer | None = self.file.pread(wanted, position)
        else:
            chunk = self.file.pread_cached(wanted, position)
        if chunk is not None and len(chunk) < min(HEADER_BYTES, wanted):
            if cached:
                return None
            raise CorruptMessage(f"{self.path}.log is shorter than it was")
        if wanted < HEADER_BYTES:
            raise CorruptMessage(f"no batch boundary at position {position} of {self.path}.log")
        return chunk

    def checked_length(self, batch_length: int, position: int) -> int:
        """Return how long the batch at a position says it is. CorruptMessage if that cannot be."""
        length = batch_length + LENGTH_OVERHEAD
        if length < HEADER_BYTES or position + length > self.size:
            raise CorruptMessage(f"no batch boundary at position {position} of {self.path}.log")
        return length

    def iter_headers(self, position: int, stop: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch from a boundary on, up to position `stop`. May wait for the disk."""
        stop = self.size if stop is None else stop
        chunk, start = b"", position
        while position < stop:
            if position + HEADER_BYTES > start + len(chunk):
                chunk, start = (
                    self.file.pread(min(SEQUENTIAL_READ_BYTES, stop - position), position),
                    position,
                )
            header = read_header(chunk, position - start)
            if position + header.length > stop:
                raise CorruptMessage(f"the batch at offset {header.base_offset} is cut off")
            yield position, header
            position += header.length

    def follows(self, header: BatchHeader, offset: int) -> bool:
        """Say whether a batch may come next at `offset`: base offset and leader epoch lie outside the CRC."""
        if header.base_offset != offset and not (
            self.may_have_gaps and offset < header.base_offset < self.end_offset
        ):
            return False
        return self._is_of_its_epoch(header)

    def _is_of_its_epoch(self, header: BatchHeader) -> bool:
        known = NO_EPOCH if self.epochs is None else self.epochs.epoch_at(header.base_offset)
        return known in (NO_EPOCH, header.leader_epoch)

    # -- index files ---------------------------------------------------------------------------------------------

    def load_index(self, *, cached: bool = False) -> bool:
        """Read the offset index if it is not in memory; False if `cached` and that would wait for the disk."""
        if self._indexed:
            return True
        if (file_bytes := self._read_index(".index", cached=cached)) is None:
            return False
        index = OffsetIndex(self.base_offset)
        if not (index.decode(file_bytes, self.size) and self._fits(index)):
            if cached:
                return False
            self.rebuild_indexes()
            return True
        self.index, self._indexed = index, True
        self._saved = (len(index), self._saved[1])
        return True

    def _fits(self, index: OffsetIndex) -> bool:
        """Say whether the last entry points to a batch that ends with its offset: it may be older than the log."""
        if (last := index.last()) is None:
            return self.size <= LOOKUP_READ_BYTES or self._disk.exists(self.path + ".index")
        return index_check.is_offset_entry_true(self, last)

    def load_time_index(self) -> None:
        """Read the time index, and what the segment knows about its timestamps, if not in memory. May wait."""
        if self._time_indexed:
            return
        self.load_index()
        if self._time_indexed:
            return
        index = TimeIndex(self.base_offset)
        sound = index.decode(self._read_index(".timeindex", cached=False) or b"", self.end_offset)
        last = index.last()
        if not sound or (self.size and (last is None or not index_check.is_time_entry_true(self, last))):
            self.rebuild_indexes()
            return
        self.time_index = index
        self._saved = (self._saved[0], len(index))
        self._take_timestamps()
        self._time_indexed = True  # last: another thread may look

    def _take_timestamps(self) -> None:
        if (last := self.time_index.last()) is not None:
            self.max_timestamp, self.max_timestamp_offset = last
        if self.size:
            header = read_header(self.file.pread(HEADER_BYTES, 0))
            self.checked_length(header.length - LENGTH_OVERHEAD, 0)
            self.first_timestamp = known_max_timestamp(header)

    def _read_index(self, suffix: str, *, cached: bool) -> bytes | None:
        try:
            file = self._disk.open(self.path + suffix)
        except FileNotFoundError:
            return b""
        try:
            size = file.size()
            file_bytes = file.pread_cached(size, 0) if cached else file.pread(size, 0)
            return None if file_bytes is None or len(file_bytes) < size else bytes(file_bytes)
        finally:
            file.close()

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the headers of the whole segment, and show them when they are whole."""
        anew = copy(self)
        anew.index, anew.time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        anew.max_timestamp = anew.first_timestamp = NO_TIMESTAMP
        anew.has_untimed, anew._bytes_since_index = False, 0
        offset = self.base_offset
        for position, header in SegmentScanner(self).headers():
            if not self.follows(header, offset):
                raise CorruptMessage(f"the batch at offset {header.base_offset} does not follow {offset}")
            offset = header.end_offset
            anew.index_batch(position, header)
        self.index, self.time_index, self._saved = anew.index, anew.time_index, (0, 0)
        self.max_timestamp, self.max_timestamp_offset = anew.max_timestamp, anew.max_timestamp_offset
        self.first_timestamp, self.has_untimed = anew.first_timestamp, anew.has_untimed
        self._bytes_since_index = anew._bytes_since_index
        self._index_room, self.full, self.roll_after_ms = anew._index_room, anew.full, anew.roll_after_ms
        self._indexed = self._time_indexed = True
        _log.info("index_rebuilt", path=self.path)

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Count a batch that lies in the file already: timestamps and indexes."""
        last_offset = header.base_offset + header.last_offset_delta
        self._note_timestamp(position, header, last_offset)
        if position == 0:
            self._set_roll_time()
        if self._bytes_since_index > self.index_interval_bytes:
            self._index_batch(last_offset, position)
        self._bytes_since_index += header.length

    def _note_timestamp(self, position: int, header: BatchHeader, last_offset: int) -> None:
        newest = known_max_timestamp(header)
        if newest > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = newest, last_offset
        elif newest < 0:
            self.has_untimed = True
        if position == 0:
            self.first_timestamp = newest

    def save_indexes(self, *, final: bool = False, sync: bool = False) -> None:
        """Write index entries that are not in the files yet; `final` also ends the time index with the maximum."""
        if not (self._indexed and self._time_indexed):
            return
        if final:
            self.time_index.end(self.max_timestamp, self.max_timestamp_offset, end_offset=self.end_offset)
        if self.has_untimed and self.written_ms > self.file.modified_ms():
            self.file.set_modified_ms(self.written_ms)  # see `segment_age`
        entries = (len(self.index), len(self.time_index))
        if self._saved == entries == self._written and not sync:
            return  # a refused roll resumes where it stopped, so each retry needs fewer files
        offsets_saved, times_saved = self._saved
        offsets, times = self.index.encode(offsets_saved), self.time_index.encode(times_saved)
        self._extend(".index", offsets, offsets_saved * OFFSET_ENTRY_BYTES, sync=sync)
        self._extend(".timeindex", times, times_saved * TIME_ENTRY_BYTES, sync=sync)
        self._saved = self._written = entries

    def index_file_contents(self) -> dict[str, bytes]:
        """Return the whole contents of the index files by suffix, for the caller to write; count them as written."""
        self.time_index.end(self.max_timestamp, self.max_timestamp_offset, end_offset=self.end_offset)
        self._saved = (len(self.index), len(self.time_index))
        return {".index": self.index.encode(), ".timeindex": self.time_index.encode()}

    def _extend(self, suffix: str, entries: bytes, position: int, *, sync: bool) -> None:
        file = self._disk.open(self.path + suffix, create=True)
        try:
            file.truncate(position)
            file.pwritev([entries], position)
            if sync:
                file.sync()
        finally:
            file.close()

    def unload_indexes(self) -> None:
        """Free the memory of saved indexes; they are read again when needed."""
        offsets_saved, times_saved = self._saved
        is_saved = offsets_saved == len(self.index) and not (
            self._time_indexed and times_saved != len(self.time_index)
        )  # a reader by offset loads the offset index only
        # an index file without entries counts as lost, and the next load would read all headers
        if self._indexed and is_saved and (len(self.time_index) or not self._time_indexed):
            self._indexed = self._time_indexed = False
            self.index, self.time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)

    # -- shrinking -----------------------------------------------------------------------------------------------

    def truncate(self, position: int, end_offset: int) -> None:
        """Cut the file at a batch boundary, durably; `end_offset` is the next offset then.

        It is durable at once: else a power loss could undo it under later batches and mix both.
        """
        is_rotten = True
        with suppress(CorruptMessage):  # in the part that is cut: the indexes are rebuilt from the rest
            self.load_time_index()
            index_check.check_time_before(self, end_offset)
            is_rotten = False
        self.boundaries = {}
        self.index.truncate(position)
        self.time_index.truncate(end_offset)
        self._saved = (min(self._saved[0], len(self.index)), min(self._saved[1], len(self.time_index)))
        self.end_offset, self.size = end_offset, position
        self.file.truncate(position)
        self.trusted_from = min(self.trusted_from, position)
        self.verified = (self.verified[0], min(self.verified[1], position))
        self.file.sync()
        self.dirty = False
        if is_rotten:
            self.rebuild_indexes()
        self.save_indexes(sync=True)
        self.recompute_tail()

    def cut_point(self, offset: int) -> tuple[int, int]:
        """Return (position, end offset) of what is left once every batch that reaches `offset` or beyond is cut.

        If compaction left a hole before the cut, the log ends where the hole begins. CorruptMessage if a batch that
        decides the cut is not sound. It may wait for the disk.
        """
        found = self.locate(offset, cached=False)
        assert found is not None
        position, base_offset = found
        window = SegmentScanner(self)
        if position < self.size and base_offset < offset:
            window.header_at(
                position
            )  # else its length in offsets may have rotted, and all of it was to stay
        at, end_offset = index_check.boundary_before(self, max(position - 1, 0)), self.base_offset
        while at < position:
            header = window.header_at(at)
            at, end_offset = at + header.length, header.end_offset
        return position, end_offset

    def start_recovery(self, position: int, offset: int) -> None:
        """Forget what the indexes say of batches at or after a boundary, to `index_batch` them again."""
        if position == 0:
            self.index, self.time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
            self._saved = (0, 0)
            self.has_untimed = False
        self._indexed = self._time_indexed = True
        self.index.truncate(position)
        self.time_index.truncate(offset)
        self._saved = (min(self._saved[0], len(self.index)), min(self._saved[1], len(self.time_index)))
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last() or (
            NO_TIMESTAMP,
            self.base_offset,
        )
        self._bytes_since_index = 0

    def rewrite(self, start: int, end: int) -> None:
        """Write the bytes between two positions once more, if any, so that the next sync takes them to the disk.

        After a failed sync, the kernel shows bytes that the disk never got and considers them clean. The file's last
        modification stays what it was.
        """
        if start == end:
            return
        modified_ms = self.file.modified_ms()
        for position in range(start, end, REWRITE_BYTES):
            self.file.pwritev([self.file.pread(min(REWRITE_BYTES, end - position), position)], position)
        self.file.set_modified_ms(modified_ms)
        self.dirty = True

    def recompute_tail(self) -> None:
        """Find the largest timestamp and the distance to the last index entry again, from the last entry on."""
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last() or (
            NO_TIMESTAMP,
            self.base_offset,
        )
        self._bytes_since_index = 0
        for position, header in self.iter_headers(index_check.boundary_before(self, self.size)):
            self._note_timestamp(position, header, header.base_offset + header.last_offset_delta)
            self._bytes_since_index += header.length

    @property
    def index_paths(self) -> tuple[str, str]:
        return self.path + ".index", self.path + ".timeindex"

    def rename_for_deletion(self, suffix: str) -> list[str]:
        """Rename the segment's files so that no start finds them; returns the new paths. The file stays open."""
        moved = []
        for kind in (".index", ".timeindex", ".txnindex", ".txnindex" + CHECKSUMS, ".snapshot", ".log"):
            path = (
                self.file.path if kind == ".log" else self.path + kind
            )  # a cleaned segment is still called .swap
            if self._disk.exists(path):
                self._disk.rename(path, self.path + kind + suffix)
                moved.append(self.path + kind + suffix)
        return moved

    def close(self) -> None:
        self.file.close()
