"""Writes records to one topic: batches by partition, one batch of a partition under way, in order.

With acks=all the producer is idempotent (KIP-98): it has a producer id, and numbers the records of each partition. A
batch without an acknowledgement is sent again with the same bytes, and the leader recognizes its sequence. So no
record is lost or written twice, however often a batch is sent. With acks=1 a batch that is sent again may be written
twice; with acks=0 no record is acknowledged. A batch that a broker refuses for good at the first attempt was not
written, so the next batch takes over its sequence. After a retry, an earlier attempt may have written it. The
leader would take the next batch for a repetition of it, so the partition goes on with another producer id.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raftlog.base.errors import DuplicateSequenceNumber, KafkaError, from_code
from raftlog.client.cluster import RETRY_S, Cluster, is_retriable
from raftlog.client.connection import Connection
from raftlog.client.errors import NotConnected, Unreachable
from raftlog.client.metadata import TopicMetadata
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.records.batch import NO_PRODUCER, ProducerIdAndSequence, Record, build_batch, name_bytes
from raftlog.records.header import MAX_SEQUENCE
from raftlog.records.partitioner import partition_of_key

ALL: Final = -1
BATCH_BYTES: Final = 1_000_000
"""The plain bytes of a batch, below the default of max.message.bytes."""
STICKY_BYTES: Final = 16_384
"""After so many plain bytes, records without a key go to the next partition: Kafka's batch.size (KIP-794)."""
BUFFER_BYTES: Final = 8_000_000
"""The plain bytes that wait for `flush`, over all partitions."""
RECORD_OVERHEAD: Final = 24
"""Bytes of a record besides key, value and headers, about."""
REQUEST_TIMEOUT_MS: Final = 30_000
CREATED_WITHIN_S: Final = 5.0
"""How long a topic may be unknown that the request for its metadata creates."""


@dataclass(slots=True)
class Batch:
    """Records of one partition. `sealed` is what is sent in every attempt, with this producer id and sequence."""

    records: list[Record] = field(default_factory=list)
    size: int = 0
    attempts: int = 0
    producer: ProducerIdAndSequence = NO_PRODUCER
    sealed: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """Records that a broker refused for good."""

    error: KafkaError
    records: Sequence[Record]


