"""One record of a topic: its key or value as a file, and the same record written again, to this or another topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from raftlog.admin.auth import check_page
from raftlog.admin.broker_questions import fetch
from raftlog.admin.errors import INVALID, UNKNOWN_PARTITION, ApiError, check, of_kafka
from raftlog.admin.kafka_rest.records import Report, write_copy
from raftlog.admin.native.opened_batches import opened
from raftlog.admin.response_pieces import send
from raftlog.admin.route import TOPIC, Call, Route, of_topic
from raftlog.base.errors import CorruptMessage, LeaderNotAvailable
from raftlog.base.memory import Account
from raftlog.base.turns import in_slices
from raftlog.base.types import NO_BROKER
from raftlog.records.batch import Record
from raftlog.records.header import iter_headers
from raftlog.security.acls import Operation

PIECE_BYTES: Final = 256 << 10
RECORDS_AT_ONCE: Final = 500
"""Records of a batch that are passed over between two turns of the loop."""
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class WhichContent(msgspec.Struct, forbid_unknown_fields=True):
    """The record, and which of its contents."""

    offset: Offset
    part: Literal["key", "value"] = "value"


class Resent(msgspec.Struct, forbid_unknown_fields=True):
    """The record at `offset`, and where it is written. Without `partition_id` the hash of its key decides."""

    offset: Offset
    topic_name: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    partition_id: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None


async def _record(call: Call, offset: int) -> Record:
    """Return a record of the partition of the path. Raises ApiError."""
    topic, index = call.path["topic_name"], call.path["partition_id"]
    where = f"{topic[:249]}-{index}"
    state = call.node.image().partition(topic, index)
    if state is None:
        raise ApiError(404, f"partition {where} does not exist", code=UNKNOWN_PARTITION)
    if state.leader == NO_BROKER:
        raise of_kafka(LeaderNotAvailable(), where)
    data = (await fetch(call, topic, {index: offset}, leader=state.leader, max_bytes=1))[index]
    check(data.error_code, about=f"{where} at offset {offset}")
    content = memoryview(data.records or b"")
    for position, header in iter_headers(content):
        if header.is_control or header.end_offset <= offset:
            continue
        try:
            async with opened(call, header, content[position : position + header.length], offset) as batch:
                async for each in in_slices(call, batch.records, RECORDS_AT_ONCE):
                    if each is not None and each.offset == offset:
                        return each
                    if each is not None:
                        break
        except CorruptMessage as error:
            raise ApiError(422, f"the record of {where} at offset {offset}: {error}") from None
        break
    raise ApiError(404, f"{where} has no record at offset {offset}")


async def get_content(call: Call) -> web.StreamResponse:
    """Send the bytes of a record's key or value as a file."""
    check_page(call.raw.headers)
    query: WhichContent = call.query
    assert call.node.record_scans is not None, "the server that serves this has set it"
    answer = web.StreamResponse(headers=_headers(call))

    def give_way(_error: ApiError) -> None:
        if answer.prepared and call.raw.transport is not None:
            call.raw.transport.abort()  # a response that just ended would look complete

    with call.node.record_scans.opened(call.raw, call.caller.asked_by, give_way) as stream:
        content = await _content(
            call, query
        )  # and no more of the record, which the client may take long to read
        if stream.ended is not None:
            raise stream.ended
        with _counted(call.node.contents, len(content)):
            answer.content_length = len(content)
            await answer.prepare(call.raw)
            await _send_all(call, answer, content)
            await answer.write_eof()
    return answer


def _headers(call: Call) -> dict[str, str]:
    query: WhichContent = call.query
    name = f"{call.path['topic_name']}-{call.path['partition_id']}-{query.offset}.{query.part}"
    return {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Request-Id": call.request_id,
    }


async def _content(call: Call, query: WhichContent) -> bytes:
    """Return the wanted key or value. Raises ApiError."""
    record = await _record(call, query.offset)
    content = record.key if query.part == "key" else record.value
    if content is None:
        raise ApiError(404, f"the {query.part} of the record at offset {query.offset} is null")
    return content


@contextmanager
def _counted(contents: Account, size: int) -> Iterator[None]:
    """Count the bytes of a content while it is sent. Raises ApiError if the account is full."""
    _check_room(contents)
    contents.acquire(size)
    try:
        yield
    finally:
        contents.release(size)


def _check_room(contents: Account) -> None:
    if contents.is_full:
        raise ApiError(
            503, f"downloads and searches hold the {contents.limit} bytes that they may: retry later"
        )


async def _send_all(call: Call, answer: web.StreamResponse, content: bytes) -> None:
    """Send a content. Raises ConnectionError if the client does not read it in time."""
    clock = asyncio.get_running_loop().time
    ends_at = clock() + call.limits.stream_s
    for start in range(0, len(content), PIECE_BYTES):
        within_s = min(call.limits.chunk_s, ends_at - clock())
        await send(answer, content[start : start + PIECE_BYTES], call.raw, within_s=within_s)


async def resend_record(call: Call) -> Report:
    """Write a record again, with its key, value and headers, and the time of now."""
    wanted: Resent = call.body
    call.demand(Operation.WRITE, TOPIC, wanted.topic_name)
    topic = call.node.image().topics.get(wanted.topic_name)
    if topic is None:
        raise ApiError(404, f"topic {wanted.topic_name} does not exist", code=UNKNOWN_PARTITION)
    if wanted.partition_id is not None and wanted.partition_id >= len(topic.partitions):
        raise ApiError(400, f"topic {topic.name} has no partition {wanted.partition_id}", code=INVALID)
    record = await _record(call, wanted.offset)
    call.audit.update(offset=wanted.offset, to_topic=topic.name)
    return await write_copy(call, topic, record, wanted.partition_id)


AT: Final = "/v1/topics/{topic_name}/partitions/{partition_id:int}"
ROUTES: Final = (
    Route(
        "GET",
        f"{AT}/content",
        get_content,
        "Download the key or the value of a record",
        answer=msgspec.Raw,
        query=WhichContent,
        media_type="application/octet-stream",
        rights=of_topic(Operation.READ),
    ),
    Route(
        "POST",
        f"{AT}/resend",
        resend_record,
        "Write a record again, to this or another topic",
        body=Resent,
        rights=of_topic(Operation.READ),
    ),
)
