"""The header of a record batch v2 (KIP-98) and the laws a produced batch is held to. No files, sockets or roles here.

The first 16 bytes (base offset, length, leader epoch) lie outside the CRC: a leader stamps them and leaves the rest.
Hot paths unpack by one `struct` call; `tuple.__new__` spares the Python call of a NamedTuple's own `__new__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from raftlog.base.compiled import crc32c
from raftlog.base.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from raftlog.base.types import NO_TIMESTAMP

Buffer = bytes | bytearray | memoryview

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
STAMP: Final = Struct(">qii")
STAMP_BYTES: Final = STAMP.size
"""The fields that a leader overwrites: base offset i64, batch length i32, partition leader epoch i32."""
LENGTH_OVERHEAD: Final = 12
"""Bytes before the part that the length field counts."""
CRC_START: Final = 21
"""The CRC-32C covers everything from the attributes on."""
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
HIGHEST_CODEC: Final = 4
ZSTD: Final = 4
MAX_SEQUENCE: Final = 2**31 - 1
MIN_RECORD_BYTES: Final = 7
"""A record's least: one byte each for length, attributes, two deltas, lengths of key and value, number of headers."""

MIN_LENGTH: Final = 14
"""The least value of the length field in any record format (Kafka: LegacyRecord.RECORD_OVERHEAD_V0)."""

_NOT_FROM_PRODUCERS: Final = CONTROL_BIT | LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT

_new_tuple = tuple.__new__


class NotOneBatch(InvalidRecord):
    """A produced partition does not hold exactly one batch of format 2; its log is not needed to refuse it."""


