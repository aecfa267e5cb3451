"""The checks of each record of a produced batch (Kafka: LogValidator), and of the batches that are looked into at all.

Apache Kafka walks the records of every batch. Here that would cost as much as the rest of a produce request, so two
kinds are walked: batches for compacted topics, and compressed ones that claim more records than they have bytes. Of
others a header that lies harms its own readers only: it takes no more than an offset for each byte that was sent.

A walk is made of steps: decompressing goes away from the loop, and others have their turn after every few records. The
plain bytes come in pieces and are bounded, as the number of records is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from raftlog.base.config_topic import TopicConfig
from raftlog.base.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from raftlog.base.types import NO_TIMESTAMP
from raftlog.records.compression import NONE, DecompressedTooLarge, decompress, iter_decompressed
from raftlog.records.header import HEADER_BYTES, MIN_RECORD_BYTES, BatchHeader, Buffer
from raftlog.records.varint import read_varint

MAX_DECOMPRESSION_RATIO: Final = 64
"""A batch that is walked decompresses to so many times max.message.bytes at most."""
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""And to no more than this, unless twice max.message.bytes is more."""
MAX_RECORDS: Final = 1_000_000
"""Records of a batch that is walked: about a second of work, in turns. librdkafka's batch.num.messages ends there."""
MAX_RECORD_ERRORS: Final = 1_000
"""Records of a refused batch that are named, each with its reason (KIP-467)."""
RECORDS_PER_STEP: Final = 200
BYTES_PER_STEP: Final = 128 * 1024
"""The records that are looked at in one go: well below a millisecond."""

LONGEST_LENGTH_BYTES: Final = 5
"""A record's length field has no more."""
_EARLIEST_MS, _LATEST_MS = -(2**63), 2**63 - 1

OffloadCall = Callable[[], Any] | None
OffloadSteps = Generator[OffloadCall, Any, None]
"""Yields a call to make away from the loop, whose result is sent back, or None: a place to let others have a turn."""


class NeedsStepwiseValidation(Exception):
    """The batch is one to walk in turns: nothing is decided, see `validate_records`."""


class RecordRules(NamedTuple):
    """A topic's rules for the records of a batch. `earliest_ms` and `latest_ms` are inclusive."""

    needs_keys: bool
    earliest_ms: int
    latest_ms: int
    max_decompressed_bytes: int

    @classmethod
    def of(cls, config: TopicConfig, now_ms: int) -> RecordRules:
        """Return a topic's laws at a moment: timestamps are judged unless the broker sets them (LogAppendTime)."""
        earliest_ms, latest_ms = _EARLIEST_MS, _LATEST_MS
        if config.message_timestamp_type != "LogAppendTime":
            earliest_ms = max(earliest_ms, now_ms - config.message_timestamp_before_max_ms)
            latest_ms = min(latest_ms, now_ms + config.message_timestamp_after_max_ms)
        needs_keys = "compact" in config.cleanup_policy
        return cls(needs_keys, earliest_ms, latest_ms, max_decompressed_bytes(config.max_message_bytes))


def max_decompressed_bytes(max_message_bytes: int) -> int:
    """Return what a batch of a topic with that max.message.bytes may decompress to where it is walked."""
    return min(
        MAX_DECOMPRESSION_RATIO * max_message_bytes, max(MAX_DECOMPRESSED_BYTES, 2 * max_message_bytes)
    )


def claims_more_records_than_bytes(header: BatchHeader) -> bool:
    """Whether a batch claims more records than it has bytes, which only compression can explain."""
    return header.record_count > header.length - HEADER_BYTES


def validate_small_batch(header: BatchHeader, batch: Buffer, laws: RecordRules) -> None:
    """Hold each record of a produced batch to the laws, if that takes but a moment. NeedsStepwiseValidation; errors
    as `validate_records`.
    """
    if header.record_count > RECORDS_PER_STEP or header.length > BYTES_PER_STEP:
        raise NeedsStepwiseValidation
    try:
        plain = decompress(header.codec, _payload(header, batch), max_bytes=BYTES_PER_STEP)
    except CorruptMessage as error:
        raise NeedsStepwiseValidation from error  # malformed, or larger than it looks
    records = _Records(header, laws)
    records.add(plain, is_last=True)
    records.advance()
    records.finish()


def validate_records(header: BatchHeader, batch: Buffer, laws: RecordRules) -> OffloadSteps:
    """Hold each record of a produced batch to the laws, step by step.

    InvalidRecord or InvalidTimestamp, with the records that are at fault (`record_errors`); InvalidRecord where the
    records are malformed, are not as many as the header says, or do not count from 0; MessageTooLarge.
    """
    most_bytes = laws.max_decompressed_bytes
    if header.record_count > MAX_RECORDS:
        raise MessageTooLarge(f"a compressed batch has {MAX_RECORDS} records at most")
    if header.record_count * MIN_RECORD_BYTES > most_bytes:
        raise InvalidRecord(f"{header.record_count} records, which {most_bytes} plain bytes cannot hold")
    pieces = iter_decompressed(header.codec, _payload(header, batch), max_bytes=most_bytes)
    records = _Records(header, laws)
    is_last = False
    while not is_last:
        if header.codec == NONE:
            piece = next(pieces, None)
        else:
            piece = yield partial(_next_piece, pieces)
        is_last = piece is None
        records.add(piece or b"", is_last=is_last)
        while records.advance():
            yield None
    records.finish()


