"""The checks of each record of a produced batch (Kafka: LogValidator), and the choice of batches to walk.

Apache Kafka walks the records of every batch. Here that would cost as much as the rest of a produce request, so only
some are walked (`must_be_walked`). All batches of topics that are compacted or bound timestamps are walked, and all
that get another codec (`recompression`). So are compressed batches that claim more records than bytes, and headers that
no honest client sends. A largest timestamp that would decide about retention also causes a walk. A walk finds the
largest timestamp, and the leader writes it into the header. Other false headers harm only their own readers. They take
at most one offset per byte sent. They make records at most half of retention.ms older, and at most a minute newer.

A walk is made of steps: decompression runs in a thread, and the walk yields to the event loop after every few records.
The plain bytes come in pieces and are bounded, as the number of records is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from raftlog.base.config.setting import LONG_MAX
from raftlog.base.config.topic import TopicConfig
from raftlog.base.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from raftlog.base.types import NO_TIMESTAMP
from raftlog.records.compression import NONE, DecompressedTooLarge, decompress, iter_decompressed
from raftlog.records.header import CODEC_MASK, HEADER_BYTES, MIN_RECORD_BYTES, BatchHeader, Buffer
from raftlog.records.recompression import KEEP_CODEC, Recompression, codec_of
from raftlog.records.varint import read_varint

MAX_DECOMPRESSION_RATIO: Final = 64
"""A walked batch may decompress to at most this many times max.message.bytes."""
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""And to at most this, unless twice max.message.bytes is more."""
MAX_RECORDS: Final = 1_000_000
"""Records of a batch that is walked: about a second of work, in turns. librdkafka's batch.num.messages ends there."""
MAX_RECORD_ERRORS: Final = 1_000
"""Records of a refused batch that are named, each with its reason (KIP-467)."""
RECORDS_PER_STEP: Final = 200
BYTES_PER_STEP: Final = 128 * 1024
"""The records that are validated in one step: well below a millisecond."""
HEADERS_PER_PART: Final = 8
"""A record with more headers counts as several: a header takes two bytes, so one record may have millions."""

BELIEVED_AHEAD_MS: Final = 60_000
"""A header's largest timestamp may be this far in the future without a walk: clients' clocks differ from the broker's.

A false header keeps its records at most this much longer than their arrival time would.
"""
BELIEVED_AGE: Final = 2
"""A header's largest timestamp may be this far in the past without a walk, as a divisor of retention.ms.

Older data is rare and costs a walk. A false header shortens the retention of its own batch's records by at most this
part.
"""

LONGEST_LENGTH_BYTES: Final = 5
"""A record's length field has at most this many bytes."""
_EARLIEST_MS, _LATEST_MS = -(2**63), 2**63 - 1

OffloadCall = Callable[[], Any] | None
OffloadSteps = Generator[OffloadCall, Any, int]
"""Yields a call to run in a thread, with its result sent back, or None to let the event loop run.

Returns the largest timestamp of the records.
"""


class NeedsStepwiseValidation(Exception):
    """The batch must be walked in steps: it is not validated yet, see `validate_records`."""


class RecordRules(NamedTuple):
    """A topic's rules for the records of a batch. `earliest_ms` and `latest_ms` are inclusive."""

    needs_keys: bool
    earliest_ms: int
    latest_ms: int
    max_decompressed_bytes: int
    codec: int = KEEP_CODEC
    """The topic's codec."""

    @classmethod
    def of(cls, config: TopicConfig, now_ms: int) -> RecordRules:
        """Return a topic's rules at a moment: timestamps are checked unless the broker sets them (LogAppendTime)."""
        earliest_ms, latest_ms = _EARLIEST_MS, _LATEST_MS
        if config.message_timestamp_type != "LogAppendTime":
            earliest_ms = max(earliest_ms, now_ms - config.message_timestamp_before_max_ms)
            latest_ms = min(latest_ms, now_ms + config.message_timestamp_after_max_ms)
        needs_keys = "compact" in config.cleanup_policy
        most_bytes = max_decompressed_bytes(config.max_message_bytes)
        return cls(needs_keys, earliest_ms, latest_ms, most_bytes, codec_of(config))


