"""ISR proposals on their way to the controller: none is ever forgotten."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from raftlog.broker.replicas.isr_changes import IsrChanges
from raftlog.metadata.broker_requests import AlterPartition, AlterPartitionReply, IsrChange, IsrChangeResult
from tests.kit.waits import PATIENCE_S

TOPIC_ID = UUID(int=7)


class ProposingPartition:
    """A partition with a proposal until it is answered; its first answer trips it up."""

    def __init__(self, index: int, *, trips: bool = False) -> None:
        self.index = index
        self.trips = trips
        self.answered = asyncio.Event()

    def pending_isr_change(self) -> IsrChange | None:
        return None if self.answered.is_set() else IsrChange(TOPIC_ID, self.index, 0, 0, ())

    def complete_isr_change(self, change: IsrChange, answer: IsrChangeResult) -> bool:
        if self.trips:
            self.trips = False
            raise AssertionError("an invariant of somebody who waited")
        self.answered.set()
        return False


async def test_a_proposal_outlives_whatever_goes_wrong_on_its_way() -> None:
    """The ISR would otherwise stay pending for ever: it counts as the union and no other change is proposed."""
    tries: list[int] = []

    async def submit(request: Any, *, timeout: float) -> Any:
        assert isinstance(request, AlterPartition)
        tries.append(len(request.changes))
        if len(tries) == 1:
            raise ValueError("a reply that nobody can read")
        return AlterPartitionReply(
            tuple(IsrChangeResult(each.topic_id, each.partition, 0) for each in request.changes)
        )

    loop = asyncio.get_running_loop()
    changes = IsrChanges(submit, broker_id=1, broker_epoch=lambda: 1, loop=loop)  # type: ignore[arg-type]
    partitions = [ProposingPartition(0, trips=True), ProposingPartition(1)]
    for each in partitions:
        changes.add(each)  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S):
        for each in partitions:
            await each.answered.wait()
    assert tries[:2] == [2, 2]
