"""Record batches for histories: built with any header field, and read back as plain data.

A header field is shown only where it differs from what the records imply.

`crc` matches the fields of the header, unless it is given. So a batch with an odd field is the batch of a client with
that fault.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from raftlog.base.compiled import crc32c
from raftlog.base.errors import KafkaError
from raftlog.records.batch import Record, build_batch, iter_records
from raftlog.records.header import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    iter_headers,
    read_header,
)

FIELDS: Final = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
"""A batch's header in the order of its bytes (Kafka: RecordBatch, version 2)."""
LONG_BYTES: Final = 80


def build(records: Sequence[Record], *, codec: int = 0, **header: int) -> bytes:
    """Return a batch of these records; `header` replaces fields of its header by name."""
    batch = build_batch(records, codec=codec)
    fields = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | header
    unknown = header.keys() - set(FIELDS)
    if unknown:
        raise TypeError(f"a batch's header has no {', '.join(map(repr, sorted(unknown)))}")
    if "crc" not in header:
        head = HEADER.pack(*fields.values())
        fields["crc"] = crc32c(batch[HEADER_BYTES:], crc32c(head[CRC_START:]))
    return HEADER.pack(*fields.values()) + batch[HEADER_BYTES:]


def read(batches: bytes | None) -> list[Mapping[str, Any]] | None:
    """Return batches as plain data. Bytes that are no whole batch are shown as hex digits."""
    if batches is None:
        return None
    found: list[Mapping[str, Any]] = []
    position = 0
    while position < len(batches):
        rest = batches[position:]
        try:
            header = read_header(rest)
        except KafkaError:
            header = None
        if header is None or header.length > len(rest):
            found.append(_odd(rest))
            break
        found.append(_batch(rest[: header.length]))
        position += header.length
    return found


def end_offset(batches: bytes) -> int:
    """Return the offset after the last whole batch; 0 for none."""
    return max((header.end_offset for _, header in iter_headers(batches)), default=0)


def whole(batches: bytes) -> bytes:
    """Return what is left without a batch that is cut off at the end, as fetches with limits may have it."""
    end = max((position + header.length for position, header in iter_headers(batches)), default=0)
    return batches[:end]


def header_of(batch: bytes) -> Mapping[str, int]:
    """Return the header of a batch, by the names of its fields."""
    return dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True))


def _odd(rest: bytes) -> Mapping[str, Any]:
    if len(rest) < HEADER_BYTES:
        return {"bytes": text(rest)}
    fields = dict(zip(FIELDS, HEADER.unpack_from(rest), strict=True))
    del fields["crc"]  # it covers times, and its extent is unknown
    return fields | {"bytes": text(rest[HEADER_BYTES:])}


def _batch(batch: bytes) -> Mapping[str, Any]:
    fields = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True))
    records = _records(batch)
    usual = _usual(batch, records if isinstance(records, list) else [])
    shown = {name: value for name, value in fields.items() if value != usual[name]}
    if "crc" in shown:
        shown["crc"] = "wrong"
    if fields["attributes"] & CONTROL_BIT and fields["attributes"] & LOG_APPEND_TIME_BIT:
        shown.pop(
            "base_timestamp", None
        )  # the coordinator's time, which is the leader's or a millisecond before it
    return shown | {"records": records}


def _usual(batch: bytes, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the header that a producer without an id would give to these records; a base offset is always shown."""
    times = [each["timestamp"] for each in records] or [-1]
    count = len(records)
    crc = crc32c(batch[CRC_START:])
    rest = (-1, 2, crc, 0, count - 1, times[0], max(times), -1, -1, -1, count)
    return dict(zip(FIELDS, (None, len(batch) - LENGTH_OVERHEAD, *rest), strict=True))


def _records(batch: bytes) -> Any:
    header = read_header(batch)
    if header.record_count <= 0 and len(batch) == HEADER_BYTES:
        return []
    try:
        return [_record(each) for each in iter_records(batch)]
    except (KafkaError, ValueError, IndexError, struct.error):
        return text(batch[HEADER_BYTES:])


def _record(record: Record) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    if record.key is not None:
        shown["key"] = text(record.key)
    shown["value"] = None if record.value is None else text(record.value)
    if record.headers:
        shown["headers"] = [[name, None if value is None else text(value)] for name, value in record.headers]
    return shown


def text(value: bytes) -> str:
    """Return bytes as text where they are short and printable, else as hex digits or a size with a checksum."""
    if len(value) > LONG_BYTES:
        return f"<{len(value)} bytes, crc {crc32c(value):08x}>"
    if value.isascii() and value.decode("ascii").isprintable():
        return value.decode("ascii")
    return f"0x{value.hex()}"
