"""Transactional producers of every library, their coordinator killed, their time run out, and the tools' output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka import TopicPartition as AnyPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient
from kafka.errors import ClusterAuthorizationFailedError

from raftlog.testing.cluster import Cluster
from tests.kit.waits import PATIENCE_S, poll_until, until

SHORT_MS = 4_000
"""Of a transaction that is to take too long: still long enough for a record to be acknowledged in it."""

Run = Callable[[str, str, str], None]
"""(bootstrap servers, transactional id, topic): commit two transactions of two records, abort one between them."""

TRANSACTIONS = (("one", True), ("two", False), ("three", True))


def with_confluent(bootstrap: str, transactional_id: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_S)
    for name, commit in TRANSACTIONS:
        producer.begin_transaction()
        for number in range(2):
            producer.produce(topic, f"{name}/{number}")
        assert producer.flush(PATIENCE_S) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)


def with_kafka_python(bootstrap: str, transactional_id: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    for name, commit in TRANSACTIONS:
        producer.begin_transaction()
        for number in range(2):
            producer.send(topic, f"{name}/{number}".encode())
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.close()


def with_aiokafka(bootstrap: str, transactional_id: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        try:
            for name, commit in TRANSACTIONS:
                await producer.begin_transaction()
                for number in range(2):
                    await producer.send_and_wait(topic, f"{name}/{number}".encode())
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(run(), 2 * PATIENCE_S))


def committed(cluster: Cluster, topic: str, count: int) -> list[str]:
    """A reader of committed records finds so many, and what else there is within a moment."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader of {topic}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []

    def read() -> bool:
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            found.append((record.value() or b"").decode())
        return record is None and len(found) >= count

    poll_until(read, f"{count} records", seen=lambda: found)
    consumer.close()
    return sorted(found)


def state_of(cluster: Cluster, transactional_id: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        return str(admin.describe_transactions([transactional_id])[transactional_id].state.value)
    finally:
        admin.close()


@pytest.mark.parametrize("run", [with_confluent, with_kafka_python, with_aiokafka])
def test_transactions_of_every_library_commit_and_abort(cluster: Cluster, topic: str, run: Run) -> None:
    """The aborted transaction is not visible."""
    run(cluster.bootstrap_servers, f"id of {topic}", topic)
    assert committed(cluster, topic, 4) == ["one/0", "one/1", "three/0", "three/1"]


def test_the_tools_find_and_describe_a_transaction(cluster: Cluster, topic: str) -> None:
    """kafka-python's admin client asks every coordinator; the pattern is RE2's."""
    name = f"seen-{topic}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    found = [
        each
        for listed in admin.list_transactions(
            state_filters=["Ongoing"], transactional_id_pattern="seen-.*"
        ).values()
        for each in listed
        if each.transactional_id == name
    ]
    assert len(found) == 1
    described = admin.describe_transactions([name])[name]
    assert described.state.value == "Ongoing"
    assert {(each.topic, each.partition) for each in described.topic_partitions} == {(topic, 1)}
    where = AnyPartition(topic, 1)
    for broker_id in (None, 1, 2, 3):
        (writer,) = admin.describe_producers([where], broker_id)[where].active_producers
        assert (writer.producer_id, writer.current_transaction_start_offset) == (described.producer_id, 0)
    assert admin.find_hanging_transactions() == []
    spec = AbortTransactionSpec(where, writer.producer_id, writer.producer_epoch)
    with pytest.raises(ClusterAuthorizationFailedError):
        admin.abort_transaction(spec)
    admin.close()
    producer.abort_transaction(PATIENCE_S)


def test_a_producer_that_takes_too_long_is_fenced_and_its_records_are_never_seen(
    cluster: Cluster, topic: str
) -> None:
    """transaction.timeout.ms; the next producer of the id goes on."""
    name = f"slow-{topic}"
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
    slow = Producer({**settings, "transaction.timeout.ms": SHORT_MS})
    slow.init_transactions(PATIENCE_S)
    slow.begin_transaction()
    slow.produce(topic, "late")
    assert slow.flush(PATIENCE_S) == 0
    until(lambda: state_of(cluster, name) == "CompleteAbort", "its transaction is aborted")
    with pytest.raises(KafkaException) as refused:
        slow.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()
    prompt = Producer(settings)
    prompt.init_transactions(PATIENCE_S)
    prompt.begin_transaction()
    prompt.produce(topic, "prompt")
    prompt.commit_transaction(PATIENCE_S)
    assert committed(cluster, topic, 1) == ["prompt"]


def test_a_timeout_over_the_maximum_is_refused(cluster: Cluster) -> None:
    """INVALID_TRANSACTION_TIMEOUT, as the protocol says it."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "patient",
            "transaction.timeout.ms": 900_001,
            "message.timeout.ms": 900_001,
        }
    )
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
