"""GET /v1/topics/{topic_name}/records/scan: a range of a topic as a stream of JSON Lines, searched or as it is.

Partitions are read one after the other, up to where they ended when the request came. The stream has records, says how
far it is, what it passed over and why, and last why it ends. A broken connection ends it without that last line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from aiohttp import web

from raftlog.admin.auth import check_page
from raftlog.admin.broker_questions import SPECIAL, fetch, list_offsets
from raftlog.admin.errors import UNKNOWN_PARTITION, ApiError, Error, check, of_kafka
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.shared import topic_of
from raftlog.admin.native.opened_batches import KeptBatch
from raftlog.admin.native.record_contents import Choices, Contents, Decoder, ReadRecord
from raftlog.admin.native.record_filter import Filter, Text, Texts
from raftlog.admin.native.records import MAX_RECORD_BYTES, Part, Records, Unreadable, shown
from raftlog.admin.response_pieces import send
from raftlog.admin.route import TOPIC, Call, Route, of_topic
from raftlog.admin.streams import Stream
from raftlog.base.errors import KafkaError, LeaderNotAvailable, OffsetOutOfRange, from_code
from raftlog.base.turns import batches
from raftlog.base.types import NO_BROKER
from raftlog.security.acls import Operation

MAX_RECORDS: Final = 1_000_000
FETCH_BYTES: Final = 1 << 20
OUT_BYTES: Final = 2 << 20
"""Bytes of records that are encoded before they are sent; the client's reading holds up no other request."""
CHUNK_S: Final = 0.5
"""Seconds for which a scan reads before it sends what it found, lets others read, and looks whether it has to end."""
PARTITIONS_AT_ONCE: Final = 500
"""Partitions whose offsets are asked for at once."""
PATIENCE_S: Final = 5.0
"""How long a partition is tried that cannot be read."""
RETRY_S: Final = 0.25
PROGRESS_S: Final = 0.25
"""Shortest time between two lines that say how far the scan is."""


class Scanned(msgspec.Struct, forbid_unknown_fields=True):
    """The range and the texts of a scan; `text` may be anywhere in a record.

    `start`, `end`: offsets, earliest, latest, -N for the last N offsets, or @MS, of each partition. `resume`: the
    partition and the offset at which an earlier scan ended.
    """

    start: Annotated[str, msgspec.Meta(pattern=r"^(earliest|latest|[@-]?[0-9]{1,18})\Z")] = "earliest"
    end: Annotated[str, msgspec.Meta(pattern=r"^(latest|@?[0-9]{1,18})\Z")] = "latest"
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    resume: Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,9}:[0-9]{1,18})?\Z")] = ""
    key: Text = ""
    value: Text = ""
    header: Text = ""
    text: Text = ""
    max_records: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = 1000
    decode: Decoder = "auto"
    decode_key: Decoder | None = None


class RecordEvent(ReadRecord, tag_field="event", tag="record", kw_only=True):
    """A record that matches."""

    partition_id: int


class Progress(msgspec.Struct, tag_field="event", tag="progress"):
    """The next offset of a partition, and how many offsets of all partitions the scan has passed."""

    partition_id: int
    offset: int
    passed: int
    total: int


class Skipped(msgspec.Struct, tag_field="event", tag="skipped"):
    """Offsets that the scan passed over, `end_offset` not among them, and why."""

    partition_id: int
    offset: int
    end_offset: int
    reason: str


class End(msgspec.Struct, tag_field="event", tag="end"):
    """The last line. `is_complete`: the range was read to its end; else `resume` says where to continue."""

    records: int
    passed: int
    total: int
    is_complete: bool
    resume: str
    error: Error | None


class _Range(NamedTuple):
    """The offsets of a partition that are read, `end` not among them."""

    partition: int
    start: int
    end: int


