"""Has a transaction's coordinator verify that partitions of this broker are part of it, or add them (KIP-890).

Producers since Produce 12 (transaction.version 2) no longer add partitions themselves: their first batch does. For
other producers the coordinator only verifies. The response is translated to errors that a producer of that version can
handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.errors import (
    NONE,
    BrokerNotAvailable,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    Network,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.base.log import get_logger
from raftlog.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.coordination.shards import transaction_coordinator
from raftlog.broker.coordination.transaction_deadlines import VERIFIED_S
from raftlog.broker.links.broker_links import LinkKey
from raftlog.broker.local_broker import LocalBroker
from raftlog.broker.long_work.turns import each_part
from raftlog.broker.partition_lookup import TopicKey, by_topic, locate
from raftlog.coordinator.java_hash import partition_for
from raftlog.protocol.message_builders import request_builders
from raftlog.records.header import read_header

if TYPE_CHECKING:
    from raftlog.replication.partition import Partition
    from raftlog.storage.verification import Verification

ADD_PARTITIONS_TO_TXN: Final = 24
VERSION: Final = 5

RETRY_S: Final = 0.02
"""add.partitions.to.txn.retry.backoff.ms: the previous transaction is still ending."""

RETRY_FOR_S: Final = 0.1
"""add.partitions.to.txn.retry.backoff.max.ms."""

MAX_PRODUCERS_PER_REQUEST: Final = 500
"""Transactions in one request."""

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""The maximum number of partitions in a request, over all its transactions. A larger transaction is sent alone."""

NO_PARTITION: Final = -1
"""Partitions of `__transaction_state`, while that does not exist."""

VOID: Final = "a marker was written meanwhile: retry"
"""The error message of a batch if its verification was void when the response came."""

Codes = dict[TopicPartition, int]

log = get_logger(__name__)


class ProducerApiLevel(Enum):
    """The level of KIP-890 that a client's version of an API understands."""

    OLD = "knows INVALID_TXN_STATE"
    ABORTABLE = "knows TRANSACTION_ABORTABLE"
    ADDS = "leaves adding partitions to the broker"


class TransactionalProducer(NamedTuple):
    """The producer that claims to write in the transaction of an id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class PendingVerification(NamedTuple):
    """One transaction's partitions on their way to its coordinator."""

    writer: TransactionalProducer
    topic_partitions: list[TopicPartition]
    verify_only: bool
    answer: asyncio.Future[Codes]


class TransactionVerifier:
    """Sends one request at a time on each link, with all transactions queued by then. Each waits for its commit.

    Producers retry a coordinator that could not commit in time. So ids with a partition that was late the last time
    use the slow link.
    """

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self._queues: dict[LinkKey, list[PendingVerification]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slow: set[int] = set()
        """Partitions of the transactional ids."""

    async def verify(
        self,
        writer: TransactionalProducer,
        topic_partitions: Iterable[TopicPartition],
        *,
        dialect: ProducerApiLevel,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Return for each partition None if it is part of the transaction, otherwise the coordinator's error."""
        wanted = list(topic_partitions)
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + RETRY_FOR_S
        while True:
            try:
                codes = await self._ask(writer, wanted, verify_only=dialect is not ProducerApiLevel.ADDS)
            except KafkaError:
                codes = dict.fromkeys(wanted, Network.code)
            busy = ConcurrentTransactions.code in codes.values()
            if not (busy and dialect is ProducerApiLevel.ADDS) or clock() + RETRY_S > give_up_at:
                return {tp: _refusal(codes[tp], dialect) for tp in wanted}
            await asyncio.sleep(RETRY_S)

    async def _ask(
        self, writer: TransactionalProducer, topic_partitions: list[TopicPartition], *, verify_only: bool
    ) -> Codes:
        """Return the coordinator's codes. Raises KafkaError if the request could not be sent."""
        coordinator = transaction_coordinator(self.broker.image(), writer.transactional_id)
        loop = asyncio.get_running_loop()
        asked = PendingVerification(writer, topic_partitions, verify_only, loop.create_future())
        link = LinkKey(coordinator, self._partition(writer) in self._slow)
        queue = self._queues.get(link)
        if queue is None:
            self._queues[link] = [asked]
            task = loop.create_task(self._work_off(link))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            queue.append(asked)
        return await asked.answer

    def _partition(self, writer: TransactionalProducer) -> int:
        topic = self.broker.image().topics.get(TRANSACTION_STATE_TOPIC)
        return partition_for(writer.transactional_id, len(topic.partitions)) if topic else NO_PARTITION

    async def _work_off(self, link: LinkKey) -> None:
        batch: list[PendingVerification] = []
        try:
            while batch := _first_of(self._queues[link]):
                del self._queues[link][: len(batch)]
                await self._send(link, batch)
        except Exception:
            self.broker.env.on_bug()
            log.exception("confirmations_crashed", coordinator=link.broker_id)
        finally:
            for each in (*batch, *self._queues.pop(link)):
                if not each.answer.done():
                    each.answer.set_exception(BrokerNotAvailable("the coordinator was not asked"))

    async def _send(self, link: LinkKey, batch: list[PendingVerification]) -> None:
        make = request_builders(ADD_PARTITIONS_TO_TXN, VERSION)

        def transaction(each: PendingVerification) -> Any:
            topics = tuple(
                make.AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes))
                for topic, indexes in by_topic(each.topic_partitions).items()
            )
            return make.AddPartitionsToTxnTransaction(
                **each.writer._asdict(), verify_only=each.verify_only, topics=topics
            )

        transactions = await each_part(self.broker.env, batch, transaction)
        message = make.AddPartitionsToTxnRequest(transactions=tuple(transactions))
        try:
            answer = await self.broker.links.ask(
                link.broker_id,
                ADD_PARTITIONS_TO_TXN,
                VERSION,
                message,
                timeout_s=VERIFIED_S,
                is_slow=link.is_slow,
            )
        except KafkaError as error:
            _refuse(batch, error)
            return
        if answer.error_code != NONE:
            _refuse(batch, from_code(answer.error_code))
            return
        if len(answer.results_by_transaction) != len(batch):
            _refuse(batch, BrokerNotAvailable("the coordinator answered something else"))
            return

        def note(each: PendingVerification, result: Any) -> None:
            codes = _codes(result, each.topic_partitions)
            self._note(each.writer, is_slow=CoordinatorNotAvailable.code in codes.values())
            if not each.answer.done():
                each.answer.set_result(codes)

        results = zip(batch, answer.results_by_transaction, strict=True)
        await each_part(self.broker.env, results, lambda row: note(*row))

    def _note(self, writer: TransactionalProducer, *, is_slow: bool) -> None:
        if is_slow:
            self._slow.add(self._partition(writer))
        else:
            self._slow.discard(self._partition(writer))


