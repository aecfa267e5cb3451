"""A client that writes records to a partition and reads them in a fetch session, without ever waiting for records."""

from __future__ import annotations

from typing import Any, Final

from raftlog.records.batch import build_batch, iter_headers, iter_records, new_record
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.raw_client import FETCH, PRODUCE, Client, shapes

MAX_BYTES: Final = 1 << 20
NO_SESSION, FIRST_EPOCH = 0, 0


class SessionReader:
    """`read` names the partition only if its offset has changed, as clients do: else the session has to know (KIP-227).

    Raises what `AWAY` lists; then the next read opens a session.
    """

    def __init__(self, client: Client, where: TopicIndex) -> None:
        self.client = client
        self.where = where
        self.offset = 0
        self.sessions = 0
        self._session = (NO_SESSION, FIRST_EPOCH)
        self._named_offset = -1

    async def write(self, value: bytes) -> None:
        """Write a record with acks=all. LookupError if it is refused."""
        make = shapes(PRODUCE)
        records = build_batch([new_record(None, value, timestamp=-1)])
        data = make.PartitionProduceData(index=self.where[1], records=records)
        request = make.ProduceRequest(
            acks=-1,
            timeout=1000,
            topic_data=(make.TopicProduceData(name=self.where[0], partition_data=(data,)),),
        )
        answer = await self.client.ask_leader(*self.where, PRODUCE, request)
        self._check(answer.responses[0].partition_responses[0].error_code)

    async def read(self) -> list[bytes]:
        """Return the records behind the offset."""
        session, self._session = self._session, (NO_SESSION, FIRST_EPOCH)
        answer = await self.client.ask_leader(*self.where, FETCH, self._request(session))
        self._check(answer.error_code)
        found: list[bytes] = []
        for topic in answer.responses:
            for partition in topic.partitions:
                self._check(partition.error_code)
                found += self._take(memoryview(partition.records or b""))
        self.sessions += session[0] == NO_SESSION
        self._session = answer.session_id, session[1] + 1
        return found

    def _request(self, session: tuple[int, int]) -> Any:
        make = shapes(FETCH)
        topics: tuple[Any, ...] = ()
        if session[0] == NO_SESSION or self.offset != self._named_offset:
            partition = make.FetchPartition(
                partition=self.where[1],
                fetch_offset=self.offset,
                last_fetched_epoch=-1,
                partition_max_bytes=MAX_BYTES,
            )
            topics = (make.FetchTopic(topic=self.where[0], partitions=(partition,)),)
            self._named_offset = self.offset
        return make.FetchRequest(
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
        )

    def _take(self, records: memoryview) -> list[bytes]:
        found: list[bytes] = []
        for position, header in iter_headers(records):
            if header.end_offset > self.offset:
                batch = records[position : position + header.length]
                found += [bytes(each.value or b"") for each in iter_records(batch)]
                self.offset = header.end_offset
        return found

    def _check(self, code: Any) -> None:
        if int(code):
            raise LookupError(f"{self.client.name}: error {int(code)}")