class _Scan:
    """One scan, as far as it has come."""

    def __init__(self, call: Call) -> None:
        query: Scanned = call.query
        self._call = call
        self._topic: str = call.path["topic_name"]
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + call.limits.stream_s
        choices = Choices(query.decode_key or query.decode, query.decode)
        self._contents = Contents(call, self._topic, choices, max_bytes=MAX_RECORD_BYTES)
        self._filter = Filter(Texts(query.key, query.value, query.header, query.text))
        self._kept = KeptBatch(call.node.contents)
        self._ranges: list[_Range] = []
        self._left = query.max_records
        self._passed = self._total = 0
        self._progress_at = 0.0
        self._at = ""
        """Where to resume."""

    # -- the range

    async def find_ranges(self) -> None:
        """Look up where each partition begins and ends. Raises ApiError."""
        topic = topic_of(self._call, self._call.node.image())
        query: Scanned = self._call.query
        partitions = list(range(len(topic.partitions)))
        if query.partition is not None:
            if query.partition not in partitions:
                raise ApiError(
                    404, f"topic {topic.name} has no partition {query.partition}", code=UNKNOWN_PARTITION
                )
            partitions = [query.partition]
        first, _, offset = query.resume.partition(":")
        if query.resume:
            partitions = [each for each in partitions if each >= int(first)]
        for part in batches(partitions, PARTITIONS_AT_ONCE):
            self._ranges += await self._ranges_of(part)
        if query.resume and self._ranges and self._ranges[0].partition == int(first):
            self._ranges[0] = self._ranges[0]._replace(start=int(offset))
        self._total = sum(max(0, end - start) for _, start, end in self._ranges)

    async def _ranges_of(self, partitions: Any) -> list[_Range]:
        earliest, latest = (
            await self._offsets(partitions, "earliest"),
            await self._offsets(partitions, "latest"),
        )
        query: Scanned = self._call.query
        found = []
        for where in (query.start, query.end):
            if where.startswith("@"):
                at = await self._offsets(partitions, where[1:])
                found.append({each: latest[each] if at[each] < 0 else at[each] for each in partitions})
            elif where == "earliest":
                found.append(earliest)
            elif where == "latest":
                found.append(latest)
            elif where.startswith("-"):
                found.append({each: latest[each] + int(where) for each in partitions})
            else:
                found.append(dict.fromkeys(partitions, int(where)))
        starts, ends = found
        return [
            _Range(each, max(earliest[each], starts[each]), min(latest[each], ends[each]))
            for each in partitions
        ]

    async def _offsets(self, partitions: Any, where: str) -> dict[int, int]:
        timestamp = SPECIAL.get(where)
        wanted = int(where) if timestamp is None else timestamp
        answers = await list_offsets(self._call, {(self._topic, each): wanted for each in partitions})
        for (_, index), (error_code, _) in answers.items():
            check(error_code, about=f"{self._topic}-{index}")
        return {index: offset for (_, index), (_, offset) in answers.items()}

    # -- the stream

    async def run(self, answer: web.StreamResponse, stream: Stream) -> None:
        """Send the lines of the stream, the last among them."""
        with closing(self._kept):
            await self._run(answer, stream)

    async def _run(self, answer: web.StreamResponse, stream: Stream) -> None:
        error, is_complete = None, True
        for each in self._ranges:
            position = each.start
            while position < each.end:
                self._at = f"{each.partition}:{position}"
                error = self._why_it_ends(stream)
                if error is not None or self._left <= 0:
                    await self._end(answer, error, is_complete=False)
                    return
                events: list[bytes | msgspec.Struct] = []
                try:
                    records = await self._read(each, position)
                except (ApiError, KafkaError, BrokerUnreachable) as failure:
                    events.append(Skipped(each.partition, position, each.end, str(failure)))
                    following, is_complete = each.end, False
                else:
                    events += self._events(each, records)
                    following = min(each.end, max(position, records.next_offset))
                self._passed += following - position
                position = following
                await self._send(
                    answer, events, Progress(each.partition, position, self._passed, self._total)
                )
        self._at = ""
        await self._end(answer, None, is_complete=is_complete)

    def _why_it_ends(self, stream: Stream) -> ApiError | None:
        """Return why the scan ends before its range does, or None."""
        if stream.ended is not None:
            return stream.ended
        if self._clock() >= self._ends_at:
            return ApiError(503, f"a scan lasts {self._call.limits.stream_s:g} s at most: resume it")
        if not self._call.node.image().topics.get(self._topic):
            return ApiError(404, f"topic {self._topic} was deleted meanwhile")
        try:
            self._call.check_login()
            self._call.demand(Operation.READ, TOPIC, self._topic)
        except ApiError as error:
            return error
        return None

    async def _read(self, part: _Range, position: int) -> Records:
        """Return the next records of a partition that match. Raises ApiError, KafkaError, BrokerUnreachable."""
        deadline = self._clock() + PATIENCE_S
        while True:
            try:
                records = await self._read_once(part, position)
                if records.next_offset > position:
                    return records
                failure: Exception = of_kafka(LeaderNotAvailable(), f"{self._topic}-{part.partition}")
            except OffsetOutOfRange:
                return await self._after_deletion(part, position)
            except (ApiError, KafkaError, BrokerUnreachable) as error:
                failure = error
            if self._clock() >= deadline:
                raise failure
            await asyncio.sleep(RETRY_S)

    async def _read_once(self, part: _Range, position: int) -> Records:
        state = self._call.node.image().partition(self._topic, part.partition)
        if state is None or state.leader == NO_BROKER:
            raise of_kafka(LeaderNotAvailable(), f"{self._topic}-{part.partition}")
        starts = {part.partition: position}
        found = await fetch(self._call, self._topic, starts, leader=state.leader, max_bytes=FETCH_BYTES)
        data = found[part.partition]
        if data.error_code == OffsetOutOfRange.code:
            raise from_code(data.error_code)
        wanted = Part(
            position, self._left, OUT_BYTES, self._contents, self._filter, part.end, CHUNK_S, self._kept
        )
        records, _ = await shown(self._call, (self._topic, part.partition), data, wanted)
        return records

    async def _after_deletion(self, part: _Range, position: int) -> Records:
        """Return what stands for records that were deleted during the scan."""
        earliest = (await self._offsets([part.partition], "earliest"))[part.partition]
        following = min(part.end, max(earliest, position + 1))
        return Records(
            topic_name=self._topic,
            partition_id=part.partition,
            records=[],
            next_offset=following,
            high_watermark=-1,
            log_start_offset=earliest,
            unreadable=[Unreadable(position, following, "they were deleted meanwhile")],
        )

    def _events(self, part: _Range, records: Records) -> Iterator[bytes | msgspec.Struct]:
        self._left -= len(records.records)
        head = b'{"event":"record","partition_id":%d,' % part.partition
        for each in records.records:
            yield head + bytes(each)[1:]  # type: ignore[call-overload]  # the JSON of a ReadRecord
        for gap in records.unreadable:
            yield Skipped(part.partition, gap.offset, gap.end_offset, gap.reason)

    async def _send(
        self, answer: web.StreamResponse, events: list[bytes | msgspec.Struct], progress: Progress
    ) -> None:
        if self._clock() >= self._progress_at + PROGRESS_S:
            self._progress_at = self._clock()
            events.append(progress)
        if events:
            lines = [each if isinstance(each, bytes) else msgspec.json.encode(each) for each in events]
            within_s = self._call.limits.chunk_s
            await send(answer, b"\n".join(lines) + b"\n", self._call.raw, within_s=within_s)

    async def _end(self, answer: web.StreamResponse, error: ApiError | None, *, is_complete: bool) -> None:
        found = self._call.query.max_records - self._left
        body = None if error is None else error.body
        line = End(found, self._passed, self._total, is_complete, self._at, body)
        await send(
            answer, msgspec.json.encode(line) + b"\n", self._call.raw, within_s=self._call.limits.chunk_s
        )


async def scan_records(call: Call) -> web.StreamResponse:
    """Read a range of a topic and send the records that match, until its end, a limit, or the client leaves."""
    check_page(call.raw.headers)
    scan = _Scan(call)
    await scan.find_ranges()
    assert call.node.record_scans is not None, "the server that serves this has set it"
    with call.node.record_scans.opened(call.raw, call.caller.asked_by) as stream:
        headers = {
            "Content-Type": "application/x-ndjson",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "X-Content-Type-Options": "nosniff",
            "X-Request-Id": call.request_id,
        }
        answer = web.StreamResponse(headers=headers)
        await answer.prepare(call.raw)
        await scan.run(answer, stream)
        await answer.write_eof()
    return answer


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topics/{topic_name}/records/scan",
        scan_records,
        "Search a topic, or read a range of it, as a stream of JSON Lines",
        answer=RecordEvent | Progress | Skipped | End,
        query=Scanned,
        media_type="application/x-ndjson",
        rights=of_topic(Operation.READ),
    ),
)