class Producer:
    """Buffers records until `flush`. It opens the topic at once; `failures` has the records that were refused."""

    def __init__(self, cluster: Cluster, topic: str, *, acks: int, codec: int, idempotent: bool) -> None:
        """Raise KafkaError, Unreachable or Refused if the topic cannot be written to."""
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._codec = codec
        self.failures: list[Failed] = []
        self._queues: defaultdict[int, deque[Batch]] = defaultdict(deque)
        self._bytes = 0
        self._next: dict[int, ProducerIdAndSequence] = {}
        """The producer id and sequence of the next batch, by partition; the first batch has `_first`."""
        self._connections: dict[int, Connection] = {}
        self.partitions = self._open_topic().partitions
        self._first = self._init_producer_id() if idempotent else NO_PRODUCER
        self.acknowledged: Counter[int] = Counter()
        """How many records were acknowledged, or sent with acks=0, by partition."""
        self._keyless = self._any_partition()
        self._keyless_bytes = 0

    @property
    def unsent(self) -> int:
        """The number of records that are neither acknowledged nor refused."""
        return sum(len(batch.records) for queue in self._queues.values() for batch in queue)

    def close(self) -> None:
        for each in self._connections.values():
            each.close()

    def send(self, record: Record, partition: int = -1) -> None:
        """Buffer a record, by default in the partition that its key means. Full buffers are flushed."""
        size = size_of(record)
        if partition < 0 and record.key is not None:
            partition = partition_of_key(record.key, len(self.partitions))
        elif partition < 0:
            partition = self._keyless_partition(size)
        queue = self._queues[partition]
        if not queue or queue[-1].sealed or queue[-1].size + size > BATCH_BYTES:
            queue.append(Batch())
        queue[-1].records.append(record)
        queue[-1].size += size
        self._bytes += size
        if self._bytes > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is buffered, until each record is acknowledged or refused.

        Raise Unreachable if no record is for the timeout of the cluster.
        """
        heard_at = time.monotonic()
        while waiting := {number: queue[0] for number, queue in self._queues.items() if queue}:
            results, reason = self._send_round(waiting)
            if any(not is_retriable(code) for code, _ in results.values()):
                heard_at = time.monotonic()
            for number, (code, message) in results.items():
                reason = self._settle(number, code, message) or reason
            if reason:
                if time.monotonic() - heard_at > self._cluster.timeout_s:
                    raise Unreachable(reason)
                time.sleep(RETRY_S)
                self.partitions = self._open_topic().partitions or self.partitions
        self._bytes = 0
        self._keyless_bytes = STICKY_BYTES  # the next record without a key goes to the next partition

    def _settle(self, number: int, code: int, message: str | None) -> str:
        """Account for the result of a partition's first batch; return why it has to be sent again, or ""."""
        error = from_code(code, message)
        if is_retriable(code):
            return str(error)
        batch = self._queues[number][0]
        if not code or isinstance(error, DuplicateSequenceNumber):
            following = (batch.producer.base_sequence + len(batch.records)) & MAX_SEQUENCE
            self._next[number] = batch.producer._replace(base_sequence=following)
            self.acknowledged[number] += len(batch.records)
        else:
            if batch.attempts > 1 and self._first is not NO_PRODUCER:
                self._next[number] = self._init_producer_id()
            self.failures.append(Failed(error, batch.records))
        self._queues[number].popleft()  # last: a signal may interrupt this anywhere
        return ""

    # Requests.

    def _open_topic(self) -> TopicMetadata:
        """Return the topic's metadata, once it is known. Raise KafkaError, Unreachable, Refused."""
        deadline = time.monotonic() + min(CREATED_WITHIN_S, self._cluster.timeout_s)
        while True:
            found = self._cluster.metadata([self._topic], create=True).topics[self._topic]
            error = from_code(found.error_code)
            if not found.error_code:
                return found
            if not error.retriable or time.monotonic() > deadline:
                raise error
            time.sleep(RETRY_S)

    def _init_producer_id(self) -> ProducerIdAndSequence:
        made = self._cluster.ask(
            ApiKey.INIT_PRODUCER_ID,
            lambda make: make.InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout=REQUEST_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            ),
        )
        return ProducerIdAndSequence(made.producer_id, made.producer_epoch, 0)

    def _keyless_partition(self, size: int) -> int:
        """Return the partition for a record without a key: the same for STICKY_BYTES, then the next with a leader."""
        if self._keyless_bytes >= STICKY_BYTES:
            led = self._led_partitions()
            self._keyless = next((each for each in led if each > self._keyless), led[0])
            self._keyless_bytes = 0
        self._keyless_bytes += size
        return self._keyless

    def _any_partition(self) -> int:
        return random.choice(self._led_partitions())

    def _led_partitions(self) -> list[int]:
        """Return the partitions with a leader, or all if none has one."""
        led = [each.id for each in self.partitions.values() if each.leader >= 0]
        return sorted(led or self.partitions)

    def _send_round(self, waiting: dict[int, Batch]) -> tuple[dict[int, tuple[int, str | None]], str]:
        """Send one batch of each partition. Return (code, message) by partition, and a reason if some got none."""
        by_leader: defaultdict[int, dict[int, Batch]] = defaultdict(dict)
        for number, batch in waiting.items():
            known = self.partitions.get(number)
            by_leader[-1 if known is None else known.leader][number] = batch
        results: dict[int, tuple[int, str | None]] = {}
        leaderless = by_leader.pop(-1, None)
        reason = f"partition {min(leaderless)} has no leader" if leaderless else ""
        sent: list[tuple[int, Connection, dict[int, Batch]]] = []
        try:
            for leader, batches in by_leader.items():
                try:
                    sent.append((leader, self._send(leader, batches), batches))
                except NotConnected as error:
                    reason = str(error.with_duty(self._duty(batches)))
                except OSError as error:
                    reason = self._lost(leader, batches, error)
            for leader, connection, batches in sent:
                try:
                    received = _read_results(connection.receive()) if self._acks else {}
                except OSError as error:
                    reason = self._lost(leader, batches, error)
                    continue
                for number in batches:
                    if not self._acks:
                        results[number] = (0, None)
                    elif number in received:
                        results[number] = received[number]
                    else:
                        reason = f"the response leaves out partition {number}"
        except BaseException:  # a response that is still under way would be taken for the next batch's
            self.close()
            raise
        return results, reason

    def _duty(self, batches: dict[int, Batch]) -> str:
        return f"leads {self._topic}-{min(batches)}"

    def _lost(self, leader: int, batches: dict[int, Batch], error: OSError) -> str:
        """Return why a leader's batches have no result."""
        return str(Unreachable(error.strerror or str(error), broker=leader, duty=self._duty(batches)))

    def _send(self, leader: int, batches: dict[int, Batch]) -> Connection:
        connection = self._connections.get(leader)
        if connection is None or connection.is_closed:
            deadline = time.monotonic() + self._cluster.timeout_s
            connection = self._connections[leader] = self._cluster.open(leader, deadline)
        connection.set_timeout(max(self._cluster.timeout_s, 2 * REQUEST_TIMEOUT_MS / 1000))
        version = connection.version_of(ApiKey.PRODUCE)
        make = request_builders(ApiKey.PRODUCE, version)
        data = tuple(
            make.PartitionProduceData(index=number, records=self._seal(number, batch))
            for number, batch in batches.items()
        )
        request = make.ProduceRequest(
            transactional_id=None,
            acks=self._acks,
            timeout=REQUEST_TIMEOUT_MS,
            topic_data=(make.TopicProduceData(name=self._topic, partition_data=data),),
        )
        connection.send(ApiKey.PRODUCE, version, request, is_answered=self._acks != 0)
        return connection

    def _seal(self, number: int, batch: Batch) -> bytes:
        """Return the bytes of a batch: the same bytes in each attempt."""
        if not batch.sealed:
            if self._first is not NO_PRODUCER:
                batch.producer = self._next.get(number, self._first)
            batch.sealed = build_batch(batch.records, codec=self._codec, producer=batch.producer)
        batch.attempts += 1
        return batch.sealed


def size_of(record: Record) -> int:
    """Return the plain bytes of a record in a batch, about and at most."""
    headers = sum(len(name_bytes(name)) + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD


def _read_results(response: Any) -> dict[int, tuple[int, str | None]]:
    return {
        each.index: (each.error_code, getattr(each, "error_message", None))
        for topic in response.responses
        for each in topic.partition_responses
    }
