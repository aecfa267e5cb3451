"""Produce in transactions: verified once, in order, and refused in words that a client of that age knows (KIP-890)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from raftlog.base.config import TopicConfig
from raftlog.base.errors import BrokerNotAvailable, CoordinatorNotAvailable, KafkaError
from raftlog.broker.context import RequestContext
from raftlog.broker.coordination.transaction_verification import (
    ADD_PARTITIONS_TO_TXN,
    VERSION,
    TransactionVerifier,
)
from raftlog.broker.handlers import describe_producers
from raftlog.broker.long_work.turns import completed
from raftlog.metadata.image import PartitionState
from raftlog.protocol.codec import (
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
)
from raftlog.protocol.message_builders import build_response, request_builders, response_builders
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog.replication.replica_host import TxnMarker
from tests.broker.coordination.group_broker import TRANSACTIONS
from tests.broker.fakes import TOPIC, FakeClient, FakePartitionServer, produce
from tests.broker.test_call_budget import lead
from tests.kit.waits import PATIENCE_S
from tests.replication.replica_cluster import NOW_MS, FakeHost, registrations

PRODUCER = 9


class Coordinator:
    """Both ports at once: the coordinator's address, and the link to it. Responds with `code` when released."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.asked: list[Any] = []
        self.error: KafkaError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, broker_id: int, api_key: int, version: int, message: Any, **_: Any) -> Any:
        assert (broker_id, api_key, version) == (2, ADD_PARTITIONS_TO_TXN, VERSION)
        frame = encode_request(RequestHeader(api_key, version, 1, "b"), message)[4:]
        decoded = decode_request(api_key, version, memoryview(frame), decode_header(memoryview(frame))[1])
        (transaction,) = decoded.transactions
        self.asked.append(transaction)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        code = self.codes.pop(0) if self.codes else 0
        make = response_builders(api_key, version)
        topics = tuple(
            make.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    make.AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in transaction.topics
        )
        result = make.AddPartitionsToTxnResult(transactional_id="tx", topic_results=topics)
        return build_response(api_key, version, results_by_transaction=(result,))


class VerifyingBroker:
    """A broker that leads two real partitions alone, and the coordinator's end of its link."""

    def __init__(self, folder: Path) -> None:
        self.host = FakeHost(1, registrations([1]))
        self.partitions = [lead(self.host, folder, index) for index in range(2)]
        self.fake = FakePartitionServer(*self.partitions)  # type: ignore[arg-type]
        self.fake.broker.env.wall_clock_ms = lambda: NOW_MS
        self.coordinator = Coordinator()
        self.fake.broker.links = self.coordinator
        self.fake.broker.verifier = TransactionVerifier(self.fake.broker)
        topics = {**self.fake.image.topics, TRANSACTIONS.name: TRANSACTIONS}
        self.fake.image = replace(self.fake.image, topics=topics)
        self.pipe = self.fake.connect()

    async def run_pending(self) -> None:
        for _ in range(20):
            self.host.flush()
            await asyncio.sleep(0)

    async def send(self, *frames: bytes) -> None:
        self.pipe.send(*frames)
        await self.run_pending()

    def codes(self, version: int = 9) -> list[tuple[int, int]]:
        """(error code, base offset) of what was answered since the last call."""
        return codes(self.pipe, version)


def codes(pipe: FakeClient, version: int) -> list[tuple[int, int]]:
    return [
        (each.error_code, each.base_offset)
        for frame in pipe.frames()
        for topic in decode_response(0, version, frame)[1].responses
        for each in topic.partition_responses
    ]


def batch(sequence: int, *, epoch: int = 0, transactional: bool = True) -> bytes:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    records = [new_record(None, b"v", timestamp=NOW_MS)]
    return build_batch(
        records, producer=ProducerIdAndSequence(PRODUCER, epoch, sequence), attributes=attributes
    )


def request(correlation_id: int, *batches: tuple[int, bytes], version: int = 9, acks: int = -1) -> bytes:
    return produce(correlation_id, *batches, version=version, acks=acks, transactional_id="tx")


@pytest.mark.parametrize(("version", "verify_only"), [(3, True), (11, True), (12, False)])
async def test_the_first_batch_of_a_transaction_is_verified_and_no_other(
    tmp_path: Path, version: int, verify_only: bool
) -> None:
    """Up to Produce 11 the coordinator looks, from 12 on it adds the partition (transaction.version 2)."""
    stage = VerifyingBroker(tmp_path)
    await stage.send(request(1, (0, batch(0)), (1, batch(0)), version=version))
    assert stage.codes(version) == [(0, 0), (0, 0)]
    await stage.send(request(2, (0, batch(1)), version=version))
    assert stage.codes(version) == [(0, 1)]
    (asked,) = stage.coordinator.asked
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx", PRODUCER, 0)
    assert asked.verify_only is verify_only
    assert [(each.name, each.partitions) for each in asked.topics] == [(TOPIC, (0, 1))]


