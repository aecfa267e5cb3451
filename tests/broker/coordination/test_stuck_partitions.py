"""One partition that cannot commit holds up neither the markers nor the verification of others."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from raftlog.base.errors import NotEnoughReplicas
from raftlog.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from raftlog.broker.coordination.transaction_verification import (
    ProducerApiLevel,
    TransactionalProducer,
)
from raftlog.broker.dispatch import serve_own
from raftlog.broker.handlers import write_txn_markers
from raftlog.broker.links.broker_links import BrokerLinks
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.transactions.transaction import TransactionState
from tests.broker.coordination.test_transaction_coordinators import begin, end
from tests.broker.coordination.transaction_broker import TransactionBroker, run_scenario

STUCK = 1
NAMES = [next(name for name in "abcdefgh" if partition_for(name, 2) == index) for index in (0, 1)]
"""An id in the partition that commits, and an id in the other partition."""

FOLLOWER = NAMES[0] * 3
"""Another id in the partition that commits."""

TIMED_OUT = 7


async def no_connection(*_: Any, **__: Any) -> None:
    raise OSError("this broker asks only itself")


def ask_for_real(node: TransactionBroker) -> None:
    node.broker.links = BrokerLinks(node.broker.env, 1, no_connection, partial(serve_own, node.broker))  # type: ignore[arg-type]


def stick(node: TransactionBroker) -> None:
    """A follower in the ISR stands still: what is appended from now on is not committed."""
    stuck, flush = node.replicas.partitions[STUCK], node.partition_host.request_flush
    node.partition_host.request_flush = (  # type: ignore[method-assign]
        lambda partition: None if partition is stuck else flush(partition)
    )


def release(node: TransactionBroker) -> None:
    del node.partition_host.request_flush
    node.partition_host.flush(node.replicas.partitions[STUCK])


def marker(*indexes: int) -> dict[str, object]:
    topic = {"_": "WritableTxnMarkerTopic", "name": TRANSACTION_STATE_TOPIC, "partition_indexes": indexes}
    return {
        "_": "WritableTxnMarker",
        "producer_id": 9,
        "producer_epoch": 1,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "transaction_version": 2,
        "topics": [topic],
    }


def test_markers_that_are_not_committed_in_time_are_answered_so_and_the_others_with_them() -> None:
    """REQUEST_TIMED_OUT, long before the coordinator hangs up; none is answered as written before its commit."""

    async def scenario(node: TransactionBroker) -> None:
        node.asker = 2
        stick(node)
        began_at = node.loop.time()
        for _ in range(2):  # asked again, it is there already, and still not committed
            answer = await node.call(write_txn_markers, 2, markers=[marker(0, STUCK)])
            codes = {each.partition_index: each.error_code for each in answer.markers[0].topics[0].partitions}
            assert codes == {0: 0, STUCK: TIMED_OUT}
        assert node.loop.time() - began_at < 2.5
        release(node)
        answer = await node.call(write_txn_markers, 2, markers=[marker(0, STUCK)])
        assert {each.error_code for each in answer.markers[0].topics[0].partitions} == {0}

    run_scenario(scenario)


def test_a_marker_that_cannot_be_committed_holds_up_no_other() -> None:
    """Its own transaction waits; another in the same request is complete, and so are later transactions."""

    async def scenario(node: TransactionBroker) -> None:
        ask_for_real(node)
        topic_partitions = [TopicPartition(TRANSACTION_STATE_TOPIC, index) for index in (0, STUCK)]
        both = await begin(node, *topic_partitions, name=NAMES[0])
        stick(node)
        await end(node, both, name=NAMES[0])
        await node.pass_time(2)
        assert (await node.transactions.read(NAMES[0])).state is TransactionState.PREPARE_COMMIT
        for _ in range(8):
            began_at = node.loop.time()
            await end(node, await begin(node, topic_partitions[0], name=FOLLOWER), name=FOLLOWER)
            while (await node.transactions.read(FOLLOWER)).state is not TransactionState.COMPLETE_COMMIT:
                await node.pass_time(0.01)
            assert node.loop.time() - began_at < 0.2
            await node.pass_time(0.3)
        release(node)
        await node.pass_time(3)
        assert (await node.transactions.read(NAMES[0])).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


@pytest.mark.parametrize("timeout_ms", [5000, 60_000])
def test_an_id_whose_partition_cannot_commit_holds_up_the_verification_of_no_other(timeout_ms: int) -> None:
    """In a single request: the response for the first id is retriable, and for the second its partition was added."""

    async def scenario(node: TransactionBroker) -> None:
        ask_for_real(node)
        producers = [await begin(node, TopicPartition("t", 0), name=name) for name in NAMES]
        tp = TopicPartition("t", 1)
        stick(node)

        async def ask(name: str, dialect: ProducerApiLevel) -> Any:
            producer = producers[NAMES.index(name)]
            whose = TransactionalProducer(name, producer.producer_id, producer.epoch)
            return (await node.broker.verifier.verify(whose, [tp], dialect=dialect))[tp]

        for dialect in (ProducerApiLevel.ADDS, ProducerApiLevel.ABORTABLE):
            first = asyncio.ensure_future(ask(NAMES[0], dialect))  # on its way alone; the others go together
            began_at = node.loop.time()
            _, healthy, stuck = await asyncio.gather(first, ask(NAMES[0], dialect), ask(NAMES[1], dialect))
            assert healthy is None
            assert isinstance(stuck, NotEnoughReplicas)
            assert node.loop.time() - began_at < 2

    run_scenario(scenario, offsets_commit_timeout_ms=timeout_ms)
