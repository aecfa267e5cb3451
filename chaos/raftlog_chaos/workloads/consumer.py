"""A consumer of one partition that fetches continuously, and sends ListOffsets now and then."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from raftlog.base.errors import OffsetNotAvailable
from raftlog.records.batch import iter_records
from raftlog.records.header import check_crc, iter_headers
from raftlog_chaos.workloads.last_read import LastRead
from raftlog_chaos.workloads.observations import Observations
from raftlog_chaos.workloads.producer import RETRIABLE
from raftlog_chaos.workloads.raw_client import AWAY, FETCH, LIST_OFFSETS, Client, shapes

BACKOFF_S: Final = 0.05
OFFSET_NOT_AVAILABLE: Final = OffsetNotAvailable.code
LATEST: Final = -1
NOT_NOW: Final = RETRIABLE | {OFFSET_NOT_AVAILABLE}


class Consumer:
    """A consumer that reports gaps, changed records, a log end that moves back, and a refused fetch offset."""

    def __init__(
        self, client: Client, topic: str, index: int, *, history: Observations, chance: random.Random
    ) -> None:
        self.client = client
        self.where = (topic, index)
        self.history = history
        self.stopping = False
        self.offset = 0
        self.last_read = LastRead()
        self.latest = 0
        self.rewinds = True
        """Whether it seeks back now and then, and reads records again."""
        self.pause_s = 0.0
        """Pause between two requests, seconds."""
        self._chance = chance

    async def run(self) -> None:
        while not self.stopping:
            try:
                if self._chance.random() < 0.02 and self.rewinds:
                    self._rewind()
                code = await self._ask()
                if code == 0:
                    await asyncio.sleep(self.pause_s)
                    continue
            except AWAY:
                pass
            await asyncio.sleep(BACKOFF_S)
            try:
                await self.client.refresh(self.where[0])
            except AWAY:
                pass

    async def _ask(self) -> int:
        leader = self.client.leaders.get(self.where)
        if leader is not None and self.last_read.is_doubtful(leader.leader_epoch):
            return await self._confirm()
        return await (self._list_latest() if self._chance.random() < 0.2 else self._fetch())

    async def _confirm(self) -> int:
        """Check with OffsetForLeaderEpoch that a new leader has the last read record."""
        code, wrong = await self.last_read.ask(self.client, *self.where)
        if wrong:
            self.history.blame(wrong)
            self.last_read = LastRead()
        elif code and code not in NOT_NOW:
            self.history.blame(f"{self.where}: OffsetForLeaderEpoch was refused with error {code}")
        return code

    def _rewind(self) -> None:
        """Seek back. The same offsets must return the same records."""
        back = self._chance.choice((1, 10, 100, 100, 1_000_000))
        self.offset = max(0, self.offset - back)

    async def _fetch(self) -> int:
        topic, index = self.where
        leader_epoch = (
            self.client.leaders[self.where].leader_epoch if self.where in self.client.leaders else -1
        )
        response = await self.client.fetch(topic, index, self._fetch_request())
        result = response.responses[0].partitions[0]
        code = int(result.error_code)
        if code == 0:
            self._take(result.records or b"", leader_epoch)
        elif code not in NOT_NOW:
            self.history.blame(f"{self.where}: a fetch at {self.offset} was refused with error {code}")
        return code

    def _fetch_request(self) -> Any:
        topic, index = self.where
        make = shapes(FETCH)
        leader = self.client.leaders[self.where]
        partition = make.FetchPartition(
            partition=index,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=self.offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._chance.choice((1, 3000, 1 << 20)),
        )
        return make.FetchRequest(
            replica_id=-1,
            max_wait=100,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            rack_id=self.client.rack,
            topics=(make.FetchTopic(topic=topic, partitions=(partition,)),),
        )

    def _take(self, records: bytes, leader_epoch: int) -> None:
        view = memoryview(records)
        for position, header in iter_headers(view):
            check_crc(view, position, header)
            self.last_read.note(header, leader_epoch)
            if header.end_offset <= self.offset:
                continue
            for record in iter_records(view[position : position + header.length]):
                if record.offset < self.offset:
                    continue
                if record.offset != self.offset:
                    self.history.blame(
                        f"{self.where}: offset {record.offset} was read where {self.offset} was due"
                    )
                self.history.consume(self.where, record.offset, record.value or b"")
                self.offset = record.offset + 1

    async def _list_latest(self) -> int:
        topic, index = self.where
        make = shapes(LIST_OFFSETS)
        partition = make.ListOffsetsPartition(
            partition_index=index,
            current_leader_epoch=self.client.leaders[self.where].leader_epoch
            if self.where in self.client.leaders
            else -1,
            timestamp=LATEST,
        )
        request = make.ListOffsetsRequest(
            replica_id=-1, topics=(make.ListOffsetsTopic(name=topic, partitions=(partition,)),)
        )
        response = await self.client.ask_leader(topic, index, LIST_OFFSETS, request)
        result = response.topics[0].partitions[0]
        code = int(result.error_code)
        if code == 0:
            if result.offset < self.latest:
                self.history.blame(
                    f"{self.where}: the latest offset went back from {self.latest} to {result.offset}"
                )
            self.latest = max(self.latest, result.offset, self.offset)
        elif code not in NOT_NOW:
            self.history.blame(f"{self.where}: ListOffsets was refused with error {code}")
        return code
