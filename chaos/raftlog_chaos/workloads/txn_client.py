"""The steps of a transactional producer by hand, in the classic protocol or that of transaction.version 2 (KIP-890).

Each step is retried for a while, as stock clients do. A final refusal is `Refused`; after any other error that AWAY
lists the outcome of the step is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raftlog.base.types import NO_EPOCH, NO_PRODUCER_ID
from raftlog.broker.coordination.transaction_verification import VOID
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog_chaos.workloads.observations import TopicIndex
from raftlog_chaos.workloads.raw_client import AWAY, FIND_COORDINATOR, OFFSET_FETCH, Client, shapes

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28
CLASSIC: Final = {PRODUCE: 9, INIT: 4, ADD_PARTITIONS: 3, ADD_OFFSETS: 3, END: 3, COMMIT_OFFSETS: 3}
BUMPING: Final = CLASSIC | {PRODUCE: 12, END: 5, COMMIT_OFFSETS: 5}
"""The version of each API."""

GROUP, TRANSACTION = 0, 1
ALL_ACKS: Final = -1
TIMEOUT_MS: Final = 1_000

NOT_NOW: Final = frozenset({3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 55, 56, 88})
"""Codes that stock clients retry."""

WRONG_PLACE: Final = frozenset({3, 6, 15, 16})
PAUSE_S: Final = 0.03
PATIENCE_S: Final = 8.0


class Refused(LookupError):
    """A broker refused for good: no part of the step happened, in no attempt."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error {code}")
        self.code = code


class _NotNow(LookupError):
    pass


