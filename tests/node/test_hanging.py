"""Transactions that hang: found, ended by an operator, and distinguished from coordinated transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest

from raftlog.base.errors import InvalidTxnState, KafkaError, TransactionalIdNotFound
from raftlog.base.transaction_listing import TransactionalId, WrittenTo
from raftlog.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.context import BrokerContext
from raftlog.broker.coordination.hanging_transactions import TransactionSurvey
from raftlog.coordinator.transactions.transaction import ClientTransactionVersion, ProducerIdAndEpoch
from raftlog.coordinator.transactions.transaction_requests import AddPartitions, InitProducerId
from raftlog.metadata.controller_api import CreateTopics, NewTopic
from raftlog.node import BrokerRole
from raftlog.records.batch import ProducerIdAndSequence, build_batch, new_record
from raftlog.records.header import TRANSACTIONAL_BIT, read_header
from raftlog.replication.partition import Partition
from raftlog.replication.replica_host import TxnMarker
from raftlog_chaos.simulator import SimLoop, simulate
from raftlog_chaos.simulator.cluster import SimCluster

TP = TopicPartition("t", 0)
STATE_PARTITIONS = 6
SETTINGS = {"min.insync.replicas": "1", "transaction.state.log.num.partitions": str(STATE_PARTITIONS)}
LOST = ProducerIdAndEpoch(987_654, 3)


class HangingTransactionCluster:
    """Three nodes, a topic of one partition on all of them, and what is asked of them as they ask each other."""

    def __init__(self, loop: SimLoop) -> None:
        self.cluster = SimCluster(loop, 3, settings=SETTINGS)

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.until_ready()
        node = self.cluster.nodes[1].node
        assert node is not None
        await self.on(1, node.control.submit(CreateTopics((NewTopic("t", 1, 3),)), timeout=5))
        await self.cluster.until(self.leads, 10, "a leader")

    def leads(self) -> bool:
        """Return whether the leader knows its role, which another node may know sooner."""
        leader = self.leader()
        return leader > 0 and self.cluster.replica(leader, *TP) is not None

    def leader(self) -> int:
        state = self.cluster.state(*TP)
        return -1 if state is None or len(state.isr) < 3 else state.leader

    def broker(self, node_id: int) -> BrokerRole:
        node = self.cluster.nodes[node_id].node
        assert node is not None and node.broker is not None
        return node.broker

    async def on(self, node_id: int, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in a node's process."""
        return await self.cluster.nodes[node_id].host.start(work)

    async def pass_time(self, seconds: float) -> None:
        """Let virtual seconds pass."""
        await asyncio.sleep(seconds)

    async def ask(self, work: Callable[[TransactionSurvey], Coroutine[Any, Any, Any]]) -> Any:
        """Ask a node that does not lead the partition."""
        other = next(each for each in (1, 2, 3) if each != self.leader())
        return await self.on(other, work(self.broker(other).transactions.survey()))

    def coordinates(self, node_id: int) -> bool:
        """Return whether a node leads a partition of the transactions' state."""
        states = (self.cluster.state(TRANSACTION_STATE_TOPIC, index) for index in range(STATE_PARTITIONS))
        return any(each is not None and each.leader == node_id for each in states)

    def replica(self) -> Partition:
        found = self.cluster.replica(self.leader(), *TP)
        assert found is not None
        return found

    async def write(self, producer: ProducerIdAndEpoch, *, sequence: int = 0) -> int:
        """Put a transactional batch straight into the partition, which no client can; returns its offset."""
        broker, replica = self.broker(self.leader()), self.replica()
        now_ms, epoch = broker.context.env.wall_clock_ms(), replica.leader_epoch
        record = new_record(None, b"x", timestamp=now_ms)
        stamp = ProducerIdAndSequence(producer.producer_id, producer.epoch, sequence)
        batch = build_batch([record], producer=stamp, attributes=TRANSACTIONAL_BIT)

        async def append() -> int:
            header = read_header(batch)
            found = replica.log.append_as_leader(header, batch, leader_epoch=epoch, now_ms=now_ms)
            replica.log_end_moved()
            replica.host.request_flush(replica)
            return found.base_offset

        offset: int = await self.on(self.leader(), append())
        await self.cluster.until(lambda: replica.high_watermark > offset, 10, "committed")
        return offset

    async def add(self, transactional_id: str) -> ProducerIdAndEpoch:
        """Begin a transaction in the partition, as a client would; its coordinator knows of it."""
        found: ProducerIdAndEpoch | None = None
        for _ in range(100):
            for node_id in (1, 2, 3):
                try:
                    found = await self.on(node_id, self._add(self.broker(node_id), transactional_id))
                except KafkaError:
                    await asyncio.sleep(0.1)
                else:
                    return found
        raise AssertionError("nobody coordinates it")

    async def _add(self, broker: BrokerRole, transactional_id: str) -> ProducerIdAndEpoch:
        await broker.transactions.find(transactional_id)
        producer = await broker.transactions.init_producer(InitProducerId(transactional_id, 60_000))
        await broker.transactions.add_partitions(
            AddPartitions(transactional_id, producer, frozenset({TP}), ClientTransactionVersion.TV_0)
        )
        return producer


def run_scenario(scenario: Callable[[HangingTransactionCluster], Coroutine[Any, Any, None]]) -> None:
    async def program(loop: SimLoop) -> None:
        cluster = HangingTransactionCluster(loop)
        await cluster.begin()
        await scenario(cluster)

    simulate(program, seed=3)