def _payload(header: BatchHeader, batch: Buffer) -> memoryview:
    return memoryview(batch)[HEADER_BYTES : header.length]


def _next_piece(pieces: Iterator[bytes]) -> bytes | None:
    """A batch that cannot be read will not be better when it is sent again, as CORRUPT_MESSAGE would have it."""
    try:
        return next(pieces, None)
    except DecompressedTooLarge as error:
        raise MessageTooLarge(error.message) from error
    except CorruptMessage as error:
        raise InvalidRecord(error.message) from error


class _Records:
    """Reads the records of a batch from plain bytes that come piece by piece, and judges each."""

    __slots__ = (
        "_error",
        "_errors",
        "_faults",
        "_header",
        "_is_last",
        "_laws",
        "_number",
        "_plain",
        "_position",
        "_times",
    )

    def __init__(self, header: BatchHeader, laws: RecordRules) -> None:
        self._header = header
        self._laws = laws
        base_ms = header.base_timestamp
        self._times = range(laws.earliest_ms - base_ms, laws.latest_ms - base_ms + 1)
        """The timestamp deltas that are lawful."""
        self._plain = bytearray()
        self._position = self._number = self._faults = 0
        self._is_last = False
        self._error: type[KafkaError] = InvalidRecord
        self._errors: list[tuple[int, str]] = []

    def add(self, plain: bytes, *, is_last: bool) -> None:
        """Take in the next plain bytes."""
        del self._plain[: self._position]
        self._position = 0
        self._plain += plain
        self._is_last = is_last

    def advance(self) -> bool:
        """Judge RECORDS_AT_ONCE records, or as many as are there; True if there may be more."""
        plain, count = self._plain, self._header.record_count
        least = 1 if self._is_last else LONGEST_LENGTH_BYTES
        try:
            for _ in range(RECORDS_PER_STEP):
                left = len(plain) - self._position
                if self._number == count and left:
                    raise CorruptMessage("is one more than the batch claims")
                if left < least:
                    return False
                length, start = read_varint(plain, self._position)
                if start + length > len(plain) and not self._is_last:
                    return False
                if length < 1 or start + length > len(plain):
                    raise CorruptMessage("is cut off")
                self._judge(start, start + length)
                self._position = start + length
                self._number += 1
        except CorruptMessage as error:
            raise InvalidRecord(f"record {self._number} {error}") from error
        return True

    def _judge(self, start: int, end: int) -> None:
        """Read one record; CorruptMessage if it is malformed."""
        plain, laws, number = self._plain, self._laws, self._number
        time_delta, position = read_varint(plain, start + 1)
        offset_delta, position = read_varint(plain, position)
        if offset_delta != number:
            raise CorruptMessage(f"says that it is number {offset_delta}")
        key_size, position = read_varint(plain, position)
        value_size, position = read_varint(plain, position + max(key_size, 0))
        headers, position = read_varint(plain, position + max(value_size, 0))
        if not 0 <= headers <= (end - position) // 2:
            raise CorruptMessage(f"cannot have {headers} headers")
        for _ in range(headers):
            name_size, position = read_varint(plain, position)
            if name_size < 0:
                raise CorruptMessage("has a header without a name")
            value_size, position = read_varint(plain, position + name_size)
            position += max(value_size, 0)
        if position != end:
            raise CorruptMessage("has a length that does not fit its contents")
        if laws.needs_keys and key_size < 0:
            self._refuse("the record has no key, which a compacted topic needs")
        elif time_delta not in self._times and not self._is_untimed(time_delta):
            timestamp = self._header.base_timestamp + time_delta
            reach = f"{laws.earliest_ms} to {laws.latest_ms}"
            self._error = InvalidTimestamp
            self._refuse(f"timestamp {timestamp} is out of range, which is {reach}")

    def _is_untimed(self, time_delta: int) -> bool:
        return self._header.base_timestamp + time_delta == NO_TIMESTAMP

    def _refuse(self, reason: str) -> None:
        self._faults += 1
        if len(self._errors) < MAX_RECORD_ERRORS:
            self._errors.append((self._number, reason))

    def finish(self) -> None:
        """Raise what is wrong with the batch, if anything is."""
        count = self._header.record_count
        if self._number < count:
            raise InvalidRecord(f"the batch has {self._number} records and claims {count}")
        if self._errors:
            number, reason = self._errors[0]
            error = self._error(f"{self._faults} of {count} records are refused; record {number}: {reason}")
            error.record_errors = tuple(self._errors)
            raise error
