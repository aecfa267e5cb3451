"""The consumer of a simulated client: one fetch to each leader at a time, positions kept by the client.

As librdkafka does, it asks a new leader where the epoch of the last record ended before it reads on. A position from a
broker is always good: a broker that calls it out of range, or the log shorter, is to blame.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from raftlog.base.errors import OffsetOutOfRange
from raftlog.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest
from raftlog.protocol.fetch_client import FetchResponse, decode_fetch_response, encode_fetch_request
from raftlog.records.batch import iter_records
from raftlog.records.header import check_crc, iter_headers
from raftlog_chaos.workloads.last_read import LastRead
from raftlog_chaos.workloads.port import POLL_S, Damaged, decode_value, split_key
from raftlog_chaos.workloads.raw_client import AWAY, LIST_OFFSETS, Client, RawConnection, shapes

FETCH_VERSION: Final = 13
EARLIEST: Final = -2
OFFSET_OUT_OF_RANGE: Final = OffsetOutOfRange.code
SIZES: Final = (3_000, 1 << 20)
"""Bytes to fetch per partition, chosen by chance."""

Reads = dict[str, list[tuple[int, int]]]
Where = tuple[str, int]


class SimConsumer:
    """`positions`: by key, the next offset to poll; None: the earliest that there is."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client = client
        self.positions: dict[str, int | None] = {}
        self._chance = chance
        self._keys: dict[Where, str] = {}
        self._last_reads: dict[Where, LastRead] = {}
        self._asked: dict[Where, int] = {}
        """In which leader epoch each partition is being fetched."""
        self._stale: set[str] = set()
        """Topics with unknown leaders."""

    async def poll(self) -> Reads:
        """Return what every leader had within POLL_S. Raises Damaged; a leader that is away adds no records."""
        self._keys = {split_key(key): key for key in self.positions}
        await self._refresh()
        await self._find_positions()
        await self._confirm()
        reads: Reads = {}
        asked = list(self._by_leader().values())
        if asked:
            answers = await asyncio.gather(*map(self._fetch, asked))
            for wheres, answer in zip(asked, answers, strict=True):
                self._take_response(wheres, answer, reads)
        if not asked or (not reads and self._stale):
            await asyncio.sleep(POLL_S)
        return reads

    def _by_leader(self) -> dict[int, list[Where]]:
        """Return the partitions to fetch, by leader."""
        found: dict[int, list[Where]] = {}
        for where, key in self._keys.items():
            leader = self.client.leaders.get(where)
            if leader is None:
                self._stale.add(where[0])
            elif self.positions[key] is not None and not self._is_doubtful(where):
                found.setdefault(leader.broker_id, []).append(where)
        return found

    async def _find_positions(self) -> None:
        """Look up where the keys without a position begin; a key without a response still has none."""
        for where, key in self._keys.items():
            if self.positions[key] is None and where in self.client.leaders:
                try:
                    self.positions[key] = await self._list_earliest(where)
                except AWAY:
                    self._stale.add(where[0])

    def _is_doubtful(self, where: Where) -> bool:
        last_read, leader = self._last_reads.get(where), self.client.leaders.get(where)
        return last_read is not None and leader is not None and last_read.is_doubtful(leader.leader_epoch)

    async def _confirm(self) -> None:
        """Ask new leaders whether they have what was read. Raises Damaged."""
        doubtful = [where for where in self._keys if self._is_doubtful(where)]
        for wrong in await asyncio.gather(*map(self._ask_leader, doubtful)):
            if wrong:
                raise Damaged(wrong)

    async def _ask_leader(self, where: Where) -> str:
        """Return the error in the answer; the next poll asks again if there was no answer."""
        try:
            code, wrong = await self._last_reads[where].ask(self.client, *where)
        except AWAY:
            code, wrong = -1, ""
        if code:
            self._stale.add(where[0])
        if wrong:
            del self._last_reads[where]
        return wrong

    async def _refresh(self) -> None:
        if self._stale:
            try:
                await self.client.refresh(*sorted(self._stale))
                self._stale.clear()
            except AWAY:
                pass

    async def _fetch(self, wheres: list[Where]) -> FetchResponse | None:
        try:
            wire, _ = await self.client.leader_wire(*wheres[0])
            return await self.client.answer(wire, self._ask(wire, self._request(wheres)))
        except AWAY:
            return None

    def _ask(self, wire: RawConnection, request: FetchRequest) -> asyncio.Future[Any]:
        return wire.ask_by(
            lambda number: encode_fetch_request(FETCH_VERSION, number, request, client_id=self.client.name),
            lambda frame: decode_fetch_response(memoryview(bytes(frame))),  # records are slices of the frame
        )

    def _request(self, wheres: list[Where]) -> FetchRequest:
        request = FetchRequest()
        request.max_wait_ms = int(POLL_S * 1000)
        request.min_bytes = 1
        size = self._chance.choice(SIZES)
        topics: dict[str, list[FetchPartition]] = {}
        for where in wheres:
            epoch = self._asked[where] = self.client.leaders[where].leader_epoch
            position = self.positions[self._keys[where]]
            assert position is not None
            wanted = FetchPartition(where[1], epoch, position, -1, -1, size)
            topics.setdefault(where[0], []).append(wanted)
        request.topics = [(self.client.topic_ids[topic], wanted) for topic, wanted in topics.items()]
        return request

    def _take_response(self, wheres: list[Where], response: FetchResponse | None, reads: Reads) -> None:
        if response is None or response.error_code:
            self._stale.update(topic for topic, _ in wheres)
            return
        names = {self.client.topic_ids[topic]: topic for topic, _ in wheres}
        for topic_id, partitions in response.topics:
            for each in partitions:
                self._take_partition((names[topic_id], each.partition), each, reads)

    def _take_partition(self, where: Where, fetched: FetchedPartition, reads: Reads) -> None:
        key = self._keys[where]
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            position, self.positions[key] = self.positions[key], None
            raise Damaged(f"{key}: offset {position} is out of range in leader epoch {self._asked[where]}")
        if fetched.error_code:
            self._stale.add(where[0])
            return
        records = self._records(where, memoryview(fetched.records or b""))
        if records:
            reads[key] = records

    def _records(self, where: Where, data: memoryview) -> list[tuple[int, int]]:
        """Read what lies at or behind the position, and move it."""
        key = self._keys[where]
        last_read = self._last_reads.setdefault(where, LastRead())
        found, position = [], self.positions[key] or 0
        for at, header in iter_headers(data):
            check_crc(data, at, header)
            last_read.note(header, self._asked[where])
            if header.end_offset <= position:
                continue
            if not header.is_control:
                for record in iter_records(data[at : at + header.length]):
                    if record.offset >= position:
                        found.append((record.offset, decode_value(key, record.value)))
            position = header.end_offset
        self.positions[key] = position
        return found

    async def _list_earliest(self, where: Where) -> int:
        make = shapes(LIST_OFFSETS)
        partition = make.ListOffsetsPartition(
            partition_index=where[1],
            current_leader_epoch=self.client.leaders[where].leader_epoch,
            timestamp=EARLIEST,
        )
        request = make.ListOffsetsRequest(
            replica_id=-1, topics=(make.ListOffsetsTopic(name=where[0], partitions=(partition,)),)
        )
        response = await self.client.ask_leader(*where, LIST_OFFSETS, request)
        result = response.topics[0].partitions[0]
        if int(result.error_code):
            raise LookupError(f"ListOffsets of {where}: error {int(result.error_code)}")
        return int(result.offset)
