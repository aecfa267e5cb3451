"""Converts record batches (KIP-98) to Arrow columns, many records at a time. Pure; sends no requests.

One loop finds where each record begins. NumPy and Arrow do the rest for all records at once, since one Python object
per record would cost more than all later steps. Headers are not decoded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from raftlog.base.errors import CorruptMessage
from raftlog.pipeline.offsets import Range
from raftlog.records.batch import HEADER_BYTES, MAX_PLAIN_BYTES, BatchHeader
from raftlog.records.compression import decompress
from raftlog.records.varint import read_varint

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

COUNTED: Final = frozenset({"topic", "partition"})
"""Columns that need a batch's header only: it says how many records there are, after compaction too."""
MAX_ARROW_BYTES: Final = 2**31 - 1
"""The most bytes that the strings of one array have: their edges are of 32 bits."""


class Batch(NamedTuple):
    """A batch's header and its bytes after the header, still compressed."""

    header: BatchHeader
    payload: memoryview

    @classmethod
    def at(cls, buffer: memoryview, position: int, header: BatchHeader) -> Batch:
        """Return the batch that lies whole at a position."""
        return cls(header, buffer[position + HEADER_BYTES : position + header.length])


class Fields(NamedTuple):
    """The fields of several batches' records: numbers, and places in `plain`. Each array has one entry per record."""

    plain: bytes
    offsets: Integers
    times_ms: Integers
    time_kinds: Integers
    keys: tuple[Integers, Integers]
    values: tuple[Integers, Integers]

    def only(self, chosen: np.ndarray[Any, Any]) -> Fields:
        """Return the fields of the records that a mask chooses."""
        if chosen.all():
            return self
        plain, offsets, times_ms, time_kinds, keys, values = self
        return Fields(
            plain,
            offsets[chosen],
            times_ms[chosen],
            time_kinds[chosen],
            (keys[0][chosen], keys[1][chosen]),
            (values[0][chosen], values[1][chosen]),
        )


