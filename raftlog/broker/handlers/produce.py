"""Produce 0-13: one batch for each partition, appended while its bytes lie in the receive buffer (KIP-98, 516, 951).

acks=1 is acknowledged when the batches are in this broker's log. acks=-1 is acknowledged when they are committed, or
fails after the client's timeout. acks=0 gets no response. Its errors close the connection, the only sign that such a
client can see.

A transaction's first batch in a partition waits until the transaction's coordinator has confirmed it (KIP-890). Later
requests on the connection wait behind it, so batches are appended in the order in which they were sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.base.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
    UnsupportedVersion,
)
from raftlog.base.types import INTERNAL_TOPICS
from raftlog.broker.api import Api, NoChange
from raftlog.broker.coordination.transaction_verification import (
    ProducerApiLevel,
    VerificationRequests,
)
from raftlog.broker.long_work.turns import each_part, run_steps
from raftlog.broker.long_work.walked_records import check_schemas, walk_records
from raftlog.broker.network.responses import Slot
from raftlog.broker.partition_lookup import (
    MOVED,
    current_leader,
    endpoints_of,
    find_replica,
    locate,
    may_be_made_here,
)
from raftlog.broker.rights import TOPIC, demand_transactional_id, note_refusal, refused_topic
from raftlog.coordinator.transactions.transaction import check_transactional_id
from raftlog.protocol.codec import RequestHeader
from raftlog.protocol.primitives import MAX_PRODUCE_ELEMENTS
from raftlog.protocol.produce import (
    FIRST_HANDLED_VERSION,
    ProducedPartition,
    ProduceRequest,
    TopicKey,
    decode_produce,
    encode_produce_response,
)
from raftlog.records.header import HEADER_BYTES, MAGIC, NotOneBatch
from raftlog.records.validation import NeedsStepwiseValidation
from raftlog.security.acls import DemandedPerPart, Operation, ResourceType, Right

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from raftlog.broker.network.connection import Connection
    from raftlog.replication.partition import Partition

API_KEY: Final = 0
ALL_ACKS: Final = -1
NO_ACKS: Final = 0
FIRST_LEADER_HINT_VERSION: Final = 10
FIRST_ZSTD_VERSION: Final = 7
FIRST_ABORTABLE_VERSION: Final = 11
FIRST_ADDING_VERSION: Final = 12
NOTHING: Final = -1

BEFORE_THE_LOG: Final = (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    NotOneBatch,
    RecordListTooLarge,
)
"""Errors of a log that are returned without its start offset (Kafka: ReplicaManager.appendRecordsToLeader)."""

BATCHES_AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""The bytes that are appended between two turns of the loop. That is 300 µs at most for a batch of 200 records, and a
millisecond for a megabyte."""

DONE: Final = object()
"""Returned by an iterator that has ended."""

MAGIC_BYTE: Final = 16
ATTRIBUTES_BYTE: Final = 22
"""The position of the low byte of a batch's attributes (KIP-98)."""

TRANSACTIONAL_BIT: Final = 0x10
ZSTD: Final = 4
CODEC_MASK: Final = 7
SUSPECT_ATTRIBUTES: Final = TRANSACTIONAL_BIT | ZSTD


def handle(connection: Connection, header: RequestHeader, frame: memoryview, position: int) -> None:
    """Append, and respond or hold a slot until the partitions commit. Raises InvalidRequest for malformed bytes."""
    request = decode_produce(frame, position, header.api_version)
    pending = PendingProduce(connection, header, request)
    if connection.limits is not None:
        pending.throttle_ms = connection.limits.count_produce(connection, len(frame))
    if connection.server.broker.authorizer is not None:
        pending.refuse_denied()
    refused = _refusal(connection, header, request)
    if request.transactional_id is not None and refused is None and pending.begin_verification():
        connection.responses.hold(pending)
        return
    steps = pending.append() if refused is None else pending.refuse(refused)
    # This `next` appends the batches, from the receive buffer. If the iterator has not ended, they are too many for a
    # single turn of the loop. Then the rest is copied, and appended in later turns.
    if next(steps, DONE) is not DONE:
        pending.keep_batches()
        pending.respond_after(pending.append_in_turns(steps))
        connection.responses.hold(pending)
        return
    if pending.deferred:
        pending.respond_after(pending.append_deferred())
        connection.responses.hold(pending)
        return
    if request.acks == NO_ACKS:
        _close_on_error(connection, pending)
        return
    buffers = pending.try_complete()
    if buffers is None:
        connection.responses.hold(pending)
    else:
        connection.responses.add(buffers)


