"""Reading a few records of one partition, for people and for checks; consumers of a stream use a Kafka client.

It shows records up to the high watermark, including those of open and aborted transactions.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, NamedTuple, cast

import msgspec

from raftlog.admin.broker_questions import SPECIAL, fetch, list_offsets, of_leader
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, check, of_kafka
from raftlog.admin.native.opened_batches import KeptBatch, OpenedBatch, opened
from raftlog.admin.native.record_contents import (
    Choices,
    Contents,
    Decoder,
    ReadRecord,
    as_read,
    size_of,
)
from raftlog.admin.native.record_filter import Filter, are_decoded
from raftlog.admin.route import Call, Route, of_topic
from raftlog.base.errors import CorruptMessage, LeaderNotAvailable
from raftlog.base.turns import TurnCounter
from raftlog.base.types import NO_BROKER
from raftlog.records.batch import BatchHeader, Buffer, Record
from raftlog.records.compression import NONE
from raftlog.records.header import iter_headers
from raftlog.security.acls import Operation

MAX_RECORDS: Final = 1000
MAX_BYTES: Final = 4 << 20
MAX_SHOWN_BYTES: Final = 8 << 20
"""The maximum size of keys, values and headers in one response. The record that exceeds it is the last."""
MAX_RECORD_BYTES: Final = 2 << 20
"""The maximum size of a record. Encoding a larger record as JSON would block the event loop."""
SLICE_BYTES: Final = 256 << 10
"""Bytes of records that are encoded between two turns of the event loop."""
STEP_BYTES: Final = 256
"""In this count, a batch, and a record that is passed over."""
DECODED_STEP_BYTES: Final = 3 << 10
"""In this count, a record that is searched or decoded."""
LONGEST_WAIT_MS: Final = 10_000
LONGEST_READ_S: Final = 2.0
"""Seconds for which records are read, from the first on: then an answer ends early, as other requests wait."""


class RecordsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """From where, and how much at most. `max_bytes` counts what is fetched; one batch is always read whole.

    `timestamp` (ms) instead of an offset: from the first record of that time or later, else from the end. `decode`:
    the decoder of values, and of keys unless `decode_key` names another.
    """

    offset: Annotated[str, msgspec.Meta(pattern=r"^(earliest|latest|[0-9]{1,18})\Z")] = "earliest"
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None = None
    max_records: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = 100
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)] = 1 << 20
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_WAIT_MS)] = 0
    decode: Decoder | None = None
    decode_key: Decoder | None = None


class Unreadable(msgspec.Struct):
    """Offsets that were passed over, `end_offset` not among them, since their producer sent malformed records."""

    offset: int
    end_offset: int
    reason: str


class Records(msgspec.Struct, kw_only=True):
    """Records in order, including those of open and aborted transactions.

    Continue with `offset=next_offset`; at `high_watermark` there are no more yet.
    """

    topic_name: str
    partition_id: int
    records: list[ReadRecord]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    unreadable: list[Unreadable] = []


async def read_records(call: Call) -> Records:
    """Fetch once from the partition's leader."""
    query: RecordsQuery = call.query
    topic, index = call.path["topic_name"], call.path["partition_id"]
    state = call.node.image().partition(topic, index)
    if state is None:
        raise ApiError(
            404, f"partition {index} of topic {topic[:249]} does not exist", code=UNKNOWN_PARTITION
        )
    if state.leader == NO_BROKER:
        raise of_kafka(LeaderNotAvailable(), f"{topic}-{index}")
    start = await _start(call, topic, index)
    data = await fetch(
        call,
        topic,
        {index: start},
        leader=state.leader,
        max_bytes=query.max_bytes,
        wait_ms=query.timeout_ms,
    )
    part = Part(start, query.max_records, contents=contents_of(call, topic))
    records, _ = await shown(call, (topic, index), data[index], part)
    return records


async def _start(call: Call, topic: str, index: int) -> int:
    query: RecordsQuery = call.query
    if query.timestamp is not None:
        offset = await _offset_at(call, topic, index, timestamp=query.timestamp)
        return offset if offset >= 0 else await _offset_at(call, topic, index, timestamp=SPECIAL["latest"])
    special = SPECIAL.get(query.offset)
    if special is None:
        return int(query.offset)
    return await _offset_at(call, topic, index, timestamp=special)


async def _offset_at(call: Call, topic: str, index: int, *, timestamp: int) -> int:
    answers = await list_offsets(call, {(topic, index): timestamp})
    error_code, offset = answers[topic, index]
    check(error_code, about=f"{topic}-{index}")
    return offset


class Part(NamedTuple):
    """The wanted part of a partition: from an offset on, at most so many records, in about so many bytes."""

    start: int
    most: int
    room: int = MAX_SHOWN_BYTES
    contents: Contents | None = None
    """Decodes the records, and cuts large ones."""
    filter: Filter | None = None
    """Says which records are wanted; it needs `contents`."""
    end: int | None = None
    """The offset before which reading ends."""
    longest_s: float = LONGEST_READ_S
    kept: KeptBatch | None = None
    """Where the rest of a large batch is kept for the next part."""


