"""Record batches v2 (KIP-98): building and walking them; the header and its rules are in `raftlog.records.header`.

Modules that need batches import from here. No files, sockets or roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.errors import CorruptMessage
from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from raftlog.records.compression import NONE, compress, decompress
from raftlog.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    STAMP_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_crc,
    iter_headers,
    read_header,
    stamp,
    stamp_max_timestamp,
    validate_produced,
)
from raftlog.records.varint import read_varint, write_varint

__all__ = [
    "CRC_START",
    "HEADER_BYTES",
    "MAX_PLAIN_BYTES",
    "NO_PRODUCER",
    "STAMP_BYTES",
    "BatchHeader",
    "Buffer",
    "EndTransactionMarker",
    "ProducerIdAndSequence",
    "Record",
    "build_batch",
    "build_end_marker",
    "check_crc",
    "iter_headers",
    "iter_records",
    "iter_records_from",
    "name_bytes",
    "name_text",
    "new_record",
    "open_batch",
    "read_all_headers",
    "read_end_marker",
    "read_header",
    "skip_headers",
    "stamp",
    "stamp_max_timestamp",
    "validate_produced",
]

MAX_PLAIN_BYTES: Final = 256 * 1024 * 1024
"""The most that one batch may decompress to."""

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values. Bytes of a name that are not UTF-8 are lone surrogates (NAME_ERRORS), so that no byte is lost.

`name_text` and `name_bytes` are what to print and what to write.
"""
NAME_ERRORS: Final = "surrogateescape"
HeaderReader = Callable[[bytes, int], tuple[Headers, int]]
"""Reads the headers of a record from a position in its bytes on; returns them, and the position after the last."""

_CONTROL_KEY = Struct(">hh")
_END_MARKER_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_TIMESTAMPS = range(-(2**63), 2**63)


class Record(NamedTuple):
    """One record. `offset` is -1 until it is assigned."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ProducerIdAndSequence(NamedTuple):
    """The writer of a batch, and the sequence of its first record (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    base_sequence: int = NO_SEQUENCE


class EndTransactionMarker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


NO_PRODUCER: Final = ProducerIdAndSequence()


def new_record(key: bytes | None, value: bytes | None, *, timestamp: int, headers: Headers = ()) -> Record:
    """Return a record that has no offset yet; `build_batch` numbers it."""
    return Record(-1, timestamp, key, value, headers)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    codec: int = NONE,
    producer: ProducerIdAndSequence = NO_PRODUCER,
    attributes: int = 0,
) -> bytes:
    """Return one batch of at least one record, numbered from `base_offset` on; the records' own offsets are not read.

    `attributes` adds bits such as TRANSACTIONAL_BIT to the codec's.
    """
    assert records, "a batch holds at least one record"
    base_timestamp = records[0].timestamp
    plain = bytearray()
    for delta, record in enumerate(records):
        _write_record(plain, record, record.timestamp - base_timestamp, delta)
    payload = compress(codec, plain)
    body = HEADER.pack(
        base_offset,
        HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes & ~CODEC_MASK | codec,
        len(records) - 1,
        base_timestamp,
        max(record.timestamp for record in records),
        *producer,
        len(records),
    )
    crc = crc32c(payload, crc32c(body[CRC_START:]))
    return body[: CRC_START - 4] + crc.to_bytes(4, "big") + body[CRC_START:] + payload


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\x00")
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name_bytes(name))
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(value))
        out += value


def name_bytes(name: str) -> bytes:
    """Return the bytes of a header's name."""
    return name.encode(errors=NAME_ERRORS)


def name_text(name: str) -> str:
    """Return the name of a header as text, as Java clients read it: bytes that are not UTF-8 are U+FFFD."""
    return name if name.isascii() else name_bytes(name).decode(errors="replace")


def skip_headers(body: bytes, position: int) -> tuple[Headers, int]:
    """Read no headers (`HeaderReader`): a client's record may have millions."""
    return (), len(body)


def iter_records(
    batch: Buffer, *, max_bytes: int = MAX_PLAIN_BYTES, read_headers: HeaderReader | None = None
) -> Iterator[Record]:
    """Yield the records of the batch that starts `batch`. CorruptMessage where they are malformed; no CRC check."""
    header, plain = open_batch(batch, max_bytes=max_bytes)
    records = iter_records_from(header, plain, header.base_offset, read_headers=read_headers)
    return (each for each in records if each is not None)


