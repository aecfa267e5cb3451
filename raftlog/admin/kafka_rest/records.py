"""Producing records over HTTP: a stream of JSON in, a delivery report for each out, in the same order.

A record is reported as delivered once it is on disk on every in-sync replica (acks=all). A record that failed while it
was under way is not sent again, since it may have been written. JSON is stored as it was written, but for white space
between its tokens. No number is parsed on the way, so none loses a digit; a consumer parses 1e400 as it likes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from raftlog.admin.broker_questions import REQUEST_TIMEOUT_MS
from raftlog.admin.errors import INVALID, UNKNOWN_PARTITION, ApiError, of_kafka
from raftlog.admin.json_stream import rounds
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.shared import image_of, topic_of
from raftlog.admin.response_pieces import send
from raftlog.admin.route import TOPIC, Call, Route, of_topic
from raftlog.base.config import topic_config
from raftlog.base.errors import (
    LeaderNotAvailable,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.base.types import NO_BROKER
from raftlog.metadata.image import TopicState
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.client_versions import builders_for
from raftlog.records.batch import NAME_ERRORS, Record, build_batch, new_record
from raftlog.records.partitioner import partition_of_key
from raftlog.security.acls import Operation

ALL: Final = -1
EPOCH: Final = datetime.fromtimestamp(0, UTC)
WRITTEN: Final = 200
"""The `error_code` of a record that is on disk."""
MAX_ENTRIES: Final = 1000
UNWRITTEN: Final = (LeaderNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition)
"""A leader that moved, or does not know yet that it leads."""
TOO_LARGE: Final = (MessageTooLarge, RecordListTooLarge)
"""A batch, while each of its records may be small enough."""
ATTEMPTS: Final = 10
RETRY_S: Final = 0.2
_turns = itertools.count()

Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Datum(msgspec.Struct, forbid_unknown_fields=True):
    """A key or a value: BINARY is base64, STRING is UTF-8 text, JSON is anything, stored as written but for spaces."""

    data: msgspec.Raw
    type: Literal["BINARY", "JSON", "STRING"] = "JSON"


class HeaderDatum(msgspec.Struct, forbid_unknown_fields=True):
    """A header; its value is base64, or null. `name_data`: instead of the name, its bytes in base64."""

    name: Annotated[str, msgspec.Meta(max_length=10_000)]
    value: str | None = None
    name_data: Annotated[str, msgspec.Meta(max_length=14_000)] = ""


class NewRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record to be written. Without `partition_id` the key's hash decides, without a key anyone's turn.

    `timestamp`: ISO 8601 with an offset from UTC, as in Confluent's REST Proxy, or milliseconds since 1970.
    """

    partition_id: Int32 | None = None
    key: Datum | None = None
    value: Datum | None = None
    headers: Annotated[list[HeaderDatum], msgspec.Meta(max_length=1000)] = []
    timestamp: (
        Annotated[datetime, msgspec.Meta(tz=True)] | Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None
    ) = None


class Size(msgspec.Struct):
    """The format of a key or a value, and its size in bytes."""

    type: str
    size: int


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The outcome for one record. `error_code` 200: it is written, at `offset`."""

    error_code: int
    message: str = ""
    cluster_id: str = ""
    topic_name: str = ""
    partition_id: int = -1
    offset: int = -1
    key: Size | None = None
    value: Size | None = None


class Entry(NewRecord, kw_only=True):
    """A record of a batch, with a name by which its report is found."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


class Entries(msgspec.Struct, forbid_unknown_fields=True):
    """Records written together; each succeeds or fails by itself."""

    entries: Annotated[list[Entry], msgspec.Meta(min_length=1, max_length=MAX_ENTRIES)]


class Success(msgspec.Struct, kw_only=True):
    id: str
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int


class Failure(msgspec.Struct):
    id: str
    error_code: int
    message: str


class BatchReport(msgspec.Struct):
    """The outcome for each entry."""

    successes: list[Success]
    failures: list[Failure]


async def produce_batch(call: Call) -> BatchReport:
    """Produce the entries; 207 for any outcome of them."""
    image = image_of(call)
    topic = topic_of(call, image)
    entries: list[Entry] = call.body.entries
    if len({each.id for each in entries}) < len(entries):
        raise ApiError(400, "two entries have the same id", code=INVALID)
    report = BatchReport([], [])
    for entry, each in zip(entries, await _write(call, topic, entries), strict=True):
        if each.error_code == WRITTEN:
            report.successes.append(
                Success(
                    id=entry.id,
                    cluster_id=image.cluster_id,
                    topic_name=topic.name,
                    partition_id=each.partition_id,
                    offset=each.offset,
                )
            )
        else:
            report.failures.append(Failure(entry.id, each.error_code, each.message))
    _count(call, written=len(report.successes), of=len(entries))
    return report