def _refusal(connection: Connection, header: RequestHeader, request: ProduceRequest) -> KafkaError | None:
    """The error that makes the whole request unacceptable."""
    if header.api_version < FIRST_HANDLED_VERSION:
        return UnsupportedVersion()
    if not ALL_ACKS <= request.acks <= 1:
        return InvalidRequiredAcks(f"acks={request.acks} is not -1, 0 or 1")
    if request.transactional_id is not None:
        try:
            check_transactional_id(request.transactional_id)
            demand_transactional_id(connection, request.transactional_id)
        except TransactionalIdAuthorizationFailed as error:
            return error
        except InvalidRequest as error:
            return error
    return None


def _no_memory() -> KafkaError:
    """Return an error that every client retries without first looking for another leader."""
    return NotEnoughReplicas("the memory for batches that wait to be appended is used up")


def _header_of(records: memoryview) -> memoryview:
    return memoryview(bytes(records[:HEADER_BYTES]))


def _dialect(version: int) -> ProducerApiLevel:
    if version >= FIRST_ADDING_VERSION:
        return ProducerApiLevel.ADDS
    return ProducerApiLevel.ABORTABLE if version >= FIRST_ABORTABLE_VERSION else ProducerApiLevel.OLD


def _close_on_error(connection: Connection, pending: PendingProduce) -> None:
    for topic, results in pending.topics:
        for produced in results:
            if produced[1]:
                connection.close(
                    "unacknowledged_produce_failed",
                    topic=str(topic),
                    partition=produced[0],
                    error_code=produced[1],
                    reason=produced[5],
                )
                return


class BatchPosition(NamedTuple):
    """The position of a batch's result, and the offset up to which it waits to be committed."""

    topic: TopicKey
    results: list[ProducedPartition]
    position: int
    end_offset: int


class DeferredBatch(NamedTuple):
    """A batch that is appended once its records were checked, and the index of its result."""

    topic: TopicKey
    partition: int
    records: memoryview
    results: list[ProducedPartition]
    position: int


