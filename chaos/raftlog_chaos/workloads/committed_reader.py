"""A handwritten consumer of one partition with isolation level read_committed, which skips aborted records itself."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.records.batch import iter_records, read_end_marker
from raftlog.records.header import iter_headers
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.raw_client import AWAY, FETCH, OFFSET_OUT_OF_RANGE, Client, shapes

READ_COMMITTED: Final = 1
PAUSE_S: Final = 0.005


class CommittedReader:
    """Reads from the beginning, and skips what the broker lists as aborted; `took` is for subclasses."""

    def __init__(self, client: Client, where: TopicIndex) -> None:
        self.client = client
        self.where = where
        self.stopping = False
        self.read = 0
        self.offset = 0
        """The next offset to read."""

    def took(self, offset: int, value: bytes) -> None:
        """Check a committed record."""
        raise NotImplementedError

    def saw_offsets(self, log_start: int, stable: int, high_watermark: int) -> None:
        """Check the offsets that came with a response."""

    async def out_of_range(self) -> None:
        """Handle that the requested offset does not exist (any more)."""

    async def run(self) -> None:
        while not self.stopping:
            try:
                if await self._fetch() == 0:
                    await asyncio.sleep(PAUSE_S)
                    continue
            except AWAY:
                pass
            await asyncio.sleep(0.05)
            try:
                await self.client.refresh(self.where[0])
            except AWAY:
                pass

    async def _fetch(self) -> int:
        topic, index = self.where
        make = shapes(FETCH)
        partition = make.FetchPartition(
            partition=index, fetch_offset=self.offset, last_fetched_epoch=-1, partition_max_bytes=1 << 20
        )
        request = make.FetchRequest(
            replica_id=-1,
            max_wait=20,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            isolation_level=READ_COMMITTED,
            rack_id=self.client.rack,
            topics=(make.FetchTopic(topic=topic, partitions=(partition,)),),
        )
        response = await self.client.fetch(topic, index, request)
        result = response.responses[0].partitions[0]
        code = int(result.error_code)
        if code == 0:
            self.saw_offsets(result.log_start_offset, result.last_stable_offset, result.high_watermark)
            self._take(result)
        elif code == OFFSET_OUT_OF_RANGE:
            await self.out_of_range()
        return code

    def _take(self, result: Any) -> None:
        listed = sorted((each.first_offset, each.producer_id) for each in result.aborted_transactions or ())
        view = memoryview(result.records or b"")
        skipping: set[int] = set()
        for position, header in iter_headers(view):
            batch = view[position : position + header.length]
            while listed and listed[0][0] <= header.last_offset:
                skipping.add(listed.pop(0)[1])
            if header.is_control:
                marker = read_end_marker(batch)
                if marker is not None and not marker.commit:
                    skipping.discard(header.producer_id)
            elif header.producer_id not in skipping and header.end_offset > self.offset:
                for record in iter_records(batch):
                    self.read += 1
                    self.took(record.offset, record.value or b"")
            self.offset = max(self.offset, header.end_offset)