async def test_what_comes_behind_an_unverified_batch_is_appended_after_it(tmp_path: Path) -> None:
    """Several requests in flight keep their order; once appended they wait for commit side by side."""
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.may_answer.clear()
    await stage.send(request(1, (0, batch(0))), request(2, (0, batch(1))), request(3, (0, batch(2))))
    assert (stage.codes(), stage.partitions[0].log_end_offset) == ([], 0)
    stage.coordinator.may_answer.set()
    for _ in range(20):
        await asyncio.sleep(0)  # no record is flushed yet
    assert (stage.codes(), stage.partitions[0].log_end_offset) == ([], 3)
    await stage.run_pending()
    assert stage.codes() == [(0, 0), (0, 1), (0, 2)]
    assert len(stage.coordinator.asked) == 1


async def test_a_batch_whose_transaction_ends_while_it_is_verified_has_to_be_asked_about_again(
    tmp_path: Path,
) -> None:
    """It would otherwise open a transaction that is never ended: the hanging transaction of KAFKA-14402."""
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.may_answer.clear()
    await stage.send(request(1, (0, batch(0))))
    stage.partitions[0].append_marker(TxnMarker(PRODUCER, 0, False, 1), now_ms=NOW_MS)
    stage.coordinator.may_answer.set()
    await stage.run_pending()
    assert stage.codes() == [(19, -1)]
    assert stage.partitions[0].last_stable_offset == 1
    stage.coordinator.codes = [120]
    await stage.send(request(2, (0, batch(0))))
    assert stage.codes() == [(48, -1)]


async def test_the_next_transaction_may_be_asked_about_before_the_marker_of_the_last_one(
    tmp_path: Path,
) -> None:
    """A producer of transaction.version 2 begins it as soon as EndTxn is answered, with the marker's own epoch."""
    stage = VerifyingBroker(tmp_path)
    await stage.send(request(1, (0, batch(0)), version=12))
    stage.coordinator.may_answer.clear()
    await stage.send(request(2, (0, batch(0, epoch=1)), version=12))
    stage.partitions[0].append_marker(TxnMarker(PRODUCER, 1, True, 1, 2), now_ms=NOW_MS)
    stage.coordinator.may_answer.set()
    await stage.run_pending()
    assert stage.codes(12) == [(0, 0), (0, 2)]


async def test_a_leader_that_was_elected_anew_meanwhile_sends_the_client_away(tmp_path: Path) -> None:
    """NOT_LEADER_OR_FOLLOWER, which is tried again, for what the former leadership asked."""
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.may_answer.clear()
    await stage.send(request(1, (0, batch(0))))
    partition = stage.partitions[0]
    partition.reconcile(PartitionState((1,), (1,), 1, 4))
    stage.coordinator.may_answer.set()
    await stage.run_pending()
    assert stage.codes() == [(6, -1)]


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (120, 10, 48),  # TRANSACTION_ABORTABLE: old clients know INVALID_TXN_STATE
        (120, 11, 120),
        (120, 12, 120),
        (90, 9, 47),  # PRODUCER_FENCED → INVALID_PRODUCER_EPOCH
        (49, 9, 49),  # INVALID_PRODUCER_ID_MAPPING
        (51, 11, 19),  # CONCURRENT_TRANSACTIONS → NOT_ENOUGH_REPLICAS
        (14, 12, 19),  # COORDINATOR_LOAD_IN_PROGRESS
        (15, 9, 19),
        (16, 9, 19),
    ],
)
async def test_refusals_have_the_error_code_of_the_producers_version(
    tmp_path: Path, code: int, version: int, told: int
) -> None:
    """Kafka's AddPartitionsToTxnManager and ReplicaManager; no record is appended."""
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.codes = [code]
    await stage.send(request(1, (0, batch(0)), version=version))
    assert stage.codes(version) == [(told, -1)]
    assert stage.partitions[0].log_end_offset == 0


@pytest.mark.parametrize("error", [BrokerNotAvailable(), CoordinatorNotAvailable()])
async def test_without_a_coordinator_the_client_tries_again(tmp_path: Path, error: KafkaError) -> None:
    """NOT_ENOUGH_REPLICAS, and what it sent meanwhile waits for the refused batch."""
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.error = error
    await stage.send(request(1, (0, batch(0))))
    stage.coordinator.error = None
    await stage.send(request(2, (0, batch(1))), request(3, (0, batch(0))), request(4, (0, batch(1))))
    assert stage.codes() == [(19, -1), (19, -1), (0, 0), (0, 1)]