class TransactionalProducer:
    """`bumping`: transaction.version 2. `group` is the group in which it commits its position in `reads`."""

    timeout_ms = TIMEOUT_MS
    """The timeout of its transactions."""
    patience_s = PATIENCE_S
    """How long it retries a step."""

    def __init__(
        self, client: Client, transactional_id: str, *, group: str, reads: TopicIndex, bumping: bool
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.group = group
        self.reads = reads
        self.bumping = bumping
        self.versions = BUMPING if bumping else CLASSIC
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.void_answers = 0
        """How often the last record was refused because its transaction's confirmation was void when it came."""
        self._sequences: dict[TopicIndex, int] = {}
        self._coordinators: dict[int, tuple[str, int]] = {}

    async def init(self, *, go_on: bool = False) -> None:
        """Begin. With `go_on` as the producer that it is, which must still be the id's (KIP-360)."""
        known = (self.producer_id, self.epoch) if go_on else (NO_PRODUCER_ID, NO_EPOCH)

        async def ask() -> None:
            answer = await self._ask(
                TRANSACTION,
                INIT,
                "InitProducerIdRequest",
                transaction_timeout=self.timeout_ms,
                producer_id=known[0],
                producer_epoch=known[1],
            )
            self._check("InitProducerId", int(answer.error_code))
            self._become(answer.producer_id, answer.producer_epoch)

        await self._persist(ask)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()

    async def add(self, topic_partitions: list[TopicIndex]) -> None:
        """Add partitions, as only a classic client does."""
        make = request_builders(ADD_PARTITIONS, self.versions[ADD_PARTITIONS])
        topics = tuple(
            make.AddPartitionsToTxnTopic(
                name=topic, partitions=tuple(index for each, index in topic_partitions if each == topic)
            )
            for topic in sorted({topic for topic, _ in topic_partitions})
        )

        async def ask() -> None:
            answer = await self._ask(
                TRANSACTION,
                ADD_PARTITIONS,
                "AddPartitionsToTxnRequest",
                prefix="v3_and_below_",
                topics=topics,
            )
            codes = {
                int(each.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            self._check_all("AddPartitionsToTxn", codes)

        await self._persist(ask)

    async def write(self, where: TopicIndex, value: bytes) -> None:
        """Write one record of the transaction, retried under its own sequence."""
        self.void_answers = 0
        sequence = self._sequences.get(where, 0)
        stamp = ProducerIdAndSequence(self.producer_id, self.epoch, sequence)
        batch = build_batch(
            [new_record(None, value, timestamp=-1)], producer=stamp, attributes=TRANSACTIONAL_BIT
        )
        version = self.versions[PRODUCE]
        make = request_builders(PRODUCE, version)
        data = make.PartitionProduceData(index=where[1], records=batch)
        message = make.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_ACKS,
            timeout=int(self.client.timeout_s * 1000),
            topic_data=(make.TopicProduceData(name=where[0], partition_data=(data,)),),
        )

        async def ask() -> None:
            if where not in self.client.leaders:
                await self.client.refresh(where[0])
            answer = await self.client.ask_leader(*where, PRODUCE, message, version=version)
            result = answer.responses[0].partition_responses[0]
            self.void_answers += result.error_message == VOID
            self._check("Produce", int(result.error_code))

        async def ask_whoever_leads() -> None:
            try:
                await ask()
            except AWAY as error:
                if not isinstance(error, Refused):
                    await self.client.refresh(where[0])
                raise

        await self._persist(ask_whoever_leads)
        self._sequences[where] = sequence + 1

    async def add_offsets(self) -> None:
        """Announce offsets to commit, as only a classic client does."""

        async def ask() -> None:
            answer = await self._ask(TRANSACTION, ADD_OFFSETS, "AddOffsetsToTxnRequest", group_id=self.group)
            self._check("AddOffsetsToTxn", int(answer.error_code))

        await self._persist(ask)

    async def commit_offset(self, offset: int) -> None:
        """Commit the position, if the transaction commits."""
        make = request_builders(COMMIT_OFFSETS, self.versions[COMMIT_OFFSETS])
        partition = make.TxnOffsetCommitRequestPartition(
            partition_index=self.reads[1], committed_offset=offset, committed_metadata=""
        )
        topic = make.TxnOffsetCommitRequestTopic(name=self.reads[0], partitions=(partition,))

        async def ask() -> None:
            answer = await self._ask(
                GROUP,
                COMMIT_OFFSETS,
                "TxnOffsetCommitRequest",
                group_id=self.group,
                topics=(topic,),
                **self.seat(),
            )
            self._check("TxnOffsetCommit", int(answer.topics[0].partitions[0].error_code))

        await self._persist(ask)

    def seat(self) -> dict[str, Any]:
        """Return the fields by which a member of the group commits; none: it is no member (before KIP-447)."""
        return {}

    async def end(self, *, commit: bool) -> None:
        """End the transaction. Refused only if no earlier attempt can have arrived; else the outcome is unknown."""
        heard = False

        async def ask() -> None:
            nonlocal heard
            before, heard = heard, True
            answer = await self._ask(TRANSACTION, END, "EndTxnRequest", committed=commit)
            code = int(answer.error_code)
            if code and code not in NOT_NOW and before:
                raise LookupError(f"EndTxn: error {code}, but who knows about an earlier try")
            self._check("EndTxn", code)
            if self.bumping:
                self._become(answer.producer_id, answer.producer_epoch)

        await self._persist(ask)

    async def committed(self) -> int:
        """Return the committed position; 0 at the beginning. A coordinator that is cut off returns a stale position."""
        found = 0

        async def ask() -> None:
            nonlocal found
            found = await self._fetch_offset(require_stable=True)

        await self._persist(ask)
        return found

    async def still_committed(self) -> int:
        """Return the same only from the coordinator that has just accepted an offset of ours: it cannot be stale."""
        if GROUP not in self._coordinators:
            raise LookupError("the coordinator that took the offset is gone")
        return await self._fetch_offset(require_stable=False)

    async def _fetch_offset(self, *, require_stable: bool) -> int:
        make = shapes(OFFSET_FETCH)
        topic = make.OffsetFetchRequestTopic(name=self.reads[0], partition_indexes=(self.reads[1],))
        message = make.OffsetFetchRequest(group_id=self.group, topics=(topic,), require_stable=require_stable)
        answer = await self._ask_coordinator(GROUP, OFFSET_FETCH, message, None)
        self._check("OffsetFetch", int(answer.error_code))
        partition = answer.topics[0].partitions[0]
        self._check("OffsetFetch", int(partition.error_code))
        return max(0, int(partition.committed_offset))

    # -- inside ------------------------------------------------------------------------------------------------

    async def _persist(self, ask: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience_s
        while True:
            try:
                return await ask()
            except Refused:
                raise
            except AWAY:
                if loop.time() >= end:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, kind: int, api_key: int, name: str, *, prefix: str = "", **fields: Any) -> Any:
        """Send a request with the common fields of a transaction."""
        version = self.versions[api_key]
        whose = {"transactional_id": self.transactional_id}
        if api_key != INIT:
            whose |= {"producer_id": self.producer_id, "producer_epoch": self.epoch}  # type: ignore[dict-item]
        given = {f"{prefix}{key}": value for key, value in (whose | fields).items()}
        message = getattr(request_builders(api_key, version), name)(**given)
        return await self._ask_coordinator(kind, api_key, message, version)

    async def _ask_coordinator(self, kind: int, api_key: int, message: Any, version: int | None) -> Any:
        address = self._coordinators.get(kind)
        if address is None:
            key = self.transactional_id if kind == TRANSACTION else self.group
            find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=key, key_type=kind)
            found = await self.client.ask_any(FIND_COORDINATOR, find)
            self._check("FindCoordinator", int(found.error_code))
            address = self._coordinators[kind] = (found.host, found.port)
        try:
            return await self.client.ask(address, api_key, message, version=version)
        except AWAY:
            self._coordinators.pop(kind, None)
            raise

    def _check_all(self, what: str, codes: set[int]) -> None:
        for code in sorted(codes):
            self._check(what, code)

    def _check(self, what: str, code: int) -> None:
        if code in WRONG_PLACE:
            self._coordinators.clear()
        if code in NOT_NOW:
            raise _NotNow(f"{what}: error {code}")
        if code:
            raise Refused(what, code)