async def shown(call: Call, partition: tuple[str, int], data: Any, part: Part) -> tuple[Records, int]:
    """Return the records that are wanted of what was fetched, and their bytes. Raises ApiError.

    It waits for other requests that read large batches, and takes turns of the loop. Raises ConnectionResetError when
    the client has left meanwhile.
    """
    topic, index = partition
    about = f"{topic}-{index}"
    check(of_leader(data.error_code), about=f"{about} at offset {part.start}")
    reading = _Reading(call, about, part)
    await reading.read(memoryview(data.records or b""))
    records = Records(
        topic_name=topic,
        partition_id=index,
        records=cast(list[ReadRecord], reading.encoded),
        next_offset=reading.next_offset,
        high_watermark=data.high_watermark,
        log_start_offset=data.log_start_offset,
        unreadable=reading.unreadable,
    )
    return records, reading.size


class _Reading:
    """The walk of one request through the batches of one partition.

    `encoded`: each record as the JSON of a ReadRecord. `next_offset`: where to continue, after any transaction markers.
    """

    def __init__(self, call: Call, about: str, part: Part) -> None:
        self._call = call
        self._about = about
        self._part = part
        self._pace = TurnCounter(call, SLICE_BYTES)
        self._ended = False
        self._clock = asyncio.get_running_loop().time
        self._ends_at: float | None = None
        self.encoded: list[msgspec.Raw] = []
        self.unreadable: list[Unreadable] = []
        self.next_offset = part.start
        self.size = 0

    async def read(self, content: memoryview) -> None:
        """Read until there are enough records or bytes."""
        for position, header in iter_headers(content):
            if not header.is_control and header.record_count and header.end_offset > self.next_offset:
                try:
                    await self._read_batch(header, content[position : position + header.length])
                except CorruptMessage as error:
                    self.unreadable.append(Unreadable(self.next_offset, header.end_offset, str(error)))
                    self.next_offset = header.end_offset
                if self._is_full:
                    return
            self.next_offset = max(self.next_offset, header.end_offset)
            await self._pace.count(STEP_BYTES)

    @property
    def _is_full(self) -> bool:
        count = len(self.encoded) + len(self.unreadable)
        if self._ended or count >= self._part.most or self.size >= self._part.room:
            return True
        return self._ends_at is not None and self._clock() >= self._ends_at

    async def _read_batch(self, header: BatchHeader, batch: Buffer) -> None:
        kept = self._part.kept
        rest = None if kept is None else kept.take(header, self.next_offset)
        if rest is not None:
            await self._read_records(rest._replace(opened_at=self._clock()))
        else:
            async with opened(self._call, header, batch, self.next_offset) as rest:
                if header.codec != NONE:  # a thread has decompressed it; the client may have left
                    await self._call.turns.next()
                await self._read_records(rest)
        if kept is not None and self._is_full and rest.plain_bytes:
            kept.keep(header, self.next_offset, rest)

    async def _read_records(self, opened_batch: OpenedBatch) -> None:
        for record in opened_batch.records:
            if record is None:
                await self._pace.count(STEP_BYTES)
                continue
            if self._ends_at is None:
                # as long as it took to find the first: the next request may have to pass over the same records again
                self._ends_at = self._clock() + max(
                    self._part.longest_s, self._clock() - opened_batch.opened_at
                )
            before = self.size
            await self._add(record)
            await self._pace.count(self.size - before if self._part.contents is None else _cost_of(record))
            if self._is_full:
                return

    async def _add(self, record: Record) -> None:
        """Encode a record; if it is too large, end before it. Raise ApiError if it is the first."""
        end, contents, wanted = self._part.end, self._part.contents, self._part.filter
        if end is not None and record.offset >= end:
            self._ended, self.next_offset = True, end
            return
        if contents is not None and wanted is not None:
            missing = wanted.missing(record)
            if missing and not await are_decoded(missing, record, contents):
                self.next_offset = record.offset + 1
                return
        if contents is not None:
            encoded = msgspec.json.encode(await contents.record(record))
            size = len(encoded)
        elif (size := size_of(record)) <= MAX_RECORD_BYTES:
            encoded = msgspec.json.encode(as_read(record))
        elif self.encoded:
            self._ended = True  # the next request, which begins with it, fails
            return
        else:
            raise ApiError(
                413,
                f"the record of {self._about} at offset {record.offset} has {size} bytes, and at most "
                f"{MAX_RECORD_BYTES} are shown: continue at offset {record.offset + 1}, or use a Kafka client",
            )
        self.encoded.append(msgspec.Raw(encoded))
        self.next_offset = record.offset + 1
        self.size += size


def _cost_of(record: Record) -> int:
    """Return the bytes that a record counts for between two turns: a decoder looks at each of its own several times."""
    return DECODED_STEP_BYTES + 4 * size_of(record)


def contents_of(call: Call, topic: str) -> Contents | None:
    """Return what decodes the records of a request; None if its query names no decoder."""
    value, key = call.query.decode, call.query.decode_key
    if value is None and key is None:
        return None
    return Contents(call, topic, Choices(key or value, value or "auto"))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/records",
        read_records,
        "Read a few records of a partition, uncommitted and aborted ones too",
        query=RecordsQuery,
        rights=of_topic(Operation.READ),
    ),
)
