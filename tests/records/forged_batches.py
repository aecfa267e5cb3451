"""Batches that no honest client makes: their CRC holds, and they lie."""

from __future__ import annotations

from crc32c import crc32c

from raftlog.records.batch import (
    CRC_START,
    HEADER_BYTES,
    ProducerIdAndSequence,
    build_batch,
    new_record,
)
from raftlog.records.compression import NONE
from raftlog.records.varint import write_varint


def with_payload(batch: bytes, payload: bytes, *, codec: int = NONE, count: int | None = None) -> bytes:
    """A batch with other contents, of which its header may claim to be so many records."""
    changed = bytearray(batch[:HEADER_BYTES]) + payload
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    changed[22] = codec
    if count is not None:
        changed[23:27] = (count - 1).to_bytes(4, "big")
        changed[57:61] = count.to_bytes(4, "big")
    changed[17:21] = crc32c(changed[CRC_START:]).to_bytes(4, "big")
    return bytes(changed)


def claiming(count: int, *, timestamp: int) -> bytes:
    """A batch of 61 bytes that claims so many records and has none."""
    return with_payload(build_batch([new_record(b"k", b"v", timestamp=timestamp)]), b"", count=count)


def with_deltas(
    *deltas: tuple[int, int], timestamp: int, key: bytes = b"k", value: bytes | None = b"v"
) -> bytes:
    """A batch of records with these timestamp deltas and offset deltas."""
    plain = bytearray()
    for timestamp_delta, offset_delta in deltas:
        body = bytearray(b"\0")
        write_varint(body, timestamp_delta)
        write_varint(body, offset_delta)
        for field in (key, value):
            write_varint(body, -1 if field is None else len(field))
            body += field or b""
        write_varint(plain, len(body) + 1)
        plain += body + b"\0"
    base = build_batch([new_record(b"k", b"v", timestamp=timestamp)], producer=ProducerIdAndSequence())
    return with_payload(base, bytes(plain), count=len(deltas))