def open_batch(batch: Buffer, *, max_bytes: int = MAX_PLAIN_BYTES) -> tuple[BatchHeader, memoryview]:
    """Return the header and the decompressed records of the batch that starts `batch`. Raises CorruptMessage."""
    header = read_header(batch)
    if header.length > len(batch):
        raise CorruptMessage("batch is cut off")
    payload = memoryview(batch)[HEADER_BYTES : header.length]
    return header, memoryview(decompress(header.codec, payload, max_bytes=max_bytes))


def iter_records_from(
    header: BatchHeader, plain: memoryview, start_offset: int, *, read_headers: HeaderReader | None = None
) -> Iterator[Record | None]:
    """Yield the records from an offset on, and None for each earlier record, about two microseconds each.

    Earlier records are skipped by their lengths and offsets, without a look at the rest. CorruptMessage names the first
    malformed record, or the first with an offset that goes back or lies outside the batch.
    """
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    read_headers = read_headers or read_all_headers
    position = number = 0
    previous = header.base_offset - 1
    try:
        while start_offset > header.base_offset and number < header.record_count:
            offset, end = _offset_and_end(plain, position, header)
            if offset >= start_offset:
                break
            _check_offset(offset, previous, header)
            position, previous = end, offset
            number += 1
            yield None
        while number < header.record_count:
            record, position = _read_record(plain, position, header, append_time, read_headers)
            _check_offset(record.offset, previous, header)
            previous = record.offset
            yield record
            number += 1
    except CorruptMessage as error:
        raise CorruptMessage(
            f"record {number} of the batch at offset {header.base_offset}: {error}"
        ) from error
    if position != len(plain):
        raise CorruptMessage(f"{len(plain) - position} bytes follow the last record of the batch")


def _check_offset(offset: int, previous: int, header: BatchHeader) -> None:
    if not previous < offset <= header.last_offset:
        raise CorruptMessage(f"its offset is {offset}, not in {previous + 1} to {header.last_offset}")


def _offset_and_end(plain: memoryview, position: int, header: BatchHeader) -> tuple[int, int]:
    """Return a record's offset and where the next record begins."""
    length, position = read_varint(plain, position)
    end = position + length
    if length < 1 or end > len(plain):
        raise CorruptMessage("a record is cut off")
    _, position = read_varint(plain, position + 1)
    offset_delta, _ = read_varint(plain, position)
    return header.base_offset + offset_delta, end


def _read_record(
    plain: memoryview, position: int, header: BatchHeader, append_time: int | None, read_headers: HeaderReader
) -> tuple[Record, int]:
    length, position = read_varint(plain, position)
    end = position + length
    if length < 1 or end > len(plain):
        raise CorruptMessage("a record is cut off")
    body = bytes(plain[position:end])  # one copy: fields cut from it are bytes at once
    timestamp_delta, position = read_varint(body, 1)
    offset_delta, position = read_varint(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    headers, position = read_headers(body, position)
    if position != length:
        raise CorruptMessage("a record's length does not fit its contents")
    timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
    if timestamp not in _TIMESTAMPS:
        raise CorruptMessage(f"its timestamp is {timestamp}, beyond 64 bits")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(body, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(body):
        raise CorruptMessage("a record's field is cut off")
    return body[position:end], end


def read_all_headers(body: bytes, position: int, *, most: int | None = None) -> tuple[Headers, int]:
    """Read the headers of a record (`HeaderReader`). CorruptMessage if there are more than `most`."""
    count, position = read_varint(body, position)
    if not count:
        return (), position
    # Each header takes two bytes at least: a false count is found before any allocation for it.
    if not 0 < count <= (len(body) - position) // 2:
        raise CorruptMessage(f"a record cannot have {count} headers")
    if most is not None and count > most:
        raise CorruptMessage(f"a record has {count} headers, and at most {most} are read here")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position)
        value, position = _read_bytes(body, position)
        if name is None:
            raise CorruptMessage("a record's header has no name")
        headers.append((name.decode(errors=NAME_ERRORS), value))
    return tuple(headers), position


def build_end_marker(
    producer_id: int, producer_epoch: int, *, marker: EndTransactionMarker, now_ms: int = NO_TIMESTAMP
) -> bytes:
    """Return the control batch that commits or aborts a producer's transaction (KIP-98)."""
    key = _CONTROL_KEY.pack(0, _COMMIT if marker.commit else _ABORT)
    value = _END_MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [new_record(key, value, timestamp=now_ms)],
        producer=ProducerIdAndSequence(producer_id, producer_epoch, NO_SEQUENCE),
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def read_end_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Return the transaction end that a control batch records; None without a record of a known type."""
    record = next(iter_records(batch), None)
    if record is None:
        return None
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _END_MARKER_VALUE.unpack_from(record.value or b"")
    except StructError as error:
        raise CorruptMessage("a control record is cut off") from error
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)