async def test_a_transaction_that_is_being_ended_is_waited_for_a_moment(tmp_path: Path) -> None:
    """Clients of transaction.version 2 begin the next transaction at once: the broker retries on
    CONCURRENT_TRANSACTIONS.
    """
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.codes = [51, 51]
    stage.pipe.send(request(1, (0, batch(0)), version=12))
    async with asyncio.timeout(PATIENCE_S):
        while stage.partitions[0].log_end_offset == 0:
            await asyncio.sleep(0.005)
    await stage.run_pending()
    assert stage.codes(12) == [(0, 0)]
    assert len(stage.coordinator.asked) == 3


async def test_acks_0_and_1_are_served_as_ever(tmp_path: Path) -> None:
    """acks=1 is answered at the append, acks=0 never."""
    stage = VerifyingBroker(tmp_path)
    await stage.send(request(1, (0, batch(0)), acks=1))
    assert stage.codes() == [(0, 0)]
    await stage.send(request(2, (1, batch(0)), acks=0), request(3, (0, batch(1)), acks=1))
    assert stage.codes() == [(0, 1)]
    assert stage.partitions[1].log_end_offset == 1


async def test_a_client_that_leaves_meanwhile_gets_nothing_appended(tmp_path: Path) -> None:
    """It would get no response, and the transaction is aborted without the records."""
    stage = VerifyingBroker(tmp_path)
    stage.coordinator.may_answer.clear()
    await stage.send(request(1, (0, batch(0))))
    stage.pipe.connection.connection_lost(None)
    stage.coordinator.may_answer.set()
    await stage.run_pending()
    assert stage.partitions[0].log_end_offset == 0


async def test_records_outside_transactions_are_not_verified(tmp_path: Path) -> None:
    """Also for a producer with a transactional id; damaged records get their own error."""
    stage = VerifyingBroker(tmp_path)
    damaged = batch(0)[:-1] + b"\xff"
    await stage.send(request(1, (0, batch(0, transactional=False)), (1, b"short")))
    assert (stage.codes(), stage.coordinator.asked) == ([(0, 0), (87, -1)], [])
    await stage.send(request(2, (1, damaged)))
    assert stage.codes() == [(2, -1)]


async def test_producers_are_described_by_the_leader(tmp_path: Path) -> None:
    """KIP-664: what an operator looks at when a last stable offset stands still."""
    stage = VerifyingBroker(tmp_path)
    await stage.send(request(1, (0, batch(0))), request(2, (0, batch(1))))
    make = request_builders(61, 0)
    asked = make.DescribeProducersRequest(
        topics=(make.TopicRequest(name=TOPIC, partition_indexes=(0, 1, 2, 77)),)
    )
    answer = await completed(
        stage.fake.broker.env, describe_producers.handle(stage.fake.broker, _context(), asked)
    )
    found = {each.partition_index: each for each in answer.topics[0].partitions}
    assert [found[each].error_code for each in (0, 1, 2, 77)] == [0, 0, 3, 3]
    (producer,) = found[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER, 0, 1)
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)
    assert found[1].active_producers == ()


def _context() -> Any:
    return RequestContext(61, 0, 1, "t", "PLAINTEXT", "h")


@pytest.mark.parametrize("keyless", [-1, 899])
async def test_a_large_batch_for_a_compacted_topic_is_verified_and_then_looked_at(
    tmp_path: Path, keyless: int
) -> None:
    """A request behind it waits for both; a record without a key is refused, and begins no transaction."""
    stage = VerifyingBroker(tmp_path)
    for partition in stage.partitions:
        partition.log.config = TopicConfig(cleanup_policy=("compact",))
    stage.coordinator.may_answer.clear()
    first, second = (
        build_batch(
            [new_record(None if each == keyless else b"k", b"v", timestamp=NOW_MS) for each in range(900)],
            producer=ProducerIdAndSequence(PRODUCER, 0, sequence),
            attributes=TRANSACTIONAL_BIT,
        )
        for sequence in (0, 900)
    )
    await stage.send(request(1, (0, first)), request(2, (0, second)))
    assert stage.partitions[0].log_end_offset == 0
    stage.coordinator.may_answer.set()
    for _ in range(100):
        stage.fake.offload.run()
        await stage.run_pending()
    assert not stage.fake.server.tasks
    assert len(stage.coordinator.asked) == 1
    if keyless < 0:
        assert stage.codes() == [(0, 0), (0, 900)]
    else:
        assert [code for code, _ in stage.codes()] == [
            87,
            45,
        ]  # the log is empty, and the second batch is not its first
        assert stage.partitions[0].log.first_unstable_offset is None


