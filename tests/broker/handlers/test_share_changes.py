"""Share coordinators that are being elected, or read their states, are asked again; other errors stand."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from uuid import UUID

import pytest

from raftlog.base.errors import CoordinatorLoadInProgress, GroupAuthorizationFailed, KafkaError
from raftlog.broker.coordination.group_share_states import SUMMARY_QUESTION, Outcomes
from raftlog.broker.handlers.shared import share_changes
from raftlog.broker.handlers.shared.share_changes import RETRY_PAUSES_S, ask_share_coordinators
from raftlog.coordinator.share_state.share_state import SharePartitionKey

LOADING, REFUSED, READY = (SharePartitionKey("g", UUID(int=1), number) for number in range(3))


class States:
    """Share coordinators of which one loads for some questions."""

    def __init__(self, loads: int) -> None:
        self.loads = loads
        self.asked: list[tuple[SharePartitionKey, ...]] = []

    async def ask(self, _question: object, keys: Iterable[SharePartitionKey]) -> Outcomes:
        self.asked.append(tuple(keys))
        errors: dict[SharePartitionKey, KafkaError] = {REFUSED: GroupAuthorizationFailed()}
        if len(self.asked) <= self.loads:
            errors[LOADING] = CoordinatorLoadInProgress()
        return {each: errors.get(each) for each in self.asked[-1]}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(share_changes, "asyncio", SimpleNamespace(sleep=wait))
    return waited


async def test_a_coordinator_that_loads_is_asked_again(pauses: list[float]) -> None:
    """Only for its own partitions; the first reset of a group's offsets makes the topic of the states."""
    states = States(loads=2)
    outcomes = await ask_share_coordinators(
        SimpleNamespace(share_states=states),  # type: ignore[arg-type]
        SUMMARY_QUESTION,
        (LOADING, REFUSED, READY),
    )
    assert states.asked == [(LOADING, REFUSED, READY), (LOADING,), (LOADING,)]
    assert pauses == list(RETRY_PAUSES_S[:2])
    assert outcomes[LOADING] is None and isinstance(outcomes[REFUSED], GroupAuthorizationFailed)


async def test_a_coordinator_that_goes_on_loading_is_given_up(pauses: list[float]) -> None:
    """The client hears that it loads, and asks again when it likes."""
    states = States(loads=99)
    outcomes = await ask_share_coordinators(
        SimpleNamespace(share_states=states),  # type: ignore[arg-type]
        SUMMARY_QUESTION,
        (LOADING,),
    )
    assert isinstance(outcomes[LOADING], CoordinatorLoadInProgress)
    assert pauses == list(RETRY_PAUSES_S)