async def produce_records(call: Call) -> web.StreamResponse:
    """Read records as they come. The answer begins with the first report; an Error if the first is no record."""
    topic = topic_of(call, image_of(call))
    if call.raw.content_type != "application/json":
        raise ApiError(415, f"the body must be application/json, but is {call.raw.content_type}")
    streams = call.node.record_streams
    assert streams is not None, "the server that serves this has set it"
    with streams.opened(call.raw, call.caller.asked_by, call.raw.content.set_exception):
        return await _produce_arriving(call, topic)


async def _produce_arriving(call: Call, topic: TopicState) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json", "X-Request-Id": call.request_id})
    call.audit.update(records=0, records_failed=0)
    content = call.raw.content
    async with aclosing(rounds(content, NewRecord, call.limits, call.node.bodies, of=call)) as arriving:
        async for arrived in arriving:
            ended = _why_it_ends(call, topic)
            given = arrived if ended is None else [ended]
            if not answer.prepared and isinstance(given[0], ApiError):
                raise given[0]  # no byte is sent yet, so the status can show it
            reports = await _reports(call, topic, given)
            _count(call, written=sum(each.error_code == WRITTEN for each in reports), of=len(reports))
            if not answer.prepared:
                await answer.prepare(call.raw)
            lines = b"".join(msgspec.json.encode(each) + b"\n" for each in reports)
            await send(answer, lines, call.raw, within_s=call.limits.chunk_s)
            if ended is not None:
                break
    if not answer.prepared:
        raise ApiError(400, "the body must contain a record")
    await answer.write_eof()
    return answer


def _why_it_ends(call: Call, topic: TopicState) -> ApiError | None:
    """Return why a caller must stop: its token has expired, or it lost its authorization."""
    try:
        call.check_login()
        call.demand(Operation.WRITE, TOPIC, topic.name)
    except ApiError as error:
        return error
    return None


def _count(call: Call, *, written: int, of: int) -> None:
    """Record in the audit log how many records were written so far, and how many not."""
    audit = call.audit
    audit["records"] = audit.get("records", 0) + written
    audit["records_failed"] = audit.get("records_failed", 0) + of - written
    call.outcome = "done" if not audit["records_failed"] else "partly" if audit["records"] else "failed"


async def _reports(call: Call, topic: TopicState, given: Sequence[NewRecord | ApiError]) -> list[Report]:
    """Write what could be read; keep the order."""
    records = [each for each in given if isinstance(each, NewRecord)]
    reports = iter(await _write(call, topic, records))
    return [
        next(reports)
        if isinstance(each, NewRecord)
        else Report(error_code=each.body.error_code, message=str(each))
        for each in given
    ]


# --- writing


async def _write(call: Call, topic: TopicState, records: Sequence[NewRecord]) -> list[Report]:
    """Write records to their partitions, a request for each, and report in the same order."""
    reports: list[Report | None] = [None] * len(records)
    batches: defaultdict[int, list[tuple[int, Record]]] = defaultdict(list)
    needs_keys = "compact" in _cleanup_policy(call, topic)
    for number, each in enumerate(records):
        try:
            record = _record(each)
            if needs_keys and record.key is None:
                raise _needs_key(topic)
            batches[_partition(topic, each, record)].append((number, record))
        except ApiError as error:
            reports[number] = Report(error_code=error.body.error_code, message=str(error))

    async def write(partition: int, batch: list[tuple[int, Record]]) -> None:
        left = [batch]
        while left:
            batch = left.pop()
            try:
                base = await _produce(call, topic.name, partition, [record for _, record in batch])
            except TOO_LARGE:
                half = len(batch) // 2
                left += (batch[half:], batch[:half])
                continue
            except (ApiError, BrokerUnreachable) as error:
                code = error.body.error_code if isinstance(error, ApiError) else 503
                for number, _ in batch:
                    reports[number] = Report(error_code=code, message=str(error), partition_id=partition)
                continue
            for index, (number, record) in enumerate(batch):
                reports[number] = Report(
                    error_code=WRITTEN,
                    cluster_id=call.node.image().cluster_id,
                    topic_name=topic.name,
                    partition_id=partition,
                    offset=base + index,
                    key=_size(records[number].key, record.key),
                    value=_size(records[number].value, record.value),
                )

    await asyncio.gather(*(write(partition, batch) for partition, batch in batches.items()))
    return [each for each in reports if each is not None]


async def write_copy(call: Call, topic: TopicState, record: Record, partition: int | None) -> Report:
    """Write a record of another offset again, with the time of now. Raises ApiError, BrokerUnreachable."""
    if record.key is None and "compact" in _cleanup_policy(call, topic):
        raise _needs_key(topic)
    if partition is None:
        partition = _partition_of(record, len(topic.partitions))
    offset = await _produce(call, topic.name, partition, [record._replace(timestamp=-1)])
    return Report(
        error_code=WRITTEN,
        cluster_id=call.node.image().cluster_id,
        topic_name=topic.name,
        partition_id=partition,
        offset=offset,
    )


