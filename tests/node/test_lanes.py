"""Between brokers, over their connections: what one partition that cannot commit holds up, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raftlog.base.errors import KafkaError
from raftlog.base.types import TopicPartition
from raftlog.broker.coordination.transaction_shard import TransactionCoordinatorShard
from raftlog.broker.coordination.transaction_verification import (
    ProducerApiLevel,
    TransactionalProducer,
)
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.transactions.transaction import (
    ClientTransactionVersion,
    ProducerIdAndEpoch,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
)
from raftlog.metadata.controller_api import CreateTopics, NewTopic
from raftlog.node import BrokerRole
from raftlog.replication.partition import Partition
from tests.node.test_hanging import SETTINGS, TP, HangingTransactionCluster, run_scenario

STUCK_FOR_S = 3.0
SHARED_S = 0.1
"""Less than any wait for the stuck partition, which has a second to commit."""

Id = tuple[str, ProducerIdAndEpoch]


async def init(cluster: HangingTransactionCluster, name: str) -> tuple[int, ProducerIdAndEpoch]:
    """The coordinator of an id, and its producer."""

    async def ask(broker: BrokerRole) -> ProducerIdAndEpoch:
        await broker.transactions.find(name)
        return await broker.transactions.init_producer(InitProducerId(name, 60_000))

    for _ in range(100):
        for node_id in (1, 2, 3):
            try:
                return node_id, await cluster.on(node_id, ask(cluster.broker(node_id)))
            except KafkaError:
                pass
        await cluster.pass_time(0.05)
    raise AssertionError("nobody coordinates it")


async def two_ids(cluster: HangingTransactionCluster, may: Callable[[int], bool]) -> tuple[int, Id, Id]:
    """A coordinator, and two ids of two of its partitions."""
    found: dict[int, dict[int, Id]] = {}
    partitions = int(SETTINGS["transaction.state.log.num.partitions"])
    for number in range(50):
        name = f"id{number}"
        node_id, producer = await init(cluster, name)
        ids = found.setdefault(node_id, {})
        ids.setdefault(partition_for(name, partitions), (name, producer))
        if may(node_id) and len(ids) > 1:
            first, second = list(ids.values())[:2]
            return node_id, first, second
    raise AssertionError("no broker coordinates two partitions")


async def beside_the_other(cluster: HangingTransactionCluster) -> TopicPartition:
    """A partition of another topic on the same leader."""
    for number in range(8):
        topic = CreateTopics((NewTopic(f"u{number}", 1, 3),))
        node = cluster.cluster.nodes[1].node
        assert node is not None
        await cluster.on(1, node.control.submit(topic, timeout=5))

    def found() -> TopicPartition | None:
        topic_partitions = [TopicPartition(f"u{number}", 0) for number in range(8)]
        states = [(tp, cluster.cluster.state(*tp)) for tp in topic_partitions]
        leader = cluster.leader()
        return next((p for p, s in states if s and s.leader == leader and len(s.isr) == 3), None)

    await cluster.cluster.until(lambda: found() is not None, 10, "a partition on the same leader")
    tp = found()
    assert tp is not None
    return tp


async def transact(broker: BrokerRole, whose: Id, tp: TopicPartition) -> float:
    """Seconds from the end of a transaction that wrote to a partition to its completion."""
    name, producer = whose
    coordinated = broker.transactions
    await coordinated.add_partitions(
        AddPartitions(name, producer, frozenset({tp}), ClientTransactionVersion.TV_0)
    )
    await coordinated.end(EndTransaction(name, producer, True))
    clock = asyncio.get_running_loop().time
    began_at = clock()
    while (await coordinated.read(name)).state is not TransactionState.COMPLETE_COMMIT:
        await asyncio.sleep(0.005)
        assert clock() < began_at + 10
    return clock() - began_at


def writer(whose: Id) -> TransactionalProducer:
    return TransactionalProducer(whose[0], whose[1].producer_id, whose[1].epoch)


def test_a_marker_that_cannot_be_committed_holds_up_no_other_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its leader keeps it for a second, on a connection on which the other partitions' markers do not come."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        stuck = await beside_the_other(cluster)
        node_id, slow, healthy = await two_ids(cluster, lambda node_id: node_id != cluster.leader())
        await_commit = Partition.await_commit

        def await_nothing(partition: Partition, end_offset: int, waiter: Any) -> None:
            if partition.name != stuck:
                await_commit(partition, end_offset, waiter)

        monkeypatch.setattr(Partition, "await_commit", await_nothing)
        broker = cluster.broker(node_id)
        host = cluster.cluster.nodes[node_id].host
        waiting = host.start(transact(broker, slow, stuck))
        await cluster.pass_time(STUCK_FOR_S)
        for _ in range(8):
            assert await cluster.on(node_id, transact(broker, healthy, TP)) < SHARED_S
            await cluster.pass_time(0.1)
        monkeypatch.undo()
        assert await waiting > STUCK_FOR_S

    run_scenario(scenario)


def test_an_id_that_cannot_be_verified_holds_up_the_verification_of_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its producer retries again and again, and another's first batch is confirmed meanwhile as usual."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        node_id, slow, healthy = await two_ids(cluster, lambda _: True)
        partitions = int(SETTINGS["transaction.state.log.num.partitions"])
        stuck = partition_for(slow[0], partitions)
        wake = TransactionCoordinatorShard.wake

        def wake_others(shard: TransactionCoordinatorShard, partition: Partition) -> None:
            if shard.index != stuck:
                wake(shard, partition)

        monkeypatch.setattr(TransactionCoordinatorShard, "wake", wake_others)
        asker = next(each for each in (1, 2, 3) if each != node_id)
        broker = cluster.broker(asker).context

        async def verify(whose: TransactionalProducer) -> float:
            clock = asyncio.get_running_loop().time
            began_at = clock()
            refused = (await broker.verifier.verify(whose, [TP], dialect=ProducerApiLevel.ADDS))[TP]
            assert (refused is None) == (whose.transactional_id == healthy[0])
            return clock() - began_at

        await cluster.on(asker, beside(cluster, verify, writer(slow), writer(healthy)))

    run_scenario(scenario)


async def beside(
    cluster: HangingTransactionCluster,
    verify: Callable[[TransactionalProducer], Coroutine[Any, Any, float]],
    slow: TransactionalProducer,
    healthy: TransactionalProducer,
) -> None:
    async def insist() -> None:
        while True:
            assert await verify(slow) > SHARED_S
            await cluster.pass_time(0.1)

    insisting = asyncio.ensure_future(insist())
    await cluster.pass_time(STUCK_FOR_S)
    for _ in range(8):
        assert await verify(healthy) < SHARED_S
        await cluster.pass_time(0.37)
    assert not insisting.done()
    insisting.cancel()
