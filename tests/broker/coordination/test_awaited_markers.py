"""Requests of clients that come while the transaction before is being ended wait for its markers, for a moment."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.base.errors import ConcurrentTransactions
from raftlog.broker.coordination.transaction_coordinators import MARKERS_AWAITED_S
from raftlog.coordinator.transactions.transaction import ClientTransactionVersion, TransactionState
from raftlog.coordinator.transactions.transaction_requests import AddPartitions, InitProducerId
from tests.broker.coordination.test_transaction_coordinators import T0, T1, begin, end
from tests.broker.coordination.transaction_broker import TransactionBroker, run_scenario


def test_the_next_transaction_begins_once_the_markers_of_the_one_before_are_written() -> None:
    """Markers take milliseconds, while simple clients come again only after their retry time."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.answers = [-1]  # the marker is written at the second try, some 20 ms later
        await end(node, producer)
        assert (await node.transactions.read("x")).state is TransactionState.PREPARE_COMMIT
        await node.transactions.add_partitions(AddPartitions("x", producer, frozenset({T1})))
        assert (await node.transactions.read("x")).partitions == {T1}

    run_scenario(scenario)


def test_a_request_waits_for_markers_so_long_at_most() -> None:
    """Its partition's leader may be gone for long: CONCURRENT_TRANSACTIONS, as ever, and no request is kept."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.down = {1}
        await end(node, producer)
        for _ in range(3):
            began_at = node.loop.time()
            with pytest.raises(ConcurrentTransactions):
                await node.transactions.add_partitions(AddPartitions("x", producer, frozenset({T1})))
            assert node.loop.time() - began_at == pytest.approx(MARKERS_AWAITED_S, abs=0.01)
        assert node.transactions.requests_awaiting_markers == 0

    run_scenario(scenario)


def test_a_producer_that_takes_an_open_id_is_answered_at_once() -> None:
    """The transaction of its predecessor is aborted meanwhile."""

    async def scenario(node: TransactionBroker) -> None:
        before = await begin(node, T0)
        after = await node.transactions.init_producer(InitProducerId("x", 60_000))
        assert after.producer_id == before.producer_id and after.epoch > before.epoch
        assert node.leaders.told() == [(1, False, *T0)]

    run_scenario(scenario)


def test_an_end_that_is_asked_for_again_is_answered_once_the_markers_are_written() -> None:
    """The first response was lost, and the markers are still being written."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.answers = [-1]
        assert await end(node, producer) == await end(node, producer)
        assert (await node.transactions.read("x")).state is TransactionState.COMPLETE_COMMIT

    run_scenario(scenario)


def test_several_requests_wait_for_the_same_markers() -> None:
    """Each is decided anew, in the order in which they came: the second producer that takes the id has it."""

    async def scenario(node: TransactionBroker) -> None:
        await begin(node, T0)
        asked = [node.transactions.init_producer(InitProducerId("x", 60_000)) for _ in range(2)]
        first, second = await asyncio.gather(*asked)
        assert second.epoch == first.epoch + 1
        assert node.transactions.requests_awaiting_markers == 0

    run_scenario(scenario)


def test_what_a_broker_asks_for_its_clients_does_not_wait() -> None:
    """The answers for others come in the same response, and it asks again itself."""

    async def scenario(node: TransactionBroker) -> None:
        producer = await begin(node, T0)
        node.leaders.answers = [-1]
        await end(node, producer)
        began_at = node.loop.time()
        with pytest.raises(ConcurrentTransactions):
            request = AddPartitions("x", producer, frozenset({T1}), ClientTransactionVersion.TV_2)
            await node.transactions.add_partitions_for_broker(request, within_s=1.0)
        assert node.loop.time() == began_at

    run_scenario(scenario)