def _first_of(queue: list[PendingVerification]) -> list[PendingVerification]:
    """Return the transactions for the next request: at least one transaction, however many partitions it has."""
    topic_partitions = accumulate(len(each.topic_partitions) for each in queue[:MAX_PRODUCERS_PER_REQUEST])
    return queue[: max(1, sum(total <= MAX_PARTITIONS_PER_REQUEST for total in topic_partitions))]


def _refuse(batch: list[PendingVerification], error: KafkaError) -> None:
    for each in batch:
        if not each.answer.done():
            each.answer.set_exception(error)


def _codes(result: Any, topic_partitions: list[TopicPartition]) -> Codes:
    """Treat a partition that is missing from the coordinator's response as not verified."""
    codes = dict.fromkeys(topic_partitions, Network.code)
    for topic in result.topic_results:
        for each in topic.results_by_partition:
            codes[TopicPartition(topic.name, each.partition_index)] = int(each.partition_error_code)
    return codes


RETRIABLE_CODES: Final = frozenset(
    error.code
    for error in (
        ConcurrentTransactions,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        Network,
        NotCoordinator,
        OperationNotAttempted,
        UnknownTopicOrPartition,
    )
)
"""Error codes that need a retry. A partition unknown to the coordinator may be too new for its image."""


def _refusal(code: int, dialect: ProducerApiLevel) -> KafkaError | None:
    """NOT_ENOUGH_REPLICAS is an error that every client retries without looking for another leader first."""
    if code == NONE:
        return None
    error = from_code(code)
    if code == ConcurrentTransactions.code and dialect is ProducerApiLevel.ADDS:
        return error
    if code in RETRIABLE_CODES:
        return NotEnoughReplicas(f"the transaction could not be verified: {type(error).__name__}")
    if code == ProducerFenced.code:
        return InvalidProducerEpoch("the transaction is a newer producer's")
    if code == TransactionAbortable.code and dialect is ProducerApiLevel.OLD:
        return InvalidTxnState("the partition was not added to the transaction")
    return error


class VerificationRequest(NamedTuple):
    """One batch of a request. `tp` is as the request names it."""

    tp: tuple[TopicKey, int]
    partition: Partition
    leader_epoch: int
    verification: Verification


class VerificationRequests:
    """The partitions of a produce request that have to be verified before it is appended. False if there are none."""

    __slots__ = ("_asked", "_transactional_id", "_verifier")

    def __init__(self, verifier: TransactionVerifier, transactional_id: str) -> None:
        self._verifier = verifier
        self._transactional_id = transactional_id
        self._asked: dict[TransactionalProducer, list[VerificationRequest]] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def add(self, topic: TopicKey, index: int, records: memoryview | None) -> None:
        """Check whether a batch needs verification. Other errors in it are reported when it is appended."""
        try:
            header = read_header(records or b"")
            if not header.is_transactional:
                return
            partition = locate(self._verifier.broker, topic, index)
            verification = partition.begin_verification(header.producer_id, header.producer_epoch)
        except KafkaError:
            return
        if verification is not None:
            whose = TransactionalProducer(self._transactional_id, header.producer_id, header.producer_epoch)
            question = VerificationRequest((topic, index), partition, partition.leader_epoch, verification)
            self._asked.setdefault(whose, []).append(question)

    def topic_partitions(self) -> Iterator[tuple[TopicKey, int]]:
        """Yield the batches that have to be verified, as the request names them."""
        for questions in self._asked.values():
            for each in questions:
                yield each.tp

    async def refused(self, dialect: ProducerApiLevel) -> dict[tuple[TopicKey, int], KafkaError]:
        """Send the requests, and return the batches that must not be appended, with their errors."""
        refused: dict[tuple[TopicKey, int], KafkaError] = {}

        def judge(each: VerificationRequest, error: KafkaError | None) -> None:
            if each.partition.leader_epoch != each.leader_epoch:
                refused[each.tp] = NotLeaderOrFollower()
            elif error is not None:
                refused[each.tp] = error
            elif not each.verification.confirm(supports_epoch_bump=dialect is ProducerApiLevel.ADDS):
                refused[each.tp] = NotEnoughReplicas(VOID)

        async def ask(asked: tuple[TransactionalProducer, list[VerificationRequest]]) -> None:
            writer, questions = asked
            names = [each.partition.name for each in questions]
            answers = await self._verifier.verify(writer, names, dialect=dialect)
            env = self._verifier.broker.env
            await each_part(env, questions, lambda each: judge(each, answers[each.partition.name]))

        _: list[None] = await each_part(
            self._verifier.broker.env, self._asked.items(), ask, size_of=lambda asked: len(asked[1])
        )
        return refused
