"""Batches that no honest client makes: their CRC holds, and they lie."""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from raftlog.records.batch import (
    CRC_START,
    HEADER_BYTES,
    ProducerIdAndSequence,
    build_batch,
    new_record,
)
from raftlog.records.compression import NONE, compress
from raftlog.records.varint import write_varint


def with_payload(
    batch: bytes,
    payload: bytes,
    *,
    codec: int = NONE,
    count: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """A batch with other contents, of which its header may claim a count of records and the largest timestamp."""
    changed = bytearray(batch[:HEADER_BYTES]) + payload
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    changed[22] = codec
    if max_timestamp is not None:
        changed[35:43] = max_timestamp.to_bytes(8, "big", signed=True)
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


def varint(value: int) -> bytes:
    """The zigzag varint of a number."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def raw_record(
    offset_delta: int,
    *,
    time_delta: int = 0,
    key: bytes = varint(1) + b"k",
    value: bytes = varint(20) + b"v" * 20,
    headers: bytes = varint(0),
    longer: int = 0,
) -> bytes:
    """A record of fields that are bytes already; its length is by `longer` bytes wrong."""
    body = b"\0" + varint(time_delta) + varint(offset_delta) + key + value + headers
    return varint(len(body) + longer) + body


HONEST: Final = raw_record(0)

MALFORMED: Final[dict[str, bytes]] = {
    "varint-cut-off": HONEST + b"\xff",
    "varint-of-eleven-bytes": HONEST + b"\xff" * 10 + b"\1",
    "length-beyond-the-batch": HONEST + varint(1_000) + raw_record(1)[1:],
    "length-negative": HONEST + varint(-3) + raw_record(1)[1:],
    "length-zero": HONEST + varint(0) + raw_record(1)[1:],
    "length-too-short": HONEST + raw_record(1, longer=-1),
    "length-too-long": HONEST + raw_record(1, longer=1) + b"\0",
    "a-record-too-few": HONEST,
    "a-record-too-many": HONEST + raw_record(1) + raw_record(2),
    "trailing-bytes": HONEST + raw_record(1) + b"\0\0",
    "offset-twice": HONEST + raw_record(0),
    "offset-beyond-the-batch": HONEST + raw_record(7),
    "offset-huge": HONEST + raw_record(2**62),
    "offset-negative": HONEST + raw_record(-1),
    "timestamp-beyond-64-bits": HONEST + raw_record(1, time_delta=2**63 - 1),
    "key-beyond-the-record": HONEST + raw_record(1, key=varint(500) + b"k"),
    "value-beyond-the-record": HONEST + raw_record(1, value=varint(500) + b"v" * 20),
    "value-huge": HONEST + raw_record(1, value=varint(2**62) + b"v" * 20),
    "headers-negative": HONEST + raw_record(1, headers=varint(-1)),
    "headers-too-many": HONEST + raw_record(1, headers=varint(2**31)),
    "header-without-a-name": HONEST + raw_record(1, headers=varint(1) + varint(-1) + varint(-1)),
    "header-beyond-the-record": HONEST + raw_record(1, headers=varint(1) + varint(9) + b"h"),
    "nothing": b"",
}
"""Plain bytes of a batch that claims two records. The first record is sound, if present; the second is not."""


def malformed(name: str, *, timestamp: int, codec: int = NONE, max_timestamp: int | None = None) -> bytes:
    """The batch of that name in MALFORMED: header and CRC are sound, and say that it has two records.

    `garbage` is no name there: its payload is not of its codec.
    """
    base = build_batch([new_record(b"k", b"v", timestamp=timestamp)])
    payload = b"garbage" if name == "garbage" else bytes(compress(codec, MALFORMED[name]))
    return with_payload(base, payload, codec=codec, count=2, max_timestamp=max_timestamp)