class WalkRules(NamedTuple):
    """The settings of a topic that decide which of its batches are walked."""

    walks_all: bool
    judges_time: bool
    """Whether the largest timestamp counts: under LogAppendTime the leader sets it."""
    past_ms: int
    """How far in the past a header's largest timestamp may be without a walk."""
    ahead_ms: int
    """How far in the future."""
    codec: int = KEEP_CODEC
    """Batches of other codecs are walked and recompressed."""
    schema_fields: tuple[str, ...] = ()
    """The fields of records that are checked by the schema registry, which takes several turns."""

    @classmethod
    def of(cls, config: TopicConfig) -> WalkRules:
        """Return the rules of a topic.

        A header never shows the smallest timestamp. So each record is checked in topics with
        message.timestamp.before.max.ms, or with message.timestamp.after.max.ms below its default.
        """
        before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        judges_time = config.message_timestamp_type != "LogAppendTime"
        bounds_time = before_ms < LONG_MAX or after_ms < TopicConfig.message_timestamp_after_max_ms
        is_compacted = "compact" in config.cleanup_policy
        past_ms = config.retention_ms // BELIEVED_AGE if config.retention_ms >= 0 else LONG_MAX
        fields = schema_fields(config)
        walks_all = is_compacted or bool(fields) or (judges_time and bounds_time)
        return cls(walks_all, judges_time, past_ms, BELIEVED_AHEAD_MS, codec_of(config), fields)


def schema_fields(config: TopicConfig) -> tuple[str, ...]:
    """Return the fields of records, "key" and "value", that need a schema of the registry."""
    fields = (
        ("key", config.confluent_key_schema_validation),
        ("value", config.confluent_value_schema_validation),
    )
    return tuple(field for field, is_checked in fields if is_checked)


def max_decompressed_bytes(max_message_bytes: int) -> int:
    """Return the most bytes that a walked batch may decompress to in a topic with that max.message.bytes."""
    return min(
        MAX_DECOMPRESSION_RATIO * max_message_bytes, max(MAX_DECOMPRESSED_BYTES, 2 * max_message_bytes)
    )


def must_be_walked(header: BatchHeader, rules: WalkRules, now_ms: int) -> bool:
    """Return whether a produced batch's records are walked before it is appended.

    An honest client sends 0 ≤ base ≤ max timestamp, and only compression puts more records into a batch than it has
    bytes.
    """
    newest = header.max_timestamp
    return (
        rules.walks_all
        or header.record_count > header.length - HEADER_BYTES
        or rules.codec not in (KEEP_CODEC, header.attributes & CODEC_MASK)
        or (
            rules.judges_time
            and not (
                0 <= header.base_timestamp <= newest
                and now_ms - rules.past_ms <= newest <= now_ms + rules.ahead_ms
            )
        )
    )


def validate_small_batch(header: BatchHeader, batch: Buffer, laws: RecordRules) -> int:
    """Check each record of a small produced batch by the rules; return the largest timestamp.

    Raise NeedsStepwiseValidation for a larger batch; other errors as in `validate_records`.
    """
    if (
        header.record_count > RECORDS_PER_STEP
        or header.length > BYTES_PER_STEP
        or laws.codec not in (KEEP_CODEC, header.codec)
    ):
        raise NeedsStepwiseValidation
    try:
        plain = decompress(header.codec, _payload(header, batch), max_bytes=BYTES_PER_STEP)
    except CorruptMessage as error:
        raise NeedsStepwiseValidation from error  # malformed, or larger than it looks
    records = _Records(header, laws)
    records.add(plain, is_last=True)
    if records.advance() and records.advance():  # the second finds the end after RECORDS_PER_STEP records
        raise NeedsStepwiseValidation  # very many headers
    return records.finish()


def validate_records(
    header: BatchHeader, batch: Buffer, laws: RecordRules, *, recompression: Recompression | None = None
) -> OffloadSteps:
    """Check each record of a produced batch by the rules, step by step; return the largest timestamp.

    `recompression` gets all plain bytes on the way. Raise InvalidRecord or InvalidTimestamp, with the records at fault
    (`record_errors`). Raise InvalidRecord also for malformed records, a wrong record count, or offsets that do not
    count from 0; MessageTooLarge.
    """
    most_bytes = laws.max_decompressed_bytes
    if header.record_count > MAX_RECORDS:
        raise MessageTooLarge(
            f"a compressed batch may have at most {MAX_RECORDS} records, not {header.record_count}"
        )
    if header.record_count * MIN_RECORD_BYTES > most_bytes:
        raise InvalidRecord(f"{header.record_count} records do not fit into {most_bytes} uncompressed bytes")
    pieces = iter_decompressed(header.codec, _payload(header, batch), max_bytes=most_bytes)
    if recompression is not None:
        pieces = recompression.taking(pieces)
    records = _Records(header, laws)
    is_last = False
    while not is_last:
        if header.codec == NONE and recompression is None:
            piece = next(pieces, None)
        else:
            piece = yield partial(_next_piece, pieces)
        is_last = piece is None
        records.add(piece or b"", is_last=is_last)
        while records.advance():
            yield None
    return records.finish()


def _payload(header: BatchHeader, batch: Buffer) -> memoryview:
    return memoryview(batch)[HEADER_BYTES : header.length]


def _next_piece(pieces: Iterator[bytes]) -> bytes | None:
    """An unreadable batch does not get better by a retry, which CORRUPT_MESSAGE would cause."""
    try:
        return next(pieces, None)
    except DecompressedTooLarge as error:
        raise MessageTooLarge(error.message) from error
    except CorruptMessage as error:
        raise InvalidRecord(error.message) from error


