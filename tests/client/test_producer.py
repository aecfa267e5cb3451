"""raftlog.client.producer: every record is written once, in order, or reported, whatever happens to responses."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRecord,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
)
from raftlog.client.connection import Connection
from raftlog.client.errors import Unreachable
from raftlog.client.producer import ALL, STICKY_BYTES, Producer, size_of
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.records.batch import iter_records, new_record, read_header
from raftlog.records.partitioner import partition_of_key
from tests.client.scripted_broker import SILENT, ScriptedBroker

TOPIC = "orders"
LOST_REQUEST, LOST_RESPONSE, EMPTY_RESPONSE = "request", "response", "empty"


class Leader:
    """Partitions' logs with a leader's check of sequences (KIP-98), and the troubles that are to come, in order."""

    def __init__(self, *troubles: str | int) -> None:
        self.troubles = list(troubles)
        self.values: dict[int, list[bytes | None]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._ids = count(7)
        self.id_errors: list[int] = []
        """The codes of the next answers to InitProducerId."""

    def __call__(self, api_key: int, version: int, request: Any) -> Any:
        make = response_builders(api_key, version)
        if api_key == ApiKey.INIT_PRODUCER_ID:
            if self.id_errors:
                return make.InitProducerIdResponse(
                    error_code=self.id_errors.pop(0), producer_id=-1, producer_epoch=-1
                )
            return make.InitProducerIdResponse(producer_id=next(self._ids), producer_epoch=0)
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble == LOST_REQUEST:
            return None
        (topic,) = request.topic_data
        parts = tuple(
            make.PartitionProduceResponse(
                index=each.index,
                error_code=trouble
                if isinstance(trouble, int)
                else self._append(each.index, bytes(each.records)),
            )
            for each in topic.partition_data
        )
        if trouble == LOST_RESPONSE:
            return None
        if request.acks == 0:
            return SILENT
        if trouble == EMPTY_RESPONSE:
            parts = ()
        return make.ProduceResponse(
            responses=(make.TopicProduceResponse(name=topic.name, partition_responses=parts),)
        )

    def _append(self, partition: int, batch: bytes) -> int:
        header = read_header(batch)
        if header.producer_id >= 0:
            writer = (partition, header.producer_id)
            expected = self._next.get(writer, 0)
            if header.base_sequence < expected:
                return 0  # the leader has it already
            if header.base_sequence > expected:
                return OutOfOrderSequenceNumber.code
            self._next[writer] = expected + header.record_count
        self.values.setdefault(partition, []).extend(each.value for each in iter_records(batch))
        return 0


def produce(leader: Leader, *batches: list[bytes], acks: int = ALL, partitions: int = 1) -> Producer:
    """Write batches, each flushed, and return the producer."""
    with (
        ScriptedBroker(leader, {TOPIC: partitions}) as broker,
        broker.cluster() as cluster,
    ):
        producer = Producer(cluster, TOPIC, acks=acks, codec=0, idempotent=acks == ALL)
        try:
            for batch in batches:
                for value in batch:
                    producer.send(new_record(None, value, timestamp=0), 0)
                producer.flush()
        finally:
            producer.close()
        return producer


@pytest.mark.parametrize("trouble", [LOST_REQUEST, LOST_RESPONSE, EMPTY_RESPONSE, NotEnoughReplicas.code])
def test_a_batch_without_an_acknowledgement_is_written_once(trouble: str | int) -> None:
    """It is sent again with its sequence, which the leader recognizes if only the response got lost."""
    leader = Leader(trouble, trouble)
    producer = produce(leader, [b"1", b"2"], [b"3"])
    assert leader.values == {0: [b"1", b"2", b"3"]}
    assert producer.unsent == 0 and not producer.failures


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator])
def test_a_producer_waits_for_its_id_while_a_cluster_starts(error: Any) -> None:
    """Kafka 4.3 answers InitProducerId so until its first block of producer ids is there."""
    leader = Leader()
    leader.id_errors = [error.code] * 2
    assert not produce(leader, [b"1"]).failures
    assert leader.values == {0: [b"1"]} and not leader.id_errors


@pytest.mark.parametrize("error", [MessageTooLarge, InvalidRecord])
def test_a_refused_batch_leaves_no_gap_in_the_sequence(error: Any) -> None:
    """Its records are reported; the records behind it are written."""
    leader = Leader(error.code)
    producer = produce(leader, [b"1", b"2"], [b"3"])
    assert leader.values == {0: [b"3"]}
    (failed,) = producer.failures
    assert isinstance(failed.error, error) and [each.value for each in failed.records] == [b"1", b"2"]


def test_a_batch_behind_one_that_was_written_and_then_refused_is_written() -> None:
    """With the same sequence the leader would take it for a repetition, and acknowledge what it did not write."""
    leader = Leader(LOST_RESPONSE, MessageTooLarge.code)
    producer = produce(leader, [b"1"], [b"2"], [b"3"])
    assert leader.values == {0: [b"1", b"2", b"3"]}
    assert [each.value for failed in producer.failures for each in failed.records] == [b"1"]


def test_an_interrupt_while_a_response_is_under_way_costs_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The late response is not taken for that of the next batch, which the leader refuses."""
    interrupts = [True]
    receive = Connection.receive

    def receive_or_stop(self: Connection) -> Any:
        if self.is_produce and interrupts:  # type: ignore[attr-defined]
            interrupts.pop()
            raise KeyboardInterrupt
        return receive(self)

    send = Connection.send

    def send_marked(self: Connection, api_key: int, *arguments: Any, **options: Any) -> None:
        self.is_produce = api_key == ApiKey.PRODUCE  # type: ignore[attr-defined]
        send(self, api_key, *arguments, **options)

    monkeypatch.setattr(Connection, "receive", receive_or_stop)
    monkeypatch.setattr(Connection, "send", send_marked)
    leader = Leader("", "", MessageTooLarge.code)
    with ScriptedBroker(leader, {TOPIC: 1}) as broker, broker.cluster() as cluster:
        producer = Producer(cluster, TOPIC, acks=ALL, codec=0, idempotent=True)
        producer.send(new_record(None, b"1", timestamp=0), 0)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        producer.send(new_record(None, b"2", timestamp=0), 0)
        producer.flush()
        producer.close()
    assert leader.values == {0: [b"1"]} and producer.unsent == 0
    assert [each.value for failed in producer.failures for each in failed.records] == [b"2"]