async def test_a_request_that_is_verified_is_counted_until_it_is_appended(tmp_path: Path) -> None:
    """The copy that waits for its coordinator is part of the memory budget, even after its client has left."""
    stage = VerifyingBroker(tmp_path)
    unappended = stage.fake.server.memory.unappended
    stage.coordinator.may_answer.clear()
    data = batch(0)
    await stage.send(request(1, (0, data)))
    assert unappended.used == len(data)
    stage.pipe.connection.connection_lost(None)
    assert unappended.used == len(data)
    stage.coordinator.may_answer.set()
    await stage.run_pending()
    assert unappended.used == 0


async def test_without_memory_a_transaction_gets_a_retriable_error_without_verification(
    tmp_path: Path,
) -> None:
    """NOT_ENOUGH_REPLICAS; the producer's later batches wait for it, others are appended."""
    stage = VerifyingBroker(tmp_path)
    unappended = stage.fake.server.memory.unappended
    unappended.acquire(unappended.limit)
    await stage.send(request(1, (0, batch(0)), (1, batch(0, transactional=False))))
    await stage.send(request(2, (0, batch(1))))
    assert stage.codes() == [(19, -1), (0, 0), (19, -1)]
    assert stage.coordinator.asked == []
    unappended.release(unappended.limit)
    await stage.send(request(3, (0, batch(0))), request(4, (0, batch(1))))
    assert stage.codes() == [(0, 0), (0, 1)]


async def test_a_wrong_answer_of_a_coordinator_is_distinguished_from_a_bug(tmp_path: Path) -> None:
    """The response of another broker must not end this broker: it did, as a failed task."""
    stage = VerifyingBroker(tmp_path)
    sound = stage.coordinator.ask

    async def ask(*args: Any, **named: Any) -> Any:
        answer = await sound(*args, **named)
        return build_response(
            ADD_PARTITIONS_TO_TXN, VERSION, results_by_transaction=(*answer.results_by_transaction,) * 2
        )

    stage.coordinator.ask = ask  # type: ignore[method-assign]
    await stage.send(request(1, (0, batch(0))))
    assert stage.codes() == [(19, -1)]
    stage.coordinator.ask = sound  # type: ignore[method-assign]
    await stage.send(request(2, (0, batch(0))))
    assert stage.codes() == [(0, 0)]


async def test_a_bug_in_asking_a_coordinator_ends_no_node(tmp_path: Path) -> None:
    """The client gets a retriable error, and its next request asks the coordinator anew."""
    stage = VerifyingBroker(tmp_path)
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
    stage.coordinator.error = ZeroDivisionError()  # type: ignore[assignment]
    await stage.send(request(1, (0, batch(0))))
    stage.coordinator.error = None
    await stage.send(request(2, (0, batch(0))))
    assert stage.codes() == [(19, -1), (0, 0)]
    assert failures == []


async def test_a_transactional_id_that_is_too_long_fails_alone(tmp_path: Path) -> None:
    """It never gets into the request that asks about all transactions, where it would fail the others too."""
    stage = VerifyingBroker(tmp_path)
    too_long = produce(1, (0, batch(0)), acks=-1, transactional_id="x" * 250)
    await stage.send(too_long, request(2, (1, batch(0))))
    assert stage.codes() == [(42, -1), (0, 0)]
    assert [each.transactional_id for each in stage.coordinator.asked] == ["tx"]
    assert stage.partitions[0].log.log_end_offset == 0


async def test_producers_of_a_partition_are_described_once_and_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four bytes of a request must not bring a partition's producers again and again."""
    stage = VerifyingBroker(tmp_path)
    await stage.send(request(1, (0, batch(0)), (1, batch(0))))
    make = request_builders(61, 0)

    async def described(*indexes: int) -> list[tuple[int, int, int]]:
        topics = (make.TopicRequest(name=TOPIC, partition_indexes=indexes),) * 3
        message = make.DescribeProducersRequest(topics=topics)
        answer = await completed(
            stage.fake.broker.env, describe_producers.handle(stage.fake.broker, _context(), message)
        )
        (topic,) = answer.topics
        return [
            (each.partition_index, each.error_code, len(each.active_producers)) for each in topic.partitions
        ]

    assert await described(*[0, 1] * 100) == [(0, 0, 1), (1, 0, 1)]
    monkeypatch.setattr(describe_producers, "MAX_PRODUCERS", 1)
    assert await described(0, 1) == [(0, 0, 1), (1, 44, 0)]