class _Records:
    """Reads the records of a batch from pieces of plain bytes, and validates each."""

    __slots__ = (
        "_end",
        "_error",
        "_errors",
        "_faults",
        "_header",
        "_headers_left",
        "_is_last",
        "_laws",
        "_newest_delta",
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
        """The timestamp deltas that are allowed."""
        self._newest_delta = NO_TIMESTAMP - base_ms
        self._plain = bytearray()
        self._position = self._number = self._faults = 0
        self._headers_left = self._end = 0
        """Of the record that is being read: its headers from the position on, and where it ends."""
        self._is_last = False
        self._error: type[KafkaError] = InvalidRecord
        self._errors: list[tuple[int, str]] = []

    def add(self, plain: bytes, *, is_last: bool) -> None:
        """Add the next plain bytes, after what was added before was read."""
        del self._plain[: self._position]
        self._position = 0
        self._plain += plain
        self._is_last = is_last

    def advance(self) -> bool:
        """Validate RECORDS_PER_STEP records, or what is there; True if there may be more."""
        try:
            for _ in range(RECORDS_PER_STEP):
                if not self._headers_left and not self._begin_record():
                    return False
                if self._headers_left:
                    self._read_headers()
                if not self._headers_left:
                    if self._position != self._end:
                        raise CorruptMessage("has a length that does not match its contents")
                    self._number += 1
        except CorruptMessage as error:
            raise InvalidRecord(f"record {self._number} {error}") from error
        return True

    def _begin_record(self) -> bool:
        """Read a record up to its headers. Return False if it is not there yet."""
        plain, number = self._plain, self._number
        left = len(plain) - self._position
        if number == self._header.record_count and left:
            raise CorruptMessage("is beyond the record count of the batch header")
        if left < (1 if self._is_last else LONGEST_LENGTH_BYTES):
            return False
        length, start = read_varint(plain, self._position)
        self._end = end = start + length
        if end > len(plain) and not self._is_last:
            return False
        if length < 1 or end > len(plain):
            raise CorruptMessage("is cut off")
        time_delta, position = read_varint(plain, start + 1)
        offset_delta, position = read_varint(plain, position)
        if offset_delta != number:
            raise CorruptMessage(f"has offset delta {offset_delta}")
        key_size, position = read_varint(plain, position)
        value_size, position = read_varint(plain, position + max(key_size, 0))
        headers, position = read_varint(plain, position + max(value_size, 0))
        if not 0 <= headers <= (end - position) // 2:
            raise CorruptMessage(f"cannot have {headers} headers")
        self._headers_left, self._position = headers, position
        self._judge(time_delta, has_key=key_size >= 0)
        return True

    def _read_headers(self) -> None:
        plain, position = self._plain, self._position
        count = min(self._headers_left, HEADERS_PER_PART)
        for _ in range(count):
            name_size, position = read_varint(plain, position)
            if name_size < 0:
                raise CorruptMessage("has a header without a name")
            value_size, position = read_varint(plain, position + name_size)
            position += max(value_size, 0)
        self._headers_left -= count
        self._position = position

    def _judge(self, time_delta: int, *, has_key: bool) -> None:
        laws = self._laws
        self._newest_delta = max(self._newest_delta, time_delta)
        if laws.needs_keys and not has_key:
            self._refuse("the record has no key, which a compacted topic needs")
        elif time_delta not in self._times and not self._is_untimed(time_delta):
            self._refuse_timestamp(self._header.base_timestamp + time_delta)

    def _is_untimed(self, time_delta: int) -> bool:
        return self._header.base_timestamp + time_delta == NO_TIMESTAMP

    def _refuse_timestamp(self, timestamp: int) -> None:
        laws = self._laws
        is_old = timestamp < laws.earliest_ms
        limit = "message.timestamp.before.max.ms" if is_old else "message.timestamp.after.max.ms"
        self._error = InvalidTimestamp
        self._refuse(
            f"timestamp {timestamp} is out of range, which is {laws.earliest_ms} to {laws.latest_ms} ({limit})"
        )

    def _refuse(self, reason: str) -> None:
        self._faults += 1
        if len(self._errors) < MAX_RECORD_ERRORS:
            self._errors.append((self._number, reason))

    def finish(self) -> int:
        """Return the largest timestamp, NO_TIMESTAMP at least; raise the batch's error, if it has any."""
        count = self._header.record_count
        if self._number < count:
            raise InvalidRecord(f"the batch has {self._number} records, but its header claims {count}")
        if self._errors:
            number, reason = self._errors[0]
            error = self._error(f"{self._faults} of {count} records are refused; record {number}: {reason}")
            error.record_errors = tuple(self._errors)
            raise error
        return self._header.base_timestamp + self._newest_delta
