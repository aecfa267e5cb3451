"""One record of a topic: its key or value as a file, and the same record written again, to this or another topic."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from raftlog.admin.errors import INVALID, UNKNOWN_PARTITION, ApiError, check, of_kafka
from raftlog.admin.kafka_rest.records import Report, write_copy
from raftlog.admin.native.records import MAX_PLAIN_BYTES, fetch
from raftlog.admin.response_pieces import send
from raftlog.admin.route import TOPIC, Call, Route, of_topic
from raftlog.base.errors import CorruptMessage, LeaderNotAvailable
from raftlog.base.turns import in_slices
from raftlog.base.types import NO_BROKER
from raftlog.records.batch import Record, iter_records_from, open_batch, skip_headers
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
    async with call.node.reading_records:  # a batch may decompress to very much
        for position, header in iter_headers(content):
            if header.is_control or header.end_offset <= offset:
                continue
            batch = content[position : position + header.length]
            try:
                _, plain = await call.node.offload(lambda: open_batch(batch, max_bytes=MAX_PLAIN_BYTES))  # noqa: B023 - awaited here
                records = iter_records_from(header, plain, offset, read_headers=skip_headers)
                async for each in in_slices(call, records, RECORDS_AT_ONCE):
                    if each is not None:
                        if each.offset == offset:
                            return each
                        break
            except CorruptMessage as error:
                raise ApiError(422, f"the record of {where} at offset {offset}: {error}") from None
            break
    raise ApiError(404, f"{where} has no record at offset {offset}")


async def get_content(call: Call) -> web.StreamResponse:
    """Send the bytes of a record's key or value as a file."""
    query: WhichContent = call.query
    assert call.node.record_scans is not None, "the server that serves this has set it"
    with call.node.record_scans.opened(call.raw, call.caller.asked_by):
        record = await _record(call, query.offset)
        content = record.key if query.part == "key" else record.value
        if content is None:
            raise ApiError(404, f"the {query.part} of the record at offset {query.offset} is null")
        name = f"{call.path['topic_name']}-{call.path['partition_id']}-{query.offset}.{query.part}"
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Request-Id": call.request_id,
        }
        answer = web.StreamResponse(headers=headers)
        await answer.prepare(call.raw)
        for start in range(0, len(content), PIECE_BYTES):
            piece = bytes(content[start : start + PIECE_BYTES])
            await send(answer, piece, call.raw, within_s=call.limits.chunk_s)
        await answer.write_eof()
    return answer


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
