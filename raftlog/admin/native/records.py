"""Reading a few records of one partition, for people and for checks; consumers of a stream use a Kafka client.

It shows what is there up to the high watermark: also records of transactions that are open or were aborted.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from raftlog.admin.broker_questions import list_offsets, of_leader
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, check, of_kafka
from raftlog.admin.kafka_client import shapes
from raftlog.admin.route import Call, Route, of_topic
from raftlog.base.errors import LeaderNotAvailable
from raftlog.base.types import NO_BROKER
from raftlog.protocol.apis import ApiKey
from raftlog.records.batch import Record, iter_records
from raftlog.records.header import iter_headers
from raftlog.security.acls import Operation

SPECIAL: Final = {"earliest": -2, "latest": -1}
MOST_RECORDS: Final = 1000
MOST_BYTES: Final = 4 << 20
MOST_PLAIN_BYTES: Final = 64 << 20
"""A batch that decompresses to more is not shown (CORRUPT_MESSAGE)."""
LONGEST_WAIT_MS: Final = 10_000


class RecordsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """From where, and how much at most. `max_bytes` counts what is fetched; one batch is always read whole.

    `timestamp` (ms) instead of an offset: from the first record of that time or later, else from the end.
    """

    offset: Annotated[str, msgspec.Meta(pattern="^(earliest|latest|[0-9]{1,18})$")] = "earliest"
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None = None
    max_records: Annotated[int, msgspec.Meta(ge=1, le=MOST_RECORDS)] = 100
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=MOST_BYTES)] = 1 << 20
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_WAIT_MS)] = 0


class Content(msgspec.Struct):
    """Bytes: as STRING where they are UTF-8, else as BINARY in base64."""

    type: str
    data: str


class ReadHeader(msgspec.Struct):
    name: str
    value: Content | None


class ReadRecord(msgspec.Struct):
    """One record. `timestamp` in ms since the epoch."""

    offset: int
    timestamp: int
    key: Content | None
    value: Content | None
    headers: list[ReadHeader]


class Records(msgspec.Struct, kw_only=True):
    """Records in order, also those of transactions that are open or were aborted.

    Go on with `offset=next_offset`; at `high_watermark` there is nothing more yet.
    """

    topic_name: str
    partition_id: int
    records: list[ReadRecord]
    next_offset: int
    high_watermark: int
    log_start_offset: int


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
    return await shown(topic, index, data[index], start=start, most=query.max_records)


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


async def fetch(
    call: Call, topic: str, starts: Mapping[int, int], *, leader: int, max_bytes: int, wait_ms: int = 0
) -> dict[int, Any]:
    """Return what a leader has of some partitions from their offsets on; `max_bytes` of all. Raises ApiError."""
    make = shapes(ApiKey.FETCH)
    wanted = tuple(
        make.FetchPartition(
            partition=index,
            current_leader_epoch=-1,
            fetch_offset=start,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        for index, start in starts.items()
    )
    request = make.FetchRequest(
        replica_id=-1,
        max_wait=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(make.FetchTopic(topic=topic, partitions=wanted),),
        forgotten_topics_data=(),
        rack_id="",
    )
    response = await call.asker.ask(ApiKey.FETCH, request, broker_id=leader)
    check(response.error_code, about=topic)
    return {each.partition_index: each for each in response.responses[0].partitions}


async def shown(topic: str, index: int, data: Any, *, start: int, most: int) -> Records:
    """Return the first records from an offset on of what was fetched. Raises ApiError."""
    check(of_leader(data.error_code), about=f"{topic}-{index} at offset {start}")
    # away from the loop: a small batch may decompress to very much
    found, next_offset = await asyncio.to_thread(_first_records, data.records or b"", start, most)
    return Records(
        topic_name=topic,
        partition_id=index,
        records=[_shown(each) for each in found],
        next_offset=next_offset,
        high_watermark=data.high_watermark,
        log_start_offset=data.log_start_offset,
    )


def _first_records(content: bytes, start: int, most: int) -> tuple[list[Record], int]:
    """Return records from `start` on, and where to go on. Markers of transactions are no records, and passed over."""
    view, next_offset = memoryview(content), start
    found: list[Record] = []
    for position, header in iter_headers(view):
        if not header.is_control:
            batch = view[position : position + header.length]
            records = iter_records(batch, max_bytes=MOST_PLAIN_BYTES)
            found += islice((each for each in records if each.offset >= start), most - len(found))
            if len(found) == most:
                return found, found[-1].offset + 1
        next_offset = max(next_offset, header.end_offset)
    return found, next_offset


def _shown(record: Record) -> ReadRecord:
    return ReadRecord(
        record.offset,
        record.timestamp,
        _content(record.key),
        _content(record.value),
        [ReadHeader(name, _content(value)) for name, value in record.headers],
    )


def _content(data: bytes | None) -> Content | None:
    if data is None:
        return None
    try:
        return Content("STRING", bytes(data).decode())
    except UnicodeDecodeError:
        return Content("BINARY", base64.b64encode(data).decode())


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topics/{topic_name}/partitions/{partition_id:int}/records",
        read_records,
        "Read a few records of a partition, uncommitted and aborted ones too",
        Records,
        query=RecordsQuery,
        rights=of_topic(Operation.READ),
    ),
)
