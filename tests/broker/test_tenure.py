"""A leadership of a coordinators' partition that could not be read back at first."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.base.errors import KafkaStorageError, NotCoordinator
from raftlog.base.types import TRANSACTION_STATE_TOPIC
from raftlog.broker.tenure import Tenure
from raftlog.broker.transaction_tenure import TransactionTenure
from raftlog.broker.turns import PARTS_AT_ONCE
from raftlog.coordinator.transactions.replay import TransactionReplay
from raftlog.coordinator.transactions.transaction import Producer, State, Transaction
from tests.broker.test_transactions import T0, begin
from tests.broker.transaction_world import TransactionWorld, play


@pytest.mark.parametrize("error", [KafkaStorageError("not now"), OSError("not now"), ValueError("a bug")])
@pytest.mark.parametrize(("where", "what"), [(Tenure, "_read"), (TransactionTenure, "_take_up")])
def test_what_could_not_be_read_back_is_read_again(
    monkeypatch: pytest.MonkeyPatch, where: type, what: str, error: Exception
) -> None:
    """Everybody is sent to this broker as long as it leads: one failed read must not be the end of its coordinator."""

    async def story(world: TransactionWorld) -> None:
        await begin(world, T0)
        real, failures = getattr(where, what), [error, error]

        def fail_at_first(*args: object) -> object:
            if failures:
                raise failures.pop()
            return real(*args)

        monkeypatch.setattr(where, what, fail_at_first)
        world.publish(leader=1)
        await world.pass_time(0.5)
        with pytest.raises(NotCoordinator):
            await world.transactions.read("x")
        await world.pass_time(4)
        assert (await world.transactions.read("x")).state is State.ONGOING

    play(story)


def test_very_many_ids_are_taken_over_in_turns() -> None:
    """As they are read back: others get the loop meanwhile, and outcomes are told once somebody is there to hear."""
    known = [_prepared(number) for number in range(1_000)]

    async def story(world: TransactionWorld) -> None:
        sent: list[str] = []
        tenure = TransactionTenure(
            (0, 1),
            broker=world.broker,
            find=lambda index: world.broker.replicas.get(TRANSACTION_STATE_TOPIC, index),
            send=lambda asked, markers: sent.append(markers.transactional_id),
            may_add=lambda: True,
        )
        replay, turns = TransactionReplay(), 0
        replay._transactions = {each.transactional_id: each for each in known}
        taking = asyncio.get_running_loop().create_task(tenure._take_up(replay, 0))
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        coordinator, count = taking.result()
        assert (count, len(coordinator), sent) == (1_000, 1_000, [])
        assert turns >= 1_000 // PARTS_AT_ONCE
        await tenure._taken_up(coordinator)
        assert len(sent) == 500

    play(story)


def _prepared(number: int) -> Transaction:
    state = State.PREPARE_ABORT if number % 2 else State.EMPTY
    return Transaction(f"x{number}", Producer(number, 0), state, 1000)
