"""Random record batches: valid batches in every codec, and batches with a lying header or records and a valid CRC."""

from __future__ import annotations

import struct
from typing import Any, Final

from raftlog.base.compiled import crc32c
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.compression import compress
from raftlog.records.header import CRC_START, HEADER, HEADER_BYTES
from raftlog.records.varint import write_varint
from raftlog_chaos.fuzz.draw import EDGES, Draw
from raftlog_chaos.workloads.odd_headers import ODD, build_odd

CRC_AT: Final = CRC_START - 4
CODES: Final = "qiibIhiqqqhii"
"""The struct codes of the fields of a batch header."""
TRANSACTIONAL: Final = 0x10
KEYS: Final = (b"k", b"k", b"key-2", b"key-3")
NOW_MS: Final = 1_767_225_600_000
"""About what simulated clocks show."""
BOMB_BYTES: Final = 4 << 20
LARGE: Final = b"v" * 6_000
"""Three of them fill a segment of a simulated node."""


def draw_records(draw: Draw) -> bytes:
    """Return the bytes for one partition: mostly one batch."""
    chance = draw.random()
    if chance < 0.03:
        return draw.rng.randbytes(int(chance * 3_000))
    batch = _right(draw)
    if chance < 0.52:
        return batch
    if chance < 0.6:
        return _with_odd_times(draw)
    if chance < 0.75:
        return _with_other_header(draw, batch)
    if chance < 0.9:
        return _with_other_records(draw, batch)
    if chance < 0.95:
        return batch[: int(draw.random() * len(batch))]
    return batch + draw.pick((batch, b"\0", batch[:20]))


def _right(draw: Draw) -> bytes:
    count = draw.pick((1, 1, 2, 3, 20))
    key: Any = draw.pick((None, b"", b"k", b"key-2"))
    records = [
        new_record(key, draw.pick((None, b"", b"v" * 30)), timestamp=NOW_MS + number, headers=_headers(draw))
        for number in range(count)
    ]
    producer = ProducerIdAndSequence()
    attributes = 0
    if draw.random() < 0.5:
        ids = draw.known.of("producer_id")
        producer_id = draw.pick(ids) if ids and draw.random() < 0.9 else draw.pick((0, 1, 77, 2**63 - 1))
        producer = ProducerIdAndSequence(
            producer_id, draw.pick((0, 0, 1, -1)), draw.pick((0, 0, 1, count, 2**31 - 1))
        )
        attributes = TRANSACTIONAL if draw.random() < 0.5 else 0
    return build_batch(
        records, codec=draw.pick((0, 0, 0, 1, 2, 3, 4)), producer=producer, attributes=attributes
    )


def _headers(draw: Draw) -> tuple[tuple[str, bytes | None], ...]:
    return () if draw.random() < 0.8 else (("h", None), ("h", b"x"))


def sealed(fields: list[int], payload: bytes) -> bytes:
    """Return a batch with these header fields, and a CRC that holds."""
    out = bytearray(HEADER.pack(*fields) + payload)
    out[CRC_AT:CRC_START] = struct.pack(">I", crc32c(bytes(out[CRC_START:])))
    return bytes(out)


def _with_other_header(draw: Draw, batch: bytes) -> bytes:
    fields = list(HEADER.unpack_from(batch))
    for _ in range(draw.pick((1, 1, 2))):
        at = int(draw.random() * len(fields))
        fields[at] = draw.pick(EDGES[CODES[at]])
    if draw.random() < 0.3:
        return HEADER.pack(*fields) + batch[HEADER_BYTES:]
    return sealed(fields, batch[HEADER_BYTES:])


def _with_odd_times(draw: Draw) -> bytes:
    """Sound records under a header that says little or wrong about their times."""
    odd = ODD[draw.pick(tuple(ODD))](NOW_MS)
    if draw.random() < 0.3:
        odd = odd._replace(newest=draw.pick(EDGES["q"]))
    return build_odd(odd, [b"v"] * len(odd.times), draw.pick((0, 0, 1, 2, 3, 4)))


def _odd_records(draw: Draw) -> bytearray:
    """Return three keyed records, some with a time, a number or a size at the end of its range."""
    plain = bytearray()
    for number in range(3):
        body = bytearray(b"\0")
        write_varint(body, draw.pick(EDGES["q"]) if draw.random() < 0.5 else number)
        write_varint(body, draw.pick(EDGES["q"]) if draw.random() < 0.1 else number)
        key, value = draw.pick(KEYS), draw.pick((b"", b"v" * 30, LARGE))
        write_varint(body, draw.pick(EDGES["i"]) if draw.random() < 0.05 else len(key))
        body += key
        write_varint(body, -1 if draw.random() < 0.1 else len(value))
        body += value
        write_varint(body, draw.pick(EDGES["i"]) if draw.random() < 0.1 else 0)
        write_varint(plain, len(body))
        plain += body
    return plain


def _with_other_records(draw: Draw, batch: bytes) -> bytes:
    """Change bytes within the records, or pack something else; length, count and CRC agree with that."""
    codec = draw.pick((0, 0, 1, 2, 3, 4))
    way = draw.random()
    if way < 0.02:
        plain = bytearray(BOMB_BYTES)
    elif way < 0.4:
        plain = _odd_records(draw)
    else:
        plain = bytearray(build_batch([new_record(b"k", b"v", timestamp=NOW_MS)] * 3)[HEADER_BYTES:])
        for _ in range(draw.pick((1, 1, 2, 4))):
            plain[int(draw.random() * len(plain))] = draw.pick(
                (0, 1, 0x7F, 0x80, 0xFF, draw.rng.getrandbits(8))
            )
    payload = compress(codec, bytes(plain))
    if codec and draw.random() < 0.3:
        damaged = bytearray(payload)
        damaged[int(draw.random() * len(damaged))] ^= 1 << draw.rng.getrandbits(3)
        payload = bytes(damaged)
    fields = list(HEADER.unpack_from(batch))
    count = draw.pick((1, 3, 3, 3, 250, 2**31 - 1))
    fields[1] = HEADER_BYTES - 12 + len(payload)
    fields[5] = (fields[5] & ~7) | codec
    fields[6], fields[12] = count - 1, count
    return sealed(fields, payload)
