"""A client for custom workloads: produce some bytes, read a partition. It hides the leader only."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.records.batch import build_batch, iter_records, new_record
from raftlog.records.header import iter_headers
from raftlog_chaos.workloads.producer import RETRIABLE, produce_request
from raftlog_chaos.workloads.raw_client import AWAY, CREATE_TOPICS, Client, create_topic_request, shapes

PRODUCE: Final = 0
FETCH: Final = 1
BACKOFF_S: Final = 0.05
NONE, TOPIC_ALREADY_EXISTS, OFFSET_NOT_AVAILABLE = 0, 36, 78


class NotNow(ConnectionError):
    """The broker cannot, for now: it does not lead, or too few replicas are in sync. Retry, or use another broker."""


class Refused(Exception):
    """The broker refused for good; a retry does not help. `code` is the protocol's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused with error {code}")
        self.code = code


class SimpleClient:
    """Finds leaders by itself. Raises what `wire.AWAY` lists if a broker is away."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def produce(self, topic: str, partition: int, *values: bytes, acks: int = -1) -> int:
        """Write one batch and return its first offset. After an error its outcome is unknown. Raises AWAY, Refused."""
        batch = build_batch([new_record(None, value, timestamp=-1) for value in values])
        answer = await self._ask(
            topic, partition, PRODUCE, lambda: produce_request((topic, partition), batch, acks=acks)
        )
        result = answer.responses[0].partition_responses[0]
        await self._check(topic, result.error_code)
        return int(result.base_offset)

    async def read(
        self, topic: str, partition: int, start: int = 0, *, limit_s: float = 30.0
    ) -> list[tuple[int, bytes]]:
        """Return (offset, value) of all that is readable from an offset on; tries for so long. Raises TimeoutError."""
        found: list[tuple[int, bytes]] = []
        async with asyncio.timeout(limit_s):
            while True:
                position = found[-1][0] + 1 if found else start
                try:
                    records, high_watermark = await self._fetch(topic, partition, position)
                except AWAY:
                    await asyncio.sleep(BACKOFF_S)
                    continue
                found += records
                if (found[-1][0] + 1 if found else start) >= high_watermark:
                    return found

    async def create_topic(
        self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        """Create a topic with default.replication.factor replicas; tries until it is there."""
        request = create_topic_request(topic, partitions=partitions, replicas=-1, configs=configs)
        while True:
            try:
                answer = await self._client.ask_any(CREATE_TOPICS, request)
                code = int(answer.topics[0].error_code)
                if code in (NONE, TOPIC_ALREADY_EXISTS):
                    return
                if code not in RETRIABLE and code not in (38, 41):  # too few brokers yet; not the controller
                    raise Refused(code)
            except AWAY:
                pass
            await asyncio.sleep(BACKOFF_S)

    def close(self) -> None:
        self._client.close()

    async def _fetch(self, topic: str, partition: int, start: int) -> tuple[list[tuple[int, bytes]], int]:
        """Return records from an offset on, and the end of the readable records."""
        answer = await self._ask(
            topic, partition, FETCH, lambda: self._fetch_request(topic, partition, start)
        )
        result = answer.responses[0].partitions[0]
        await self._check(topic, result.error_code)
        view = memoryview(result.records or b"")
        records = [
            (record.offset, record.value or b"")
            for position, header in iter_headers(view)
            for record in iter_records(view[position : position + header.length])
            if record.offset >= start
        ]
        return records, int(result.high_watermark)

    def _fetch_request(self, topic: str, partition: int, start: int) -> Any:
        make = shapes(FETCH)
        asked = make.FetchPartition(
            partition=partition,
            current_leader_epoch=self._client.leaders[topic, partition].leader_epoch,
            fetch_offset=start,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        return make.FetchRequest(
            replica_id=-1,
            max_wait=100,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=(make.FetchTopic(topic=topic, partitions=(asked,)),),
        )

    async def _ask(self, topic: str, partition: int, api_key: int, message: Any) -> Any:
        if (topic, partition) not in self._client.leaders:
            await self._client.refresh(topic)
        try:
            return await self._client.ask_leader(topic, partition, api_key, message())
        except AWAY:
            self._client.leaders.pop((topic, partition), None)
            raise

    async def _check(self, topic: str, code: int) -> None:
        """Raise the error of an error code, after a metadata refresh if that may help."""
        if code == NONE:
            return
        if int(code) in RETRIABLE or int(code) == OFFSET_NOT_AVAILABLE:
            await self._client.refresh(topic)
            raise NotNow(f"error {int(code)}")
        raise Refused(int(code))
