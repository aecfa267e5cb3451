"""A leadership of a coordinators' partition that could not be read back at first."""

from __future__ import annotations

import pytest

from raftlog.base.errors import KafkaStorageError, NotCoordinator
from raftlog.broker.tenure import Tenure
from raftlog.broker.transaction_tenure import TransactionTenure
from raftlog.coordinator.transactions.transaction import State
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
