"""Reads a few records of many partitions of a topic in one response, for pages that refresh.

A failed partition is reported beside the others. Partitions without room in the response are `left`, to be requested
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from raftlog.admin.broker_questions import SPECIAL, by_leader, fetch, list_offsets
from raftlog.admin.errors import INVALID, ApiError, Error, check
from raftlog.admin.kafka_client import BrokerUnreachable
from raftlog.admin.kafka_rest.shared import topic_of
from raftlog.admin.native.record_contents import Decoder
from raftlog.admin.native.records import (
    MAX_BYTES,
    MAX_RECORDS,
    MAX_SHOWN_BYTES,
    Part,
    Records,
    contents_of,
    shown,
)
from raftlog.admin.route import Call, Route, of_topic
from raftlog.base.errors import KafkaError
from raftlog.security.acls import Operation

MAX_PARTITIONS: Final = 50
MAX_CHARS: Final = MAX_PARTITIONS * 31
START: Final = r"[0-9]{1,10}:(earliest|latest|[@-]?[0-9]{1,18})"


class Starts(msgspec.Struct, forbid_unknown_fields=True):
    """From where, and how much of each partition at most.

    `start`: PARTITION:WHERE,... with an offset, earliest, latest, -N for the last N offsets, or @MS for the first
    record of that time or later. `decode`: the decoder of values, and of keys unless `decode_key` names another.
    """

    start: Annotated[str, msgspec.Meta(max_length=MAX_CHARS, pattern=rf"^{START}(,{START})*\Z")]
    max_records: Annotated[int, msgspec.Meta(ge=1, le=MAX_RECORDS)] = 100
    decode: Decoder | None = None
    decode_key: Decoder | None = None


class Unread(msgspec.Struct):
    """A partition that could not be read, and why."""

    partition_id: int
    error: Error


class TopicRecords(msgspec.Struct):
    """Records of several partitions. Request those in `left` again, and more from each `Records.next_offset`."""

    topic_name: str
    data: list[Records]
    left: list[int]
    failures: list[Unread]


class _Reading:
    """One question, as far as it has come."""

    def __init__(self, call: Call, wanted: Mapping[int, str]) -> None:
        self.call = call
        self.topic: str = call.path["topic_name"]
        self.wanted = wanted
        self.answer = TopicRecords(self.topic, [], [], [])
        self._room = MAX_SHOWN_BYTES
        self._contents = contents_of(call, self.topic)

    async def offsets(self) -> dict[int, int]:
        """Return the offset from which each partition is read; what has none fails."""
        asked: dict[int, dict[int, int]] = {}
        for index, where in self.wanted.items():
            for kind, timestamp in _questions(where):
                asked.setdefault(kind, {})[index] = timestamp
        results = await asyncio.gather(*(self._ask_offsets(each) for each in asked.values()))
        found = dict(zip(asked, results, strict=True))
        starts = {}
        for index, where in self.wanted.items():
            answers = {kind: found[kind][index] for kind, _ in _questions(where)}
            try:
                for error_code, _ in answers.values():
                    check(error_code, about=f"{self.topic}-{index}")
            except (ApiError, KafkaError) as error:
                self.fail(index, error)
            else:
                starts[index] = _start(where, {kind: offset for kind, (_, offset) in answers.items()})
        return starts

    async def _ask_offsets(self, wanted: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        asked = {(self.topic, index): timestamp for index, timestamp in wanted.items()}
        answers = await list_offsets(self.call, asked)
        return {index: answers[self.topic, index] for index in wanted}

    async def read(self, leader: int, starts: Mapping[int, int]) -> None:
        """Read what one broker leads."""
        max_bytes = MAX_BYTES
        try:
            fetched = await fetch(self.call, self.topic, starts, leader=leader, max_bytes=max_bytes)
        except (ApiError, KafkaError, BrokerUnreachable) as error:
            for index in starts:
                self.fail(index, error)
            return
        for index, start in starts.items():
            data = fetched[index]
            if self._room <= 0 or (not data.records and not data.error_code and start < data.high_watermark):
                self.answer.left.append(index)
                continue
            try:
                most = self.call.query.max_records
                part = Part(start, most, self._room, self._contents)
                records, size = await shown(self.call, (self.topic, index), data, part)
            except (ApiError, KafkaError) as error:
                self.fail(index, error)
                continue
            self._room -= size
            self.answer.data.append(records)

    def fail(self, index: int, error: Exception) -> None:
        code = error.body.error_code if isinstance(error, ApiError) else 503
        self.answer.failures.append(Unread(index, Error(code, str(error))))


def _questions(where: str) -> list[tuple[int, int]]:
    """Return what is to be asked of a partition's offsets: (kind, timestamp), where the kind of a time is 0."""
    if where in SPECIAL:
        return [(SPECIAL[where], SPECIAL[where])]
    if where.startswith("@"):
        return [(0, int(where[1:])), (SPECIAL["latest"], SPECIAL["latest"])]
    if where.startswith("-"):
        return [(each, each) for each in SPECIAL.values()]
    return []


def _start(where: str, offsets: Mapping[int, int]) -> int:
    if where in SPECIAL:
        return offsets[SPECIAL[where]]
    if where.startswith("@"):
        return offsets[0] if offsets[0] >= 0 else offsets[SPECIAL["latest"]]
    if where.startswith("-"):
        return max(offsets[SPECIAL["earliest"]], offsets[SPECIAL["latest"]] + int(where))
    return int(where)


async def read_topic_records(call: Call) -> TopicRecords:
    """Ask each leader once for offsets, where they are not given, and once for records."""
    pairs = [each.split(":", 1) for each in call.query.start.split(",")]
    wanted = {int(index): where for index, where in pairs}
    if len(wanted) < len(pairs) or len(wanted) > MAX_PARTITIONS:
        raise ApiError(400, f"start: at most {MAX_PARTITIONS} different partitions", code=INVALID)
    topic_of(call, call.node.image())
    reading = _Reading(call, wanted)
    starts = await reading.offsets()
    leaders, errors = by_leader(call, ((reading.topic, index) for index in starts))
    for (topic, index), error_code in errors.items():
        try:
            check(error_code, about=f"{topic}-{index}")
        except (ApiError, KafkaError) as error:
            reading.fail(index, error)
    for leader, partitions in leaders.items():  # sequentially: they decompress to large data
        await reading.read(leader, {index: starts[index] for _, index in partitions})
    return reading.answer


ROUTES: Final = (
    Route(
        "GET",
        "/v1/topics/{topic_name}/records",
        read_topic_records,
        "Read a few records of many partitions, uncommitted and aborted ones too",
        query=Starts,
        rights=of_topic(Operation.READ),
    ),
)
