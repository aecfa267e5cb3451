"""Records as bytes, for compaction, and batches rebuilt from some of their records.

A rebuilt batch keeps its offsets, sequences, epoch and producer; only its records change. When compaction first finds
tombstones that no longer hide any older record, the batch gets its delete horizon (KIP-534). Then bit 6 is set, the
base timestamp is the horizon, and the records' timestamps are relative to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_TIMESTAMP
from raftlog.records.compression import NONE
from raftlog.records.header import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
)
from raftlog.records.varint import read_varint, write_varint

MAX_CLEANED_BYTES: Final = 64 * 1024 * 1024
"""A batch that decompresses to more is not compacted."""

_new_tuple = tuple.__new__


class RawRecord(NamedTuple):
    """The position of one record in its batch's plain bytes (its length field included), and the fields that compaction
    needs.
    """

    start: int
    end: int
    after_time: int
    """The position of the field that follows the timestamp."""
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def iter_raw(plain: bytes, count: int) -> Iterator[RawRecord]:
    """Yield the `count` records in a batch's plain bytes. CorruptMessage where they are malformed."""
    position = 0
    for _ in range(count):
        start = position
        length, position = read_varint(plain, position)
        end = position + length
        if length < 1 or end > len(plain):
            raise CorruptMessage("a record is cut off")
        timestamp_delta, after_time = read_varint(plain, position + 1)
        offset_delta, position = read_varint(plain, after_time)
        size, position = read_varint(plain, position)
        key = None
        if size >= 0:
            key = plain[position : position + size]
            position += size
        size, position = read_varint(plain, position)
        if position + max(size, 0) > end:
            raise CorruptMessage("a record's field is cut off")
        fields = (start, end, after_time, timestamp_delta, offset_delta, key, size >= 0)
        yield _new_tuple(RawRecord, fields)
        position = end
    if position != len(plain):
        raise CorruptMessage(f"{len(plain) - position} bytes follow the last record of the batch")


def delete_horizon(header: BatchHeader) -> int | None:
    """Return from when on (ms) the batch's tombstones or marker may go; None if it is not set (KIP-534)."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def copy_record(
    out: bytearray, header: BatchHeader, plain: bytes, record: RawRecord, *, horizon_ms: int | None
) -> None:
    """Add a record's plain bytes to `out`; `horizon_ms` is the batch's new base, if it gets a delete horizon now."""
    if horizon_ms is None:
        out += plain[record.start : record.end]
        return
    time = bytearray(1)  # and the attributes, which are always 0
    write_varint(time, header.base_timestamp + record.timestamp_delta - horizon_ms)
    write_varint(out, len(time) + record.end - record.after_time)
    out += time
    out += plain[record.after_time : record.end]


def rebuild_batch(
    header: BatchHeader, payload: bytes, *, count: int, newest_delta: int, horizon_ms: int | None
) -> bytes:
    """Return the batch with other contents: `count` records in `payload`, compressed as before.

    `newest_delta` is the largest timestamp delta among them, as in the original batch.
    """
    attributes = header.attributes
    base_timestamp, newest = header.base_timestamp, header.max_timestamp
    if not attributes & LOG_APPEND_TIME_BIT:
        newest = base_timestamp + newest_delta
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon_ms
    return _sealed(header, payload, (attributes, base_timestamp, newest, count))


def with_codec(header: BatchHeader, payload: bytes, codec: int) -> bytes:
    """Return the batch with the same records in `payload`, compressed with another codec."""
    attributes = header.attributes & ~CODEC_MASK | codec
    return _sealed(
        header, payload, (attributes, header.base_timestamp, header.max_timestamp, header.record_count)
    )


def without_records(header: BatchHeader) -> bytes:
    """Return the batch without its records: it still shows its offsets and its producer's last sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT) | NONE
    return _sealed(header, b"", (attributes, NO_TIMESTAMP, header.max_timestamp, 0))


def _sealed(header: BatchHeader, payload: bytes, changed: tuple[int, int, int, int]) -> bytes:
    attributes, base_timestamp, max_timestamp, count = changed
    body = HEADER.pack(
        header.base_offset,
        HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
        header.leader_epoch,
        header.magic,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    crc = crc32c(payload, crc32c(body[CRC_START:]))
    return body[: CRC_START - 4] + crc.to_bytes(4, "big") + body[CRC_START:] + payload