def _needs_key(topic: TopicState) -> ApiError:
    return ApiError(422, f"the record has no key, which the compacted topic {topic.name} needs")


def _cleanup_policy(call: Call, topic: TopicState) -> Collection[str]:
    """This node's knowledge of it: a keyless record is then its own fault, not that of all it would be sent with."""
    image = call.node.image()
    configs = image.config("topic", topic.name)
    return topic_config(call.node.config, image.config("broker", ""), configs).cleanup_policy


def _record(given: NewRecord) -> Record:
    return new_record(
        _bytes(given.key, "key"),
        _bytes(given.value, "value"),
        timestamp=_timestamp_ms(given.timestamp),
        headers=tuple((_name(each), _unbase64(each.value, f"header {each.name}")) for each in given.headers),
    )


def _name(given: HeaderDatum) -> str:
    data = _unbase64(given.name_data or None, f"name_data of header {given.name}")
    return given.name if data is None else data.decode(errors=NAME_ERRORS)


def _timestamp_ms(given: datetime | int | None) -> int:
    """Return milliseconds since 1970, or -1 for the time of writing."""
    if given is None:
        return -1
    if isinstance(given, int):
        return given
    if given < EPOCH:
        raise ApiError(422, f"timestamp: {given.isoformat()} is before 1970")
    return (given - EPOCH) // timedelta(milliseconds=1)


def _bytes(datum: Datum | None, name: str) -> bytes | None:
    if datum is None or bytes(datum.data) == b"null":
        return None
    if datum.type == "JSON":
        return msgspec.json.format(bytes(datum.data), indent=-1)
    try:
        text = msgspec.json.decode(datum.data, type=str)
    except msgspec.ValidationError:
        raise ApiError(422, f"{name}: the data of {datum.type} must be a string") from None
    return text.encode() if datum.type == "STRING" else _unbase64(text, name)


def _unbase64(text: str | None, name: str) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(422, f"{name}: the data of BINARY must be base64") from None


def _partition(topic: TopicState, given: NewRecord, record: Record) -> int:
    count = len(topic.partitions)
    if given.partition_id is not None:
        if given.partition_id >= count:
            raise ApiError(
                404, f"topic {topic.name} has no partition {given.partition_id}", code=UNKNOWN_PARTITION
            )
        return given.partition_id
    return _partition_of(record, count)


def _partition_of(record: Record, count: int) -> int:
    return next(_turns) % count if record.key is None else partition_of_key(record.key, count)


async def _produce(call: Call, topic: str, partition: int, records: Sequence[Record]) -> int:
    """Return the offset of the first record. Raises ApiError, BrokerUnreachable, or TOO_LARGE of several records.

    Sent again only where a broker's answer says that it has not written them.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _produce_once(call, topic, partition, records)
        except UNWRITTEN as error:
            if attempt == ATTEMPTS or call.node.image().partition(topic, partition) is None:
                raise of_kafka(error, f"{topic}-{partition}") from None
        await asyncio.sleep(RETRY_S)
    raise AssertionError("the last attempt raises")


async def _produce_once(call: Call, topic: str, partition: int, records: Sequence[Record]) -> int:
    state = call.node.image().partition(topic, partition)
    where = f"{topic}-{partition}"
    if state is None or state.leader == NO_BROKER:
        raise LeaderNotAvailable
    make = builders_for(ApiKey.PRODUCE)
    now = int(call.node.wall_clock_ms())
    stamped = [each._replace(timestamp=now) if each.timestamp < 0 else each for each in records]
    data = make.PartitionProduceData(index=partition, records=build_batch(stamped))
    request = make.ProduceRequest(
        transactional_id=None,
        acks=ALL,
        timeout=REQUEST_TIMEOUT_MS,
        topic_data=(make.TopicProduceData(name=topic, partition_data=(data,)),),
    )
    response = await call.asker.ask(ApiKey.PRODUCE, request, broker_id=state.leader)
    (answer,) = response.responses[0].partition_responses
    if answer.error_code:
        error = from_code(answer.error_code, answer.error_message)
        goes_on = isinstance(error, UNWRITTEN) or (isinstance(error, TOO_LARGE) and len(records) > 1)
        raise error if goes_on else of_kafka(error, where)
    return int(answer.base_offset)


def _size(datum: Datum | None, content: bytes | None) -> Size | None:
    return None if datum is None or content is None else Size(datum.type, len(content))


BASE: Final = "/v3/clusters/{cluster_id}/topics/{topic_name}/records"
ROUTES: Final = (
    Route(
        "POST",
        BASE,
        produce_records,
        "Write records, as many as follow each other",
        answer=Report,
        body=NewRecord,
        streams=True,
        rights=of_topic(Operation.WRITE),
    ),
    Route(
        "POST",
        f"{BASE}:batch",
        produce_batch,
        "Write several records",
        body=Entries,
        status=207,
        rights=of_topic(Operation.WRITE),
    ),
)