def test_records_that_no_broker_acknowledges_are_counted() -> None:
    """After the timeout without any progress."""
    leader = Leader(*[NotEnoughReplicas.code] * 1000)
    with ScriptedBroker(leader, {TOPIC: 1}) as broker, broker.cluster(timeout_s=0.3) as cluster:
        producer = Producer(cluster, TOPIC, acks=ALL, codec=0, idempotent=True)
        for _ in range(3):
            producer.send(new_record(None, b"x", timestamp=0), 0)
        with pytest.raises(Unreachable, match="NotEnoughReplicas"):
            producer.flush()
        producer.close()
    assert producer.unsent == 3 and leader.values == {} and not producer.acknowledged


def test_keys_choose_partitions_as_the_java_client_does() -> None:
    """And a record without a key goes to any partition."""
    leader = Leader()
    with ScriptedBroker(leader, {TOPIC: 5}) as broker, broker.cluster() as cluster:
        producer = Producer(cluster, TOPIC, acks=ALL, codec=0, idempotent=True)
        for key in (b"a", b"b", b"c", b""):
            producer.send(new_record(key, key, timestamp=0))
        producer.send(new_record(None, b"keyless", timestamp=0))
        producer.flush()
        producer.close()
    for key in (b"a", b"b", b"c", b""):
        assert key in leader.values[partition_of_key(key, 5)]
    assert sum(b"keyless" in each for each in leader.values.values()) == 1


def test_records_without_a_key_go_to_the_partitions_in_turn() -> None:
    """Kafka's batch.size of bytes to each (KIP-794), and another partition after each flush."""
    leader, value = Leader(), bytes(1000)
    each = -(-STICKY_BYTES // size_of(new_record(None, value, timestamp=0)))
    with ScriptedBroker(leader, {TOPIC: 4}) as broker, broker.cluster() as cluster:
        producer = Producer(cluster, TOPIC, acks=ALL, codec=0, idempotent=True)
        for _ in range(4 * each):
            producer.send(new_record(None, value, timestamp=0))
        producer.flush()
        first = dict(producer.acknowledged)
        for _ in range(4):
            producer.send(new_record(None, b"", timestamp=0))
            producer.flush()
        producer.close()
    assert first == dict.fromkeys(range(4), each)
    assert {number: len(values) for number, values in leader.values.items()} == dict.fromkeys(
        range(4), each + 1
    )
    assert producer.acknowledged == dict.fromkeys(range(4), each + 1)


def test_acks_0_waits_for_no_response() -> None:
    """There is none; what was sent is accounted for."""
    leader = Leader()
    producer = produce(leader, [b"1"], [b"2"], acks=0)
    assert producer.unsent == 0