def test_a_transaction_that_hangs_is_found_and_ended() -> None:
    """It has no coordinator, so the last stable offset stands still, until an operator has it aborted."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        with pytest.raises(TransactionalIdNotFound):
            await cluster.ask(lambda survey: survey.one("nobody"))
        offset = await cluster.write(LOST)
        assert cluster.replica().last_stable_offset == offset
        assert await cluster.ask(lambda survey: survey.hanging(unused_ms=60_000)) == []
        (found,) = await cluster.ask(lambda survey: survey.hanging("t", unused_ms=0))
        assert (found.topic, found.partition, found.start_offset) == (*TP, offset)
        with pytest.raises(TransactionalIdNotFound):
            await cluster.ask(lambda survey: survey.end_hanging(TP, offset + 1))
        ended = await cluster.ask(lambda survey: survey.end_hanging(TP, offset))
        assert ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch) == LOST
        assert cluster.replica().last_stable_offset == cluster.replica().log_end_offset == offset + 2
        assert [each.producer_id for each in cluster.replica().log.aborted_before(offset + 1)] == [
            LOST.producer_id
        ]
        assert await cluster.ask(lambda survey: survey.hanging(unused_ms=0)) == []

    run_scenario(scenario)


def test_a_transaction_with_a_coordinator_does_not_hang() -> None:
    """To abort it in a partition behind its coordinator's back could take away what its producer hears is committed."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        producer = await cluster.add("x")
        offset = await cluster.write(producer)
        assert await cluster.ask(lambda survey: survey.hanging(unused_ms=0)) == []
        with pytest.raises(InvalidTxnState, match=r"x is Ongoing, and broker 2 .* 60 s"):
            await cluster.ask(lambda survey: survey.end_hanging(TP, offset))
        assert cluster.replica().last_stable_offset == offset
        (listed,) = await cluster.ask(lambda survey: survey.all())
        assert (listed.transactional_id, listed.state) == ("x", "Ongoing")
        described = await cluster.ask(lambda survey: survey.one("x"))
        assert (described.partitions, described.producer_id) == ([WrittenTo(*TP)], producer.producer_id)

    run_scenario(scenario)


class SlowSurvey(TransactionSurvey):
    """Asks the coordinators only when something else has happened."""

    def __init__(self, broker: BrokerContext, meanwhile: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(broker)
        self._meanwhile = meanwhile

    async def all(self, *, producer_ids: Collection[int] = ()) -> list[TransactionalId]:
        await self._meanwhile()
        return await super().all(producer_ids=producer_ids)


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_next_transaction_of_a_producer_that_lives_is_not_ended(goes_on: bool) -> None:
    """Its coordinator ended the observed transaction before the request came, and classic clients keep their epoch."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        seen = await cluster.write(LOST)

        async def meanwhile() -> None:
            replica = cluster.replica()
            marker = TxnMarker(LOST.producer_id, LOST.epoch, True, 0)

            async def commit() -> None:
                replica.append_marker(marker, now_ms=cluster.broker(1).context.env.wall_clock_ms())

            await cluster.on(cluster.leader(), commit())
            if goes_on:
                await cluster.write(LOST, sequence=1)

        async def end(survey: TransactionSurvey) -> None:
            await SlowSurvey(survey._broker, meanwhile).end_hanging(TP, seen)

        with pytest.raises(InvalidTxnState, match=f"t-0 .* offset {seen} "):
            await cluster.ask(end)
        replica = cluster.replica()
        await cluster.cluster.until(lambda: replica.high_watermark == replica.log_end_offset, 10, "committed")
        assert not replica.log.aborted_before(replica.log_end_offset)
        assert replica.log_end_offset == seen + 2 + goes_on
        assert replica.last_stable_offset == seen + 2

    run_scenario(scenario)


def test_a_transaction_that_grew_into_the_one_that_hangs_is_not_ended() -> None:
    """Its producer went on in the same partition after an operator had looked: the coordinator knows of that by now."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        seen = await cluster.write(LOST)

        async def meanwhile() -> None:
            await cluster.write(LOST, sequence=1)

        async def end(survey: TransactionSurvey) -> None:
            await SlowSurvey(survey._broker, meanwhile).end_hanging(TP, seen)

        with pytest.raises(InvalidTxnState, match=f"t-0 .* offset {seen} "):
            await cluster.ask(end)
        assert cluster.replica().last_stable_offset == seen
        assert cluster.replica().log_end_offset == seen + 2

    run_scenario(scenario)


def test_what_a_silent_coordinator_may_know_of_is_not_ended() -> None:
    """A part of the ids has no leader: the transaction may belong to an id of them."""

    async def scenario(cluster: HangingTransactionCluster) -> None:
        await cluster.add("x")
        offset = await cluster.write(LOST)
        replica = cluster.replica()
        others = [each for each in (1, 2, 3) if each != cluster.leader()]
        dead, other = sorted(others, key=cluster.coordinates, reverse=True)
        assert cluster.coordinates(dead)
        cluster.cluster.crash(dead, silent=True)
        with pytest.raises(KafkaError):
            await cluster.on(other, cluster.broker(other).transactions.survey().end_hanging(TP, offset))
        assert replica.last_stable_offset == offset

    run_scenario(scenario)