class BatchHeader(NamedTuple):
    """A batch's header. `length` is the whole batch in bytes, header included (the wire's length field plus 12)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without a producer; wraps from 2^31-1 to 0 (KIP-98)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Unpack the header at `position`. CorruptMessage unless it is a whole v2 header with a possible length.

    The batch's bytes after the header may be missing; its CRC is not checked.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptMessage("batch header is cut off")
    base_offset, batch_length, *rest = HEADER.unpack_from(buffer, position)
    if batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise CorruptMessage(f"batch length {batch_length} is shorter than a header")
    if rest[1] != MAGIC:
        raise CorruptMessage(f"record format {rest[1]} is not 2")
    return _new_tuple(BatchHeader, (base_offset, batch_length + LENGTH_OVERHEAD, *rest))


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptMessage unless the whole batch lies at `position` and its CRC-32C holds."""
    end = position + header.length
    if end > len(buffer):
        raise CorruptMessage("batch is cut off")
    if crc32c(memoryview(buffer)[position + CRC_START : end]) != header.crc:
        raise CorruptMessage(f"CRC of the batch at offset {header.base_offset} does not match")


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; skip a last batch that is cut off (Fetch may return such a
    batch).
    """
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if position + header.length > len(buffer):
            return
        yield position, header
        position += header.length


def end_offset_of(batches: Buffer) -> int:
    """Return the offset after the last of several whole batches; 0 for none."""
    position, last, size = 0, -1, len(batches)
    while position < size:
        last = position
        position += LENGTH_OVERHEAD + int(STAMP.unpack_from(batches, position)[1])
    return 0 if last < 0 else read_header(batches, last).last_offset + 1


def stamp(base_offset: int, length: int, leader_epoch: int) -> bytes:
    """Return the first 16 bytes of a batch of `length` bytes in all."""
    return STAMP.pack(base_offset, length - LENGTH_OVERHEAD, leader_epoch)


def known_max_timestamp(header: BatchHeader) -> int:
    """Return the largest timestamp of a stored batch, NO_TIMESTAMP where its header cannot be right.

    raftlog until 0.3.0 stored what clients sent. Sarama before 1.45.1 leaves the field at -1, below the base timestamp.
    librdkafka sends 0 for records without a timestamp, where the base is -1.
    """
    base, newest = header.base_timestamp, header.max_timestamp
    if header.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT):
        return newest  # a broker wrote it, and the base is another time
    return newest if newest >= base and (newest > 0 or base == newest == 0) else NO_TIMESTAMP


def stamp_max_timestamp(
    header: BatchHeader,
    batch: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    max_timestamp: int,
    is_append_time: bool = False,
) -> bytes:
    """Return the new 61-byte header of a batch with another max timestamp, and the CRC for it.

    `is_append_time` sets the time type bit: every record then has that timestamp (KIP-32).
    """
    body = HEADER.pack(
        base_offset,
        header.length - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        header.attributes | LOG_APPEND_TIME_BIT if is_append_time else header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        max_timestamp,
        *header[9:],
    )
    crc = crc32c(memoryview(batch)[HEADER_BYTES : header.length], crc32c(body[CRC_START:]))
    return body[: CRC_START - 4] + crc.to_bytes(4, "big") + body[CRC_START:]


def validate_produced(records: Buffer | None, max_message_bytes: int, *, zstd: bool = True) -> BatchHeader:
    """Validate what a client produced to one partition, and return the batch's header.

    It must be exactly one batch with these properties: base offset 0, magic 2, record count = last offset delta + 1, an
    existing codec (`zstd=False`: Produce < 7). It has no control bit, delete horizon or broker-side time type. It has a
    sequence if it names a producer (otherwise the sequence is ignored). It has at most `max_message_bytes`, no more
    records than plain bytes can hold, and a correct CRC-32C. Single records are not walked, see `records.validation`.
    Raise InvalidRecord, CorruptMessage, MessageTooLarge, InvalidTimestamp, UnsupportedCompressionType, and NotOneBatch
    where the log is not needed (Kafka: ProduceRequest, LogValidator).
    """
    size = 0 if records is None else len(records)
    if records is None or size < HEADER_BYTES:
        raise NotOneBatch("a partition's records must be one whole batch")
    fields = HEADER.unpack_from(records, 0)
    length = fields[1] + LENGTH_OVERHEAD
    header: BatchHeader = _new_tuple(BatchHeader, (fields[0], length, *fields[2:]))
    if (
        length != size
        or header.base_offset
        or header.magic != MAGIC
        or size > max_message_bytes
        or header.record_count != header.last_offset_delta + 1
        or header.record_count <= 0
        or header.attributes & _NOT_FROM_PRODUCERS
        or header.attributes & CODEC_MASK >= ZSTD
        or (
            header.record_count * MIN_RECORD_BYTES > size - HEADER_BYTES
            and not header.attributes & CODEC_MASK
        )
        or (header.producer_id >= 0 and header.base_sequence < 0)
        or (header.attributes & TRANSACTIONAL_BIT and header.producer_id < 0)
    ):
        _refuse_produced(header, records, max_message_bytes, zstd=zstd)
    elif crc32c(memoryview(records)[CRC_START:]) != header.crc:
        raise CorruptMessage("CRC of the produced batch does not match")
    return header


def _refuse_produced(header: BatchHeader, records: Buffer, max_message_bytes: int, *, zstd: bool) -> None:
    """Raise the error for the first rule that a batch breaks, in Kafka's order: request, log, batch."""
    _refuse_format(header, records)
    if header.base_offset:
        raise InvalidRecord(f"a produced batch begins at offset 0, not {header.base_offset}")
    if header.length < HEADER_BYTES:
        raise CorruptMessage(f"batch length {header.length} is shorter than a header")
    size = len(records)
    if size > max_message_bytes:
        raise MessageTooLarge(f"the batch has {size} bytes, max.message.bytes is {max_message_bytes}")
    if crc32c(memoryview(records)[CRC_START : header.length]) != header.crc:
        raise CorruptMessage("CRC of the produced batch does not match")
    if header.length < size:
        raise InvalidRecord(f"{size - header.length} bytes follow the batch")
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
        raise InvalidRecord(f"{header.record_count} records, but last offset {header.last_offset_delta}")
    if not header.codec and header.record_count * MIN_RECORD_BYTES > size - HEADER_BYTES:
        raise InvalidRecord(f"{size - HEADER_BYTES} bytes cannot hold {header.record_count} records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sends no sequence number")
    _refuse_attributes(header, zstd=zstd)
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord("a transaction needs a producer id")
    assert header.codec == ZSTD


def _refuse_format(header: BatchHeader, records: Buffer) -> None:
    """Raise NotOneBatch or CorruptMessage unless the records are one whole batch of format 2, ignoring what follows."""
    size = len(records)
    if header.length < LENGTH_OVERHEAD + MIN_LENGTH or not 0 <= header.magic <= MAGIC:
        raise CorruptMessage(f"no record format has magic {header.magic} and length {header.length}")
    if header.length > size:
        raise NotOneBatch("the batch is cut off")
    if header.magic != MAGIC:
        raise NotOneBatch(f"record format {header.magic} is not 2")
    rest = size - header.length
    if rest > LENGTH_OVERHEAD:
        _, length, _ = STAMP.unpack_from(
            bytes(records[header.length : header.length + STAMP_BYTES]).ljust(STAMP_BYTES)
        )
        if MIN_LENGTH <= length <= rest - LENGTH_OVERHEAD:
            raise NotOneBatch("a partition's records must be exactly one batch")


def _refuse_attributes(header: BatchHeader, *, zstd: bool) -> None:
    if header.attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not write control batches")
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestamp("a producer may not set the timestamp type LogAppendTime")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecord("a producer may not set a delete horizon")
    if header.codec > HIGHEST_CODEC or (header.codec == ZSTD and not zstd):
        raise UnsupportedCompressionType(f"compression codec {header.codec} is unknown in this version")
