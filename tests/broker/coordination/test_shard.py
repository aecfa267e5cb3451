"""A leadership of a coordinators' partition that could not be read back at first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.base.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from raftlog.base.turns import PARTS_AT_ONCE
from raftlog.base.types import TRANSACTION_STATE_TOPIC
from raftlog.broker.coordination.shard import CoordinatorShard
from raftlog.broker.coordination.transaction_shard import TransactionCoordinatorShard
from raftlog.broker.handlers import list_groups, list_transactions
from raftlog.coordinator.group_requests import WriteTxnMarker
from raftlog.coordinator.java_hash import partition_for
from raftlog.coordinator.transactions.transaction import (
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from raftlog.coordinator.transactions.transaction_coordinator import TransactionCapacity
from raftlog.coordinator.transactions.transaction_records import TransactionReplay
from tests.broker.coordination.group_broker import PARTITIONS, GroupBroker
from tests.broker.coordination.test_group_coordinators import commit_of
from tests.broker.coordination.test_transaction_coordinators import T0, begin
from tests.broker.coordination.transaction_broker import TransactionBroker, run_scenario
from tests.broker.handlers.test_groups import run_scenario as play_groups


@pytest.mark.parametrize("error", [KafkaStorageError("not now"), OSError("not now"), ValueError("a bug")])
@pytest.mark.parametrize(
    ("where", "what"), [(CoordinatorShard, "_read"), (TransactionCoordinatorShard, "_take_up")]
)
def test_what_could_not_be_read_back_is_read_again(
    monkeypatch: pytest.MonkeyPatch, where: type, what: str, error: Exception
) -> None:
    """Everybody is sent to this broker as long as it leads: one failed read must not be the end of its coordinator."""

    async def scenario(node: TransactionBroker) -> None:
        await begin(node, T0)
        real, failures = getattr(where, what), [error, error]

        def fail_at_first(*args: object) -> object:
            if failures:
                raise failures.pop()
            return real(*args)

        monkeypatch.setattr(where, what, fail_at_first)
        node.publish(leader=1)
        await node.pass_time(0.5)
        with pytest.raises(NotCoordinator):
            await node.transactions.read("x")
        await node.pass_time(4)
        assert (await node.transactions.read("x")).state is TransactionState.ONGOING

    run_scenario(scenario)


def test_a_leader_that_takes_its_role_late_is_read_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many replicas are made in sequence; the metadata that names this broker may not change again."""

    async def scenario(node: TransactionBroker) -> None:
        await begin(node, T0)
        states: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(TransactionBroker, "_reconcile", lambda _, state: states.append(state))
            node.publish(leader=1)
        await node.pass_time(5)
        with pytest.raises(CoordinatorLoadInProgress):
            await node.transactions.read("x")
        node._reconcile(*states)
        for listener in node.replicas.role_listeners:
            listener()
        await node.pass_time(1)
        assert (await node.transactions.read("x")).state is TransactionState.ONGOING

    run_scenario(scenario)


def test_very_many_ids_are_taken_over_in_turns() -> None:
    """While they are read back: other work gets the loop meanwhile, and outcomes are sent once a client can receive
    them.
    """
    known = [_prepared(number) for number in range(1_000)]

    async def scenario(node: TransactionBroker) -> None:
        sent: list[str] = []
        shard = TransactionCoordinatorShard(
            (0, 1),
            broker=node.broker,
            find=lambda index: node.broker.replicas.get(TRANSACTION_STATE_TOPIC, index),
            send=lambda asked, markers: sent.append(markers.transactional_id),
            room=TransactionCapacity(),
        )
        replay, turns = TransactionReplay(), 0
        replay._transactions = {each.transactional_id: each for each in known}
        taking = asyncio.get_running_loop().create_task(shard._take_up(replay, 0))
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        coordinator, count = taking.result()
        assert (count, len(coordinator), sent) == (1_000, 1_000, [])
        assert turns >= 1_000 // PARTS_AT_ONCE
        await shard._taken_up(coordinator)
        assert len(sent) == 500

    run_scenario(scenario)


def _prepared(number: int) -> Transaction:
    state = TransactionState.PREPARE_ABORT if number % 2 else TransactionState.EMPTY
    return Transaction(f"x{number}", ProducerIdAndEpoch(number, 0), state, 1000)


def test_what_cannot_be_read_back_is_left_out_of_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Apache Kafka: this broker does not coordinate it. Others would wait for ever for the ids that are there.

    But a broker that asks what no coordinator knows, to end it, hears that a part is not known.
    """

    async def scenario(node: TransactionBroker) -> None:
        names = {partition_for(each, PARTITIONS): each for each in "abcd"}
        for each in names.values():
            await begin(node, T0, name=each)
        real = CoordinatorShard._read

        async def read(shard: Any, *args: Any) -> bytes:
            if shard.index == 0:
                raise KafkaStorageError("rotten")
            return await real(shard, *args)

        monkeypatch.setattr(CoordinatorShard, "_read", read)
        node.publish(leader=1)
        with pytest.raises(CoordinatorLoadInProgress):
            await node.transactions.read_all()
        for _ in range(3):
            await node.pass_time(5)
            assert [each.transactional_id for each in await node.transactions.read_all()] == [names[1]]
            with pytest.raises(NotCoordinator):
                await node.transactions.read(names[0])
            assert await listed(node) == (NONE, {names[1]})
            node.asker = 2
            assert await listed(node) == (CoordinatorNotAvailable.code, set())
            node.asker = None
        monkeypatch.setattr(CoordinatorShard, "_read", real)
        await node.pass_time(5)
        node.asker = 2
        assert await listed(node) == (NONE, set(names.values()))

    run_scenario(scenario)


async def listed(node: TransactionBroker) -> tuple[int, set[str]]:
    answer = await node.call(list_transactions, 0, state_filters=(), producer_id_filters=())
    return int(answer.error_code), {each.transactional_id for each in answer.transaction_states}


def test_groups_that_can_be_read_are_listed_and_their_offsets_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a partition that cannot be read this broker is not the coordinator, and ends no transaction in it."""
    real = CoordinatorShard._read_back

    async def read_back(shard: Any, *args: Any) -> Any:
        if shard.index == 0:
            raise KafkaStorageError("rotten")
        return await real(shard, *args)

    monkeypatch.setattr(CoordinatorShard, "_read_back", read_back)

    async def scenario(node: GroupBroker) -> None:
        (name,) = {each for each in "ab" if partition_for(each, PARTITIONS) == 1}
        await node.groups.commit(commit_of(5, group_id=name))
        for _ in range(3):
            assert [each.group_id for each in await node.groups.read_all()] == [name]
            answer = await node.call(list_groups, 4, states_filter=())
            assert [each.group_id for each in answer.groups] == [name]
            with pytest.raises(NotLeaderOrFollower):
                node.groups.end_transaction(0, WriteTxnMarker(7, 0, True, 0))
            await node.groups.end_transaction(1, WriteTxnMarker(7, 0, True, 0))
            await node.pass_time(5)

    play_groups(scenario)