class PendingProduce(Slot):
    """One produce request, from its first append to its response. It is the `CommitWaiter` on the partitions."""

    __slots__ = (
        "_completing",
        "_is_kept",
        "_kept_bytes",
        "_leaders",
        "_no_memory",
        "_open",
        "_ticket",
        "_unverified",
        "_wanted",
        "deferred",
        "header",
        "throttle_ms",
        "topics",
    )

    def __init__(self, connection: Connection, header: RequestHeader, request: ProduceRequest) -> None:
        self.connection = connection
        self.buffers = None
        self.overlaps = True
        self.header = header
        self.throttle_ms = 0
        self.topics: list[tuple[TopicKey, list[ProducedPartition]]] = []
        self._wanted = request
        self._open: dict[Partition, BatchPosition] = {}
        """The batches that are not committed."""
        self.deferred: dict[tuple[TopicKey, int], DeferredBatch] = {}
        """Batches that need several turns to check their records."""
        self._leaders: set[int] = set()
        self._ticket = NOTHING
        self._completing = True
        self._kept_bytes = 0
        self._is_kept = False
        self._no_memory: KafkaError | None = None
        """Why the remaining batches are refused, if there was no memory to keep them for later."""
        self._unverified: dict[tuple[TopicKey, int], KafkaError] = {}
        """The batches that were not appended because their transaction was not verified, and why."""

    def refuse_denied(self) -> None:
        """Refuse the topics to which the sender may not write. The rest is handled as if they were not there."""
        wanted, allowed, denied = self._wanted.topics, [], set()
        for topic, batches in wanted:
            name = refused_topic(self.connection, Operation.WRITE, topic)
            if name is None:
                allowed.append((topic, batches))
            else:
                denied.add(name)
                code = TopicAuthorizationFailed.code
                self.topics.append((topic, [ProducedPartition(index, code) for index, _ in batches]))
        if denied:
            wanted[:] = allowed
            note_refusal(self.connection, Operation.WRITE, TOPIC, denied)

    def begin_verification(self) -> bool:
        """Return whether a transaction may need verification first. Then all is appended and completed later."""
        wanted = self._wanted
        assert wanted.transactional_id is not None
        asked = VerificationRequests(self.connection.server.broker.verifier, wanted.transactional_id)
        is_large = sum([len(batches) for _, batches in wanted.topics]) > BATCHES_AT_ONCE
        if not is_large:
            for topic, batches in wanted.topics:
                for index, records in batches:
                    asked.add(topic, index, records)
            if not asked:
                return False
            if self.connection.server.memory.unappended.is_full:
                self._unverified = dict.fromkeys(asked.topic_partitions(), _no_memory())
                return False
        self.keep_batches()
        self.respond_after(self._verify(asked, is_large=is_large))
        return True

    async def _verify(self, asked: VerificationRequests, *, is_large: bool) -> None:
        if is_large and self._no_memory is None:
            rows = ((topic, *batch) for topic, batches in self._wanted.topics for batch in batches)
            await each_part(self.connection.server.broker.env, rows, lambda row: asked.add(*row))
        if asked:
            self._unverified = await asked.refused(_dialect(self.header.api_version))
        await self.append_in_turns(self.append())

    def keep_batches(self) -> None:
        """Keep what is to be appended later. Without memory, keep only what it takes to refuse it later."""
        self._is_kept = True
        account = self.connection.server.memory.unappended
        keep: Callable[[memoryview], memoryview] = self.connection.keep_bytes
        if account.is_full:
            self._no_memory, keep = _no_memory(), _header_of
        else:
            each_topic = [
                [len(records or b"") for _, records in batches] for _, batches in self._wanted.topics
            ]
            size = sum(map(sum, each_topic))
            self._kept_bytes += size
            account.acquire(size)
        for _, batches in self._wanted.topics:
            batches[:] = [(index, None if records is None else keep(records)) for index, records in batches]

    def _keep_records(self, records: memoryview) -> memoryview:
        """Return the records in memory that stays valid until they are appended; it is counted in the account."""
        self.connection.server.memory.unappended.acquire(len(records))
        self._kept_bytes += len(records)
        return self.connection.keep_bytes(records)

    def _release_batches(self) -> None:
        """Release the kept records: this may wait for a commit for long, even after its connection has closed."""
        self.deferred.clear()
        size, self._kept_bytes = self._kept_bytes, 0
        self.connection.server.memory.unappended.release(size)

    async def append_in_turns(self, steps: Iterator[None]) -> None:
        """Continue what `append` or `refuse` began, then check batches that need several turns."""
        env = self.connection.server.broker.env
        if self.connection.is_open:
            await run_steps(env, steps, goes_on=lambda: self.connection.is_open)
        if self.connection.is_open:
            await self.append_deferred()

    def append(self) -> Iterator[None]:
        """Append each batch; yield between slices of work.

        With acks=-1 what was appended stays open until it is committed.
        """
        broker = self.connection.server.broker
        now_ms = max(broker.env.wall_clock_ms(), broker.env.ages.floor_ms)
        acks = self._wanted.acks
        left, bytes_left = BATCHES_AT_ONCE, BYTES_AT_ONCE
        for topic, batches in self._wanted.topics:
            results: list[ProducedPartition] = []
            self.topics.append((topic, results))
            for position in range(len(batches)):
                if left <= 0 or bytes_left <= 0:
                    yield
                    left, bytes_left = BATCHES_AT_ONCE, BYTES_AT_ONCE
                index, records = batches[
                    position
                ]  # here: meanwhile they may have been copied (`keep_batches`)
                left -= 1
                bytes_left -= len(records) if records is not None else 0
                log = None
                try:
                    partition = locate(broker, topic, index)
                    if partition.topic in INTERNAL_TOPICS:
                        raise InvalidTopic(f"clients may not write to {partition.topic}")
                    if records is None or partition in self._open or (topic, index) in self.deferred:
                        raise InvalidRecord(
                            "a produce request must have exactly one batch for each partition"
                        )
                    if self._no_memory is not None:
                        raise self._no_memory
                    if self._unverified and (topic, index) in self._unverified:
                        raise self._unverified[topic, index]
                    if (
                        len(records) > ATTRIBUTES_BYTE
                        and records[ATTRIBUTES_BYTE] & SUSPECT_ATTRIBUTES
                        and records[MAGIC_BYTE] == MAGIC
                    ):
                        self._check_attributes(records[ATTRIBUTES_BYTE])
                    log = partition
                    appended = partition.append_produced(records, acks=acks, now_ms=now_ms)
                except KafkaError as error:
                    results.append(self._refused(topic, index, records, error, log=log))
                    continue
                except NeedsStepwiseValidation:
                    assert records is not None
                    if not self._is_kept and self.connection.server.memory.unappended.is_full:
                        results.append(self._refused(topic, index, records, _no_memory()))
                        continue
                    kept = records if self._is_kept else self._keep_records(records)
                    self.deferred[topic, index] = DeferredBatch(topic, index, kept, results, len(results))
                    results.append(ProducedPartition(index))
                    continue
                if acks == ALL_ACKS:
                    self._open[partition] = BatchPosition(topic, results, len(results), appended.end_offset)
                results.append(
                    ProducedPartition(
                        index,
                        0,
                        appended.base_offset,
                        appended.log_append_time_ms,
                        appended.log_start_offset,
                    )
                )

    async def append_deferred(self) -> None:
        """Append batches that need several turns."""
        for each in self.deferred.values():
            if self.connection.is_open:
                await self._append_deferred(each)

    def respond_after(self, work: Coroutine[None, None, None]) -> None:
        """Respond after this work. Later requests on this connection wait, to stay in order."""
        self.overlaps = False
        self.connection.spawn(self._conclude(work))

    async def _conclude(self, work: Coroutine[None, None, None]) -> None:
        connection = self.connection
        try:
            await connection.server.long_turns.timed(API_KEY, work, connection.record_turn)
        finally:
            self._release_batches()
        if not connection.is_open:
            return
        if self._wanted.acks == NO_ACKS:
            del self._wanted  # this may stand behind a request that waits for its commit
            _close_on_error(connection, self)
            self.answer(())
        elif (buffers := self.try_complete()) is not None:
            self.answer(buffers)
        else:
            connection.responses.overlap(self)

    async def _append_deferred(self, each: DeferredBatch) -> None:
        server, acks = self.connection.server, self._wanted.acks
        broker = server.broker
        log = None
        try:
            log = locate(broker, each.topic, each.partition)
            memory = server.memory.unappended
            async with server.walk_lock:
                walked = await walk_records(broker.env, each.records, log.config, memory=memory)
            await check_schemas(
                broker.check_by_schemas, log, each.records, walked, memory=memory, client=self.connection
            )
            if not self.connection.is_open:
                return
            partition = locate(broker, each.topic, each.partition)  # of now
            appended = partition.append_produced(
                walked.records,
                acks=acks,
                now_ms=broker.env.ages.latest_ms(),
                max_timestamp=walked.max_timestamp,
            )
        except ConnectionAbortedError:  # while it was checked
            return
        except KafkaError as error:
            each.results[each.position] = self._refused(
                each.topic, each.partition, each.records, error, log=log
            )
            return
        if acks == ALL_ACKS:
            self._open[partition] = BatchPosition(
                each.topic, each.results, each.position, appended.end_offset
            )
        each.results[each.position] = ProducedPartition(
            each.partition, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        )

    def _check_attributes(self, attributes: int) -> None:
        """Refuse what this API's version forbids; the partition checks the rules of the log."""
        if attributes & TRANSACTIONAL_BIT and not self._wanted.transactional_id:
            raise TransactionalIdAuthorizationFailed("a transactional batch needs a transactional id")
        if attributes & CODEC_MASK == ZSTD and self.header.api_version < FIRST_ZSTD_VERSION:
            raise UnsupportedCompressionType("zstd needs Produce version 7 (KIP-110)")

    def refuse(self, error: KafkaError) -> Iterator[None]:
        """Fail each partition with the same error, and append no records; yield as `append` does."""
        left = BATCHES_AT_ONCE
        for topic, batches in self._wanted.topics:
            if left <= 0:
                yield
                left = BATCHES_AT_ONCE
            left -= 1 + len(batches)
            code, message = error.code, error.message
            refused = [ProducedPartition(index, code, error_message=message) for index, _ in batches]
            self.topics.append((topic, refused))

    def try_complete(self) -> tuple[bytes] | None:
        """Return the response if all records are committed, otherwise wait for their commit and return None.

        Call it once.
        """
        timeout_ms = max(0, self._wanted.timeout_ms)
        del self._wanted  # it refers to the receive buffer
        for partition, appended_at in tuple(self._open.items()):
            partition.await_commit(appended_at.end_offset, self)
        self._completing = False
        if not self._open:
            return self._encode()
        self._ticket = self.connection.server.deadlines.add(self, timeout_ms)
        return None

    def committed(self, partition: Partition) -> None:
        """Note that the partition's high watermark passed this request's records."""
        try:
            if self._open.pop(partition, None) is not None and not self._open and not self._completing:
                self._respond()
        except Exception:  # it may be another connection's request that committed this
            self.connection.crash("committed")

    def failed(self, partition: Partition, error: KafkaError) -> None:
        """Note that a partition failed: its records may be committed later, or never."""
        appended_at = self._open.get(partition)
        if appended_at is not None:
            self.connection.run_guarded(self._fail, appended_at, error)
            self.committed(partition)

    def expired(self) -> None:
        """Complete after the client's timeout."""
        self._ticket = NOTHING
        for appended_at in self._open.values():
            self._fail(appended_at, RequestTimedOut())
        self._open.clear()
        self._respond()

    def abandoned(self) -> None:
        self._open.clear()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._ticket != NOTHING:
            self.connection.server.deadlines.remove(self, self._ticket)
            self._ticket = NOTHING

    def _fail(self, appended_at: BatchPosition, error: KafkaError) -> None:
        results, position = appended_at.results, appended_at.position
        results[position] = self._failure(appended_at.topic, results[position].partition, error)

    def _refused(
        self,
        topic: TopicKey,
        index: int,
        records: memoryview | None,
        error: KafkaError,
        *,
        log: Partition | None = None,
    ) -> ProducedPartition:
        """Return the result of a batch that was not appended.

        If its producer may retry it, later batches of the producer must wait. Otherwise a new leader would take them
        for the producer's first.
        """
        passes = error.retriable and error.code != CorruptMessage.code  # then the producer is unknown
        if records is not None and (passes or (topic, index) in self._unverified):
            broker = self.connection.server.broker
            replica = find_replica(broker, topic, index)
            if replica is not None:
                replica.note_refused_batch(records, error)
            elif may_be_made_here(broker, topic, index):
                broker.replicas.early_batches.note(topic, index, records, error)
        return self._failure(topic, index, error, log=log)

    def _failure(
        self, topic: TopicKey, index: int, error: KafkaError, *, log: Partition | None = None
    ) -> ProducedPartition:
        """Return the response for an error.

        It includes the start of the log that rejected the batch, if there is such a log.
        """
        leader = None
        if error.code in MOVED and self.header.api_version >= FIRST_LEADER_HINT_VERSION:
            leader = current_leader(self.connection.server.broker, topic, index)
            if leader is not None:
                self._leaders.add(leader[0])
        return ProducedPartition(
            index,
            error.code,
            log_start_offset=-1 if log is None or isinstance(error, BEFORE_THE_LOG) else log.log_start_offset,
            error_message=error.message,
            leader=leader,
            record_errors=error.record_errors,
        )

    def _respond(self) -> None:
        self._stop_waiting()
        self.answer(self._encode())

    def _encode(self) -> tuple[bytes]:
        _, version, correlation_id, _ = self.header
        connection, leaders = self.connection, self._leaders
        endpoints = endpoints_of(connection.server.broker, leaders, connection.listener) if leaders else ()
        frame = encode_produce_response(
            version, correlation_id, self.topics, throttle_ms=self.throttle_ms, endpoints=endpoints
        )
        return (frame,)


API: Final = Api(
    key=API_KEY,
    handle=None,
    needs=DemandedPerPart(
        (Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID), Right(Operation.WRITE, ResourceType.TOPIC))
    ),
    max_parts=MAX_PRODUCE_ELEMENTS,
    audit=NoChange(),
    controllers=False,
    prepared=(13,),
)