def to_arrow(batches: Sequence[Batch], wanted: Range, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` for the batches' records that are in the range. Raises CorruptMessage."""
    if COUNTED.issuperset(schema.names) and all(_is_inside(each.header, wanted) for each in batches):
        count = sum(map(_record_count, batches))
        return pa.record_batch([_repeated(name, wanted, count) for name in schema.names], schema=schema)
    fields = read_fields(batches)
    fields = fields.only((fields.offsets >= wanted.start) & (fields.offsets < wanted.end))
    return pa.record_batch([_column(name, fields, wanted) for name in schema.names], schema=schema)


def _record_count(batch: Batch) -> int:
    """Return how many records a header declares; no more than it has offsets, even from a broken node."""
    header = batch.header
    if header.record_count > header.last_offset - header.base_offset + 1:
        raise CorruptMessage(f"the batch at offset {header.base_offset} has more records than offsets")
    return header.record_count


def read_fields(batches: Sequence[Batch]) -> Fields:
    """Decompress batches and find the fields of their records. Raises CorruptMessage."""
    headers = [each.header for each in batches]
    parts = [
        decompress(each.header.codec, each.payload, max_bytes=MAX_PLAIN_BYTES)
        if each.header.codec
        else each.payload
        for each in batches
    ]
    plain = b"".join(parts)
    if len(plain) > MAX_ARROW_BYTES:
        raise CorruptMessage("the batches decompress to more than one Arrow array can hold")
    try:
        bodies = np.array(_find_bodies(plain, headers, map(len, parts)), np.int64)
        return _read_bodies(plain, headers, bodies)
    except IndexError as error:
        raise CorruptMessage("a record is cut off") from error


def _find_bodies(plain: bytes, headers: Iterable[BatchHeader], lengths: Iterable[int]) -> list[int]:
    """Return where each record begins, behind its length. This loop is most of what a record costs in Python."""
    found: list[int] = []
    add = found.append
    position = end = 0
    for header, length in zip(headers, lengths, strict=True):
        end += length
        due = len(found) + header.record_count
        while position < end:
            size = plain[position]
            if size < 0x80:
                position += 1
            elif (high := plain[position + 1]) < 0x80:
                size = size & 0x7F | high << 7
                position += 2
            else:
                size, position = read_varint(plain, position)
                size <<= 1
            if size < 2:
                raise CorruptMessage("a record has no length")
            add(position)
            position += size >> 1
        if position != end or len(found) != due:
            raise CorruptMessage(
                f"the batch at offset {header.base_offset} does not have as many records as its header claims"
            )
    return found


def _read_bodies(plain: bytes, headers: Sequence[BatchHeader], bodies: Integers) -> Fields:
    octets = np.frombuffer(plain, np.uint8)
    counts = [each.record_count for each in headers]

    def of_batches(numbers: Iterable[int]) -> Integers:
        return np.repeat(np.array(list(numbers), np.int64), counts)

    deltas_ms, position = _read_varints(octets, bodies + 1)  # after a byte of attributes, which is unused
    offset_deltas, position = _read_varints(octets, position)
    keys, position = _read_extents(octets, position)
    values, position = _read_extents(octets, position)
    next_bodies: Integers = np.append(bodies[1:], len(plain))
    if (position >= next_bodies).any():  # a count of headers is yet to come
        raise CorruptMessage("a record's length does not fit its contents")
    offsets = of_batches(each.base_offset for each in headers) + offset_deltas
    times_ms = of_batches(each.base_timestamp for each in headers) + deltas_ms
    kinds = of_batches(int(each.is_log_append_time) for each in headers)
    if kinds.any():
        times_ms = np.where(kinds, of_batches(each.max_timestamp for each in headers), times_ms)
    return Fields(plain, offsets, times_ms, kinds, keys, values)


def _read_varints(octets: Bytes, position: Integers) -> tuple[Integers, Integers]:
    """Return the signed varint at each position, and the positions behind them."""
    octet = octets[position]
    raw = (octet & 0x7F).astype(np.uint64)
    after: Integers = position + 1
    longer = np.flatnonzero(octet >= 0x80)
    shift = 7
    while longer.size:
        if shift > 63:
            raise CorruptMessage("a varint is too long")
        octet = octets[after[longer]]
        raw[longer] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[octet >= 0x80]
        shift += 7
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after


def _read_extents(octets: Bytes, position: Integers) -> tuple[tuple[Integers, Integers], Integers]:
    """Return the begin and size of the bytes at each position, a size of -1 for null, and the positions behind."""
    sizes, begins = _read_varints(octets, position)
    if (sizes < -1).any() or (sizes > len(octets)).any():
        raise CorruptMessage("a record's field has an invalid length")
    return (begins, sizes), begins + np.maximum(sizes, 0)


def _column(name: str, fields: Fields, wanted: Range) -> pa.Array:
    match name:
        case "key":
            return _binary(fields.plain, *fields.keys)
        case "value":
            return _binary(fields.plain, *fields.values)
        case "offset":
            return _of_numbers(pa.int64(), fields.offsets)
        case "timestamp":
            milliseconds = _of_numbers(pa.timestamp("ms", tz="UTC"), fields.times_ms)
            return milliseconds.cast(pa.timestamp("us", tz="UTC"))
        case "timestampType":
            return _of_numbers(pa.int32(), fields.time_kinds.astype(np.int32))
    return _repeated(name, wanted, len(fields.offsets))


# Arrays are made of buffers: `pa.array` and `pa.repeat` check for pandas objects, and import pandas for that. In a new
# Spark worker that takes longer than a small batch.


def _repeated(name: str, wanted: Range, count: int) -> pa.Array:
    if name == "topic":
        topic = wanted.at.topic.encode()
        if count * len(topic) > MAX_ARROW_BYTES:
            raise CorruptMessage("there are more records than one Arrow array of topic names can hold")
        edges: np.ndarray[Any, Any] = (np.arange(count + 1) * len(topic)).astype(np.int32)
        return pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(topic * count)]
        )
    assert name == "partition", name
    return _of_numbers(pa.int32(), np.full(count, wanted.at.partition, np.int32))


def _of_numbers(
    kind: pa.DataType, numbers: np.ndarray[Any, Any], chosen: np.ndarray[Any, Any] | None = None
) -> pa.Array:
    """Return numbers as an Arrow array, with nulls where a mask does not choose them."""
    validity = None if chosen is None else pa.py_buffer(np.packbits(chosen, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(np.ascontiguousarray(numbers))])


def _binary(plain: bytes, begins: Integers, sizes: Integers) -> pa.Array:
    """Return the bytes at each place. Arrow copies them: every second item of an array that has the gaps as well."""
    count = len(begins)
    edges: np.ndarray[Any, Any] = np.empty(2 * count, np.int32)
    edges[0::2] = begins
    edges[1::2] = begins + np.maximum(sizes, 0)
    whole = [None, pa.py_buffer(edges), pa.py_buffer(plain)]
    with_gaps = pa.Array.from_buffers(pa.binary(), max(0, 2 * count - 1), whole)
    return with_gaps.take(_of_numbers(pa.int64(), np.arange(0, 2 * count, 2), sizes >= 0))


def _is_inside(header: BatchHeader, wanted: Range) -> bool:
    return wanted.start <= header.base_offset and header.last_offset < wanted.end
